"""What a host looks like: the question, one shell script for all of it, and the answer, parsed.

Pure: `operations.py` carries the question over and the answer back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.host.limits import LIMITS_FORMAT, read_limits
from llamaherd.host.looks.docker import DOCKER_PACKAGES, DockerState
from llamaherd.host.looks.docker import PACKAGES as TOOLKIT_PACKAGES
from llamaherd.host.looks.driver import GLOBS, DriverState
from llamaherd.host.looks.machine import MachineState
from llamaherd.host.looks.serving import BEFORE_OURS, DECIDING, UNIT_ROOTS, ContainerState, ServingState, UnitState
from llamaherd.host.nvidia_smi import FIELDS, GpuState, card
from llamaherd.layout import (
    DRIVER_KEPT,
    FETCH_RUN,
    FETCHER,
    GPU_CHECK,
    OURS,
    PINNED,
    POWER_RUN,
    POWER_UNIT,
    REBOOT_MARK,
    REBOOT_NOTE,
)
from llamaherd.plan import Plan
from llamaherd.text.render import render
from llamaherd.wsl.state import WslState


@dataclass(frozen=True)
class FileState:
    """A file: octal mode, owner as number and as name, when it was written (seconds since the epoch), its sha256."""

    mode: str
    owner: tuple[str, str]
    written: float
    sha256: str


class FolderState(NamedTuple):
    """A folder: the permissions, and its owner's name."""

    mode: int
    owner: str


class Holder(NamedTuple):
    """A process that holds a port, and the container that it holds it for, if it is Docker's."""

    pid: int
    program: str
    container: str


class UserState(NamedTuple):
    """An account: its shell and its groups, its own first."""

    shell: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class StoreFolderState:
    """The filesystem that models go to: the folder of it that exists, bytes free, device, kind."""

    folder: str
    free: int
    device: str
    kind: str
    writable: bool


class RoomState(NamedTuple):
    """Room for a CUDA toolkit: a folder, bytes free there, the device, and the bytes of it that are there already."""

    folder: str
    free: int
    device: str
    begun: int


class PowerUnitState(NamedTuple):
    """The unit that holds cards to limits, clocks and fan speeds."""

    active: str
    enabled: str
    needs_reload: bool


class HeldCard(NamedTuple):
    """Our note of what a card is held to: watts or `refused`, MHz, `on`, percent.

    `-` stands for nothing and `?` for not known. Notes of before there were fans do not speak of them.
    """

    limit: str = "?"
    clocks: str = "?"
    persistence: str = "?"
    fans: str = "-"


@dataclass
class HostState:
    """All of it; what was not there is not in it."""

    os: str = ""
    arch: str = ""
    systemd: bool = False
    free: tuple[str, int, str] | None = None
    """Where builds go, or its nearest parent, the bytes free there, and the device."""
    room: RoomState | None = None
    """Where the planned CUDA toolkit is to go, while its compiler is not there."""
    store: StoreFolderState | None = None
    folders: dict[str, FolderState] = field(default_factory=dict)
    """Of our own folders those that are there."""
    closed: list[str] = field(default_factory=list)
    """What a server would read, and may not."""
    addresses: list[str] = field(default_factory=list)
    """The host's own, each with the length of its network's prefix."""
    listening: set[int] = field(default_factory=set)
    holders: dict[int, Holder] = field(default_factory=dict)
    """Who holds ports that are planned, and are none of our servers'."""
    packages: set[str] = field(default_factory=set)
    users: dict[str, UserState] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)
    """Accounts of ours whose number another account has, too, and which."""
    passwords: set[str] = field(default_factory=set)
    """Accounts of ours that take a password."""
    files: dict[str, FileState] = field(default_factory=dict)
    fetcher: str = ""
    """The fingerprint of our programs there."""
    builds: dict[str, str] = field(default_factory=dict)
    """By build id: `done`, `built` but not let in yet, `building`; `intact`, but something is new about its files;
    `damaged`, since a program is not what was built."""
    sources: set[str] = field(default_factory=set)
    verified: dict[str, dict[str, tuple[int, float, str]]] = field(default_factory=dict)
    """By model folder and file: size, time and sha256 when it was last verified."""
    stored: dict[str, dict[str, tuple[int, float]]] = field(default_factory=dict)
    """By model folder and file: size and time now."""
    incoming: dict[str, int] = field(default_factory=dict)
    """What has arrived or is arriving, by the name in the store's `.incoming`: bytes of the disk."""
    kept: dict[str, int] = field(default_factory=dict)
    """Every revision in the store, by its folder: bytes that removing it would free."""
    fetch: str | None = None
    """The id of the fetch that runs."""
    units: dict[str, UnitState] = field(default_factory=dict)
    projects: set[str] = field(default_factory=set)
    containers: dict[str, ContainerState] = field(default_factory=dict)
    serving: dict[str, ServingState] = field(default_factory=dict)
    """What else is known of units and containers that run."""
    images: set[str] = field(default_factory=set)
    off_cards: set[str] = field(default_factory=set)
    """Containers that are healthy, and not on their cards: at boot Docker starts them without asking."""
    cards: list[GpuState] = field(default_factory=list)
    driver_says: str = ""
    """Why there is no card to be seen, in the words of nvidia-smi."""
    held: dict[str, HeldCard] = field(default_factory=dict)
    """By UUID."""
    power_unit: PowerUnitState | None = None
    wsl: WslState | None = None
    """Where the host is a distribution of it."""
    machine: MachineState = field(default_factory=MachineState)
    repositories: dict[str, str] = field(default_factory=dict)
    """By name of those that we would add: a file of somebody else's that names the same address."""
    nvidia: DriverState = field(default_factory=DriverState)
    """The driver, where one is planned."""
    toolkit: str | None = None
    """What the compiler of the planned CUDA toolkit says that it is; empty where it does not run."""
    docker: DockerState = field(default_factory=DockerState)


def question(plan: Plan) -> str:
    """The script that asks a host for all that the plan needs to know of it."""
    return render(
        "observe.sh.j2",
        packages=plan.packages,
        users=plan.accounts,
        files=[
            *(file.path for file in plan.files),
            *(instance.file.path for instance in plan.instances),
            *(instance.key_file for instance in plan.instances if instance.key_file),
            *(file.path for file in (plan.power.files if plan.power else ())),
            *((*(file.path for file in plan.driver.files), str(DRIVER_KEPT)) if plan.driver else ()),
            *(path for each in plan.repositories for path in (each.keyring, each.sources.path)),
            *((plan.toolkit.preferences.path,) if plan.toolkit else ()),
            *((plan.runtime.toolkit.order.path, PINNED) if plan.runtime and plan.runtime.toolkit else ()),
        ],
        repositories=plan.repositories,
        driver=plan.driver is not None,
        driver_packages=GLOBS,
        reboot_mark=REBOOT_MARK,
        reboot_note=REBOOT_NOTE,
        toolkit=plan.toolkit,
        runtime=plan.runtime,
        toolkit_packages=TOOLKIT_PACKAGES,
        docker_packages=DOCKER_PACKAGES,
        builds=plan.builds,
        sources=[build.source.sha256 for build in plan.builds if build.source.sha256],
        ours=OURS,
        read=[f"{build.folder}/bin/{target}" for build in plan.builds for target in build.targets],
        store=plan.store.path,
        fetch_run=FETCH_RUN,
        fetcher=FETCHER,
        stores=[model.folder for model in plan.models],
        images=plan.images,
        records={image.tag: image.record for image in plan.images},
        units=plan.of("systemd"),
        projects=plan.of("compose"),
        limits=LIMITS_FORMAT,
        ports=sorted({instance.endpoint.port for instance in plan.instances}),
        before_ours=BEFORE_OURS,
        unit_roots=UNIT_ROOTS,
        deciding=DECIDING,
        on_cards=[instance for instance in plan.of("compose") if instance.server.cards],
        gpu_check=GPU_CHECK,
        has_cards=plan.has_cards,
        power=plan.power is not None,
        power_unit=POWER_UNIT,
        power_run=POWER_RUN,
        card_fields=FIELDS if plan.has_cards and (plan.power or any(card.at for card in plan.cards)) else (),
        wsl=plan.wsl is not None,
        profile=plan.wsl.profile if plan.wsl else None,
        root="",
    )


_BEGIN, _END = "@ look", "@ end of the look"


def spoken(lines: Iterable[str]) -> list[str]:
    """The lines of an answer that are the script's own. Raises ValueError where it was not run to its end.

    Around them may be what files of a login shell print.
    """
    output = list(lines)
    try:
        begin = output.index(_BEGIN)
        return output[begin + 1 : output.index(_END, begin)]
    except ValueError:
        last = next((line.strip() for line in reversed(output) if line.strip()), "it said nothing")
        raise ValueError(f"the host stopped answering halfway: {last[:200]}") from None


def answer(lines: Iterable[str]) -> HostState:
    """What the script says in these lines. Raises ValueError on one that it cannot have printed."""
    seen = HostState()
    stats: dict[str, list[str]] = {}
    for line in lines:
        kind, *fields = line.split("\t")
        match kind, fields:
            case "os", [value]:
                seen.os = value
            case "arch", [value]:
                seen.arch = value
            case "systemd", [_]:
                seen.systemd = True
            case "free", [folder, size, device]:
                seen.free = (folder, int(size), device)
            case "room", [folder, size, device, begun]:
                seen.room = RoomState(folder, int(size), device, int(begun))
            case "store", [folder, size, device, kind, ("rw" | "ro") as access]:
                seen.store = StoreFolderState(folder, int(size), device, kind, access == "rw")
            case "folder", [path, mode, owner]:
                seen.folders[path] = FolderState(int(mode, 8) & 0o777, owner)
            case "closed", [path]:
                seen.closed.append(path)
            case "address", [address]:
                seen.addresses.append(address)
            case "listens", [port]:
                seen.listening.add(int(port, 16))
            case "package", [name, status]:
                if status == "installed":
                    seen.packages.add(name)
            case "user", [name, shell, groups]:
                seen.users[name] = UserState(shell, tuple(groups.split()))
            case "twin", [name, other]:
                seen.twins[name] = other
            case "password", [name]:
                seen.passwords.add(name)
            case "file", [path, stat]:
                stats[path] = stat.split()
            case "sum", [sha256, path]:
                mode, uid, user, written = stats.get(path, [])
                seen.files[path] = FileState(mode, (uid, user), float(written), sha256)
            case "fetcher", [fingerprint]:
                seen.fetcher = fingerprint
            case "build", [build, state]:
                seen.builds[build] = state
            case "source", [sha256]:
                seen.sources.add(sha256)
            case "verified", [folder, size, written, sha256, name]:
                seen.verified.setdefault(folder, {})[name] = (int(size), float(written), sha256)
            case "stored", [folder, size, written, name]:
                seen.stored.setdefault(folder, {})[name] = (int(size), float(written))
            case "incoming", [name, size, blocks]:
                seen.incoming[name] = min(int(size), int(blocks) * 512)
            case "kept", [folder, size]:
                seen.kept[folder] = int(size)
            case "fetch", [job]:
                seen.fetch = job
            case "unit", [name, active, enabled, needs_reload, run, spec, port]:
                seen.units[name] = UnitState(
                    active, enabled, needs_reload == "yes", run, spec, int(port) if port else None
                )
            case "project", [name]:
                seen.projects.add(name)
            case "container", [name, status, health, run, spec, port, limits]:
                seen.containers[name.lstrip("/")] = ContainerState(
                    status, health, run, spec, int(port) if port else None, read_limits(limits)
                )
            case "holder", [port, pid, program, container]:
                seen.holders[int(port)] = Holder(int(pid), program, container)
            case "serving", [name, what, *rest]:
                seen.serving.setdefault(name, ServingState()).tell(what, rest)
            case "image", [tag]:
                seen.images.add(tag)
            case "off-cards", [name]:
                seen.off_cards.add(name)
            case "card", [line]:
                seen.cards.append(card(line))
            case "driver", [words]:
                seen.driver_says = words
            case "held", [uuid, *words] if len(words) <= len(HeldCard._fields):
                seen.held[uuid] = HeldCard(*words)
            case "power", [active, enabled, needs_reload]:
                seen.power_unit = PowerUnitState(active, enabled, needs_reload == "yes")
            case "machine", [what, *rest]:
                seen.machine.tell(what, rest)
            case "nvidia", [what, *rest]:
                seen.nvidia.tell(what, rest)
            case "repository", [name, path]:
                seen.repositories[name] = path
            case "toolkit", [version]:
                seen.toolkit = version
            case "docker", [what, *rest]:
                seen.docker.tell(what, rest)
            case "wsl", ["release", release]:
                seen.wsl = WslState(release)
            case "wsl", [what, *rest] if seen.wsl:
                seen.wsl.tell(what, rest)
            case _:
                raise ValueError(f"the host answered with a line that was not asked for: {line[:200]!r}")
    return seen
