"""A host inspected: one shell script that asks for everything, and its answer parsed.

Pure: others carry the script there and the answer back.
"""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.host.limits import LIMITS_FORMAT, read_limits
from llamaherd.host.looks.docker import DOCKER_PACKAGES
from llamaherd.host.looks.docker import PACKAGES as TOOLKIT_PACKAGES
from llamaherd.host.looks.driver import GLOBS
from llamaherd.host.looks.serving import BEFORE_OURS, DECIDING, UNIT_ROOTS, ContainerState, ServingState, UnitState
from llamaherd.host.nvidia_smi import FIELDS, card
from llamaherd.host.state import (
    FileState,
    FolderState,
    HeldCard,
    Holder,
    HostState,
    PowerUnitState,
    RoomState,
    StoreFolderState,
    UserState,
)
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


def inspect_script(plan: Plan) -> str:
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


def script_lines(lines: Iterable[str]) -> list[str]:
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


def parse_state(lines: Iterable[str]) -> HostState:
    """What the script says in these lines. Raises ValueError on one that it cannot have printed."""
    state = HostState()
    stats: dict[str, list[str]] = {}
    for line in lines:
        kind, *fields = line.split("\t")
        match kind, fields:
            case "file", [path, stat]:
                stats[path] = stat.split()
            case "sum", [sha256, path]:
                mode, uid, user, written = stats.get(path, [])
                state.files[path] = FileState(mode, (uid, user), float(written), sha256)
            case _:
                if not any(understood(state, kind, fields) for understood in _PARTS):
                    raise ValueError(f"the host answered with a line that was not asked for: {line[:200]!r}")
    return state


def _system(state: HostState, kind: str, fields: list[str]) -> bool:
    """What kind of machine it is, and its room. Returns whether the line was about that."""
    match kind, fields:
        case "os", [value]:
            state.os = value
        case "arch", [value]:
            state.arch = value
        case "systemd", [_]:
            state.systemd = True
        case "free", [folder, size, device]:
            state.free = (folder, int(size), device)
        case "room", [folder, size, device, begun]:
            state.room = RoomState(folder, int(size), device, int(begun))
        case "address", [address]:
            state.addresses.append(address)
        case "listens", [port]:
            state.listening.add(int(port, 16))
        case "machine", [what, *rest]:
            state.machine.tell(what, rest)
        case "wsl", ["release", release]:
            state.wsl = WslState(release)
        case "wsl", [what, *rest] if state.wsl:
            state.wsl.tell(what, rest)
        case _:
            return False
    return True


def _accounts(state: HostState, kind: str, fields: list[str]) -> bool:
    """Who may do what: packages, accounts, folders. Returns whether the line was about that."""
    match kind, fields:
        case "folder", [path, mode, owner]:
            state.folders[path] = FolderState(int(mode, 8) & 0o777, owner)
        case "closed", [path]:
            state.closed.append(path)
        case "package", [name, status]:
            if status == "installed":
                state.packages.add(name)
        case "user", [name, shell, groups]:
            state.users[name] = UserState(shell, tuple(groups.split()))
        case "twin", [name, other]:
            state.twins[name] = other
        case "password", [name]:
            state.passwords.add(name)
        case "repository", [name, path]:
            state.repositories[name] = path
        case _:
            return False
    return True


def _store(state: HostState, kind: str, fields: list[str]) -> bool:
    """What is built, and which models are there or on their way. Returns whether the line was about that."""
    match kind, fields:
        case "store", [folder, size, device, kind, ("rw" | "ro") as access]:
            state.store = StoreFolderState(folder, int(size), device, kind, access == "rw")
        case "fetcher", [fingerprint]:
            state.fetcher = fingerprint
        case "build", [build, stage]:
            state.builds[build] = stage
        case "source", [sha256]:
            state.sources.add(sha256)
        case "verified", [folder, size, written, sha256, name]:
            state.verified.setdefault(folder, {})[name] = (int(size), float(written), sha256)
        case "stored", [folder, size, written, name]:
            state.stored.setdefault(folder, {})[name] = (int(size), float(written))
        case "incoming", [name, size, blocks]:
            state.incoming[name] = min(int(size), int(blocks) * 512)
        case "kept", [folder, size]:
            state.kept[folder] = int(size)
        case "fetch", [job]:
            state.fetch = job
        case _:
            return False
    return True


def _servers(state: HostState, kind: str, fields: list[str]) -> bool:
    """What serves, or holds a port. Returns whether the line was about that."""
    match kind, fields:
        case "unit", [name, active, enabled, needs_reload, run, spec, port]:
            state.units[name] = UnitState(
                active, enabled, needs_reload == "yes", run, spec, int(port) if port else None
            )
        case "project", [name]:
            state.projects.add(name)
        case "container", [name, status, health, run, spec, port, limits]:
            state.containers[name.lstrip("/")] = ContainerState(
                status, health, run, spec, int(port) if port else None, read_limits(limits)
            )
        case "holder", [port, pid, program, container]:
            state.holders[int(port)] = Holder(int(pid), program, container)
        case "serving", [name, what, *rest]:
            state.serving.setdefault(name, ServingState()).tell(what, rest)
        case "image", [tag]:
            state.images.add(tag)
        case "off-cards", [name]:
            state.off_cards.add(name)
        case "docker", [what, *rest]:
            state.docker.tell(what, rest)
        case _:
            return False
    return True


def _gpus(state: HostState, kind: str, fields: list[str]) -> bool:
    """GPUs, and what is installed for them. Returns whether the line was about that."""
    match kind, fields:
        case "card", [line]:
            state.cards.append(card(line))
        case "driver", [words]:
            state.driver_says = words
        case "held", [uuid, *words] if len(words) <= len(HeldCard._fields):
            state.held[uuid] = HeldCard(*words)
        case "power", [active, enabled, needs_reload]:
            state.power_unit = PowerUnitState(active, enabled, needs_reload == "yes")
        case "nvidia", [what, *rest]:
            state.nvidia.tell(what, rest)
        case "toolkit", [version]:
            state.toolkit = version
        case _:
            return False
    return True


_PARTS = (_system, _accounts, _store, _servers, _gpus)
