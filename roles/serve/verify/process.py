"""Check a server's unit or container, its process, its files and its GPUs against the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml

from llamaherd.host.responses import ProbeOutputs, build_manifest, json_object, stored_files
from llamaherd.onhost.hardware import parse_number
from llamaherd.plan import BuildPlan, GpuRef, InstancePlan, Plan, TextFile
from llamaherd.role.report import Check, Installed
from llamaherd.text.numbers import show_size, whole_number
from roles.serve.onhost.model import (
    ContainerFound,
    GpuProcesses,
    GpusFound,
    ImageFound,
    OwnedFile,
    ServerFound,
    UnitFound,
    VerifiedServers,
)
from roles.serve.state import declared_limits

MEMORY_TOLERANCE = 0.1
"""Of what is planned of a GPU: holding so much more or less is worth a word. On an H200, plans were off by 0.9 %."""

FIRST_NAMESPACE = "pid:[4026531836]"
"""Of processes, in every Linux (include/linux/proc_ns.h, PROC_PID_INIT_INO). The driver counts in no other."""


def permission_problems(instance: InstancePlan, files: Iterable[OwnedFile]) -> Iterator[str]:
    """Yield files of a server that other users than root can write to, and its key if other users can read it."""
    for each in files:
        whose = f"(mode {each.mode:o}, of {each.owner})"
        if each.path == instance.key_file:
            if (each.kind, each.mode, each.owner) != ("file", 0o400, instance.server.user):
                yield f"{each.path} is not {instance.server.user}'s alone {whose}: `herd up`"
        elif each.kind == "link":
            yield f"{each.path} is a symbolic link: `herd up`"
        elif each.owner != "root" or each.mode & 0o022:
            yield f"{each.path} is not root's alone to write {whose}: `herd up`"


def container_problems(planned: InstancePlan, found: ContainerFound, image: ImageFound | None) -> Iterator[str]:
    """Yield how a running container differs from the plan. `image` is the image that its tag names, if built here."""
    if image and len({found.image, image.id, image.made or image.id}) > 1:
        yield f"{planned.server.image} is another image than it runs, or than we made, or gone: `herd up`"
    limits = declared_limits(planned.file.text)
    if differ := sorted({name for name, _ in found.limits.items() ^ limits.items()}):
        yield f"it has other limits than declared: {', '.join(differ)}"
    if names := compose_differences(planned.file, found):
        yield f"it was made with another {', '.join(names)} than declared: `herd up`"


def compose_differences(file: TextFile, found: ContainerFound) -> list[str]:
    """Return Docker's names of settings that a container has, and the service of its file has not."""
    # `ConfigFiles` are those that Compose was given.
    service: dict[str, Any] = yaml.safe_load(file.text)["services"]["server"]
    mounts = sorted((each.source, each.writable) for each in found.mounts)
    right = {
        "ConfigFiles": found.config_files == file.path,
        "User": found.user == service["user"],
        "Mounts": mounts == sorted(_declared_mount(each) for each in service["volumes"]),
        "Privileged": not found.privileged,
        "ReadonlyRootfs": found.read_only,
        "NetworkMode": (found.network == "host") == (service.get("network_mode") == "host"),
        "PidMode": found.pid_mode != "host",
        "IpcMode": found.ipc_mode != "host",
        "CapAdd": not found.added,
        "CapDrop": found.dropped == ("ALL",),
        "SecurityOpt": _has_walls(found.security),
    }
    return [name for name, well in right.items() if not well]


def _has_walls(options: tuple[str, ...]) -> bool:
    """Return whether security options forbid new privileges and disable no protection."""
    given = " ".join(options)
    return "no-new-privileges" in given and "unconfined" not in given


def _declared_mount(volume: Mapping[str, Any]) -> tuple[str, bool]:
    return str(volume["source"]), not volume.get("read_only")


@dataclass(frozen=True)
class Gpu:
    """A GPU as the driver reports it; `minor` is that of its device, None if unknown."""

    pci: str
    uuid: str
    minor: int | None


@dataclass(frozen=True)
class UsedGpus:
    """The GPUs of a server's processes: MiB by UUID, None if unknown. `how`, if not by the driver."""

    held: Mapping[str, float | None]
    how: str = ""


def judge_gpus(planned: InstancePlan, own: GpuProcesses, driver: GpusFound) -> tuple[bool, str]:
    """Return whether the server uses its GPUs and no other, and what was found."""
    pids = frozenset(own.pids)
    if not pids:
        return False, "no process runs"
    gpus = _gpus(driver)
    if not gpus:
        return False, _first(driver.listed) or "nvidia-smi printed nothing"
    found = _listed(pids, driver) or _opened(frozenset(own.devices), gpus, driver)
    if found is None:
        return False, "unknown: the driver shows no processes here, and no devices"
    if not found.held:
        return False, "it is on no GPU and serves from the CPU: see its log for why CUDA did not start"
    wanted = _wanted(planned, gpus, found)
    absent = [card.name for card in planned.server.cards if wanted[card.name] not in found.held]
    others = sorted(f"{uuid}, which is not its" for uuid in found.held if uuid not in wanted.values() and not found.how)
    there = [(card.name, uuid) for card in planned.server.cards if (uuid := wanted[card.name]) in found.held]
    where = "; ".join(_shown(name, found.held[str(uuid)], planned) for name, uuid in there)
    enough = len(absent) < len(planned.server.cards) if planned.server.one_card else not absent
    lacks = f"not on {' and '.join(absent)}" if absent and not enough else ""
    detail = "; ".join(filter(None, [f"on {where}" if where else "", *(f"on {other}" for other in others), lacks]))
    return enough and not others, f"{detail}{found.how}"


def _first(output: str) -> str:
    return next((line.strip() for line in output.splitlines() if line.strip()), "")


def _gpus(driver: GpusFound) -> list[Gpu]:
    """Return all GPUs in the order of their addresses."""
    rows = (line.split(", ") for line in driver.listed.splitlines())
    # The driver's program writes the domain with eight digits, the kernel with four.
    found = [
        Gpu(row[0], row[1], driver.minors.get(row[0].lower()[-12:]))
        for row in rows
        if len(row) == 2 and row[1].startswith("GPU-")
    ]
    return sorted(found, key=lambda gpu: gpu.pci.upper())


def _in_wsl(driver: GpusFound) -> bool:
    return "microsoft" in driver.kernel.lower()


def _listed(pids: frozenset[str], driver: GpusFound) -> UsedGpus | None:
    """Return GPUs by the driver's list of processes; None if the list is incomplete."""
    if _in_wsl(driver) or driver.namespace != FIRST_NAMESPACE:
        return None
    held: dict[str, float | None] = {}
    clear = True
    for line in driver.processes.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 3 or whole_number(fields[0]) is None or not fields[1].startswith("GPU-"):
            # `[N/A]`, `[Insufficient Permissions]`, or a sentence instead of a list.
            clear = clear and not line.strip()
        elif fields[0] in pids:
            memory, before = parse_number(fields[2]), held.get(fields[1], 0.0)
            held[fields[1]] = None if memory is None or before is None else before + memory
    return UsedGpus(held) if held or clear else None


def _opened(devices: frozenset[str], gpus: list[Gpu], driver: GpusFound) -> UsedGpus | None:
    """Return GPUs by the devices that processes hold open; None if unknown. Only CUDA opens nvidia-uvm."""
    if _in_wsl(driver):
        held = {gpu.uuid: None for gpu in gpus} if "/dev/dxg" in devices else {}
        return UsedGpus(held, " (by its open device, which is one for all GPUs under WSL)")
    if all(gpu.minor is None for gpu in gpus):
        return None
    computes = "/dev/nvidia-uvm" in devices
    held = {gpu.uuid: None for gpu in gpus if computes and f"/dev/nvidia{gpu.minor}" in devices}
    return UsedGpus(held, " (by its open devices: the driver lists no processes here)")


def _wanted(planned: InstancePlan, gpus: list[Gpu], found: UsedGpus) -> dict[str, str | None]:
    """Return the UUID of each planned GPU; for one without an address, one that the server uses."""
    wanted = {card.name: _uuid(card, gpus) for card in planned.server.cards if card.at != "any"}
    left = [uuid for uuid in found.held if uuid not in wanted.values()]
    return wanted | {card.name: left.pop(0) if left else None for card in planned.server.cards if card.at == "any"}


def _uuid(card: GpuRef, gpus: list[Gpu]) -> str | None:
    if (place := whole_number(card.at)) is not None:
        return gpus[place].uuid if place < len(gpus) else None
    return next((gpu.uuid for gpu in gpus if card.at.upper() in (gpu.uuid.upper(), gpu.pci.upper())), None)


def _shown(name: str, held: float | None, planned: InstancePlan) -> str:
    """Return a GPU by its name, with its used and its planned memory."""
    if held is None:
        return name
    text = f"{name} with {held:,.0f} MiB"
    rooms = {room.where: room.total / (1 << 20) for room in planned.memory.holds} if planned.memory else {}
    if not (wanted := rooms.get(name)):
        return text
    off = held / wanted - 1
    note = f", which is {abs(off):.0%} {'more' if off > 0 else 'less'}" if abs(off) > MEMORY_TOLERANCE else ""
    return f"{text}, planned are {wanted:,.0f}{note}"


def check_running(planned: InstancePlan, server: ServerFound, found: VerifiedServers) -> Check:
    """Check that the server runs, and starts after a boot."""
    if planned.backend == "systemd":
        return _unit(planned, server, found)
    return _container(planned, server, found)


def _unit(planned: InstancePlan, server: ServerFound, found: VerifiedServers) -> Check:
    name, unit = f"{planned.service}.service", server.unit
    if unit is None and "systemd" in found.unknown:
        return Check("unit", False, f"systemd did not respond, so the state of {name} is unknown: run again")
    if unit is None:
        return Check("unit", False, f"{name} is unknown to systemd, not there")
    detail = f"{name} is {unit.active or 'unknown to systemd'}, {unit.enabled or 'not there'}"
    detail += f" ({unit.result})" if unit.result not in ("", "success") else ""
    strange = _not_ours(planned, unit) or "; ".join(f"{path} sets {keys} for it" for path, keys in unit.shared.items())
    right = (unit.active, unit.enabled) == ("active", "enabled") and not strange
    return Check("unit", right, f"{detail}; {strange}" if strange else detail)


def _container(planned: InstancePlan, server: ServerFound, found: VerifiedServers) -> Check:
    name, container = planned.service, server.container
    if container is None and "Docker" in found.unknown:
        return Check("container", False, f"Docker did not respond, so the state of {name} is unknown: run again")
    if container is None:
        return Check("container", False, f"there is no container {name}")
    restart, docker = container.restart or "no", found.docker_enabled or "not there"
    up = (container.status, container.health) == ("running", "healthy")
    stays = restart in {"always", "unless-stopped"} and docker == "enabled"
    detail = f"{name} is {container.status}, {container.health or 'without a health check'}"
    if up and not stays:
        detail += f", but restart is `{restart}` and docker.service {docker}"
    differ = list(container_problems(planned, container, found.images.get(planned.server.image or ""))) if up else []
    return Check("container", up and stays and not differ, "; ".join([detail, *differ]))


def _not_ours(planned: InstancePlan, unit: UnitFound) -> str:
    """Return what others wrote for a unit, and what systemd has not read yet."""
    if unit.drop_ins:
        return f"{', '.join(unit.drop_ins)} changes it, and is not declared: `herd up` sets that aside"
    if unit.file not in ("", planned.file.path):
        return f"it is defined by {unit.file}"
    return "its file has changed since systemd read it: `herd up`" if unit.needs_reload else ""


def check_process(planned: InstancePlan, server: ServerFound, found: VerifiedServers, outputs: ProbeOutputs) -> Check:
    """Check the running process itself: its program, its arguments and the spec of its start."""
    runs, manager = server.process, "systemd" if planned.backend == "systemd" else "Docker"
    if runs is None and server.unit is None and server.container is None and manager in found.unknown:
        return Check("process", False, f"{manager} did not respond, so it is unknown whether one runs: run again")
    if runs is None:
        taken = f", and port {planned.endpoint.port} is held by {server.holder}" if server.holder else ""
        return Check("process", False, f"no process runs{taken}")
    problems = []
    if runs.stopped:
        problems.append("it is stopped (SIGSTOP) and does not respond: `herd up` restarts it")
    spec = server.container.spec if server.container else runs.spec
    if spec != planned.spec:
        problems.append(f"it runs spec {spec or 'none'}, declared is {planned.spec}: `herd up`")
    # What comes before is the program, and for a pulled image whatever its entrypoint has.
    if (arguments := runs.argv[-len(planned.server.arguments) :]) != planned.server.arguments:
        differ = [f"`{value}`" for value in arguments if value not in planned.server.arguments] or ["their order"]
        problems.append(f"its arguments are not the declared ones: {' '.join(differ)}")
    if runs.account not in ("", runs.uid):
        problems.append(f"it runs as user {runs.uid}, {planned.server.user} is {runs.account}: `herd up`")
    if runs.variables:
        problems.append(f"it has other variables than the declared ones: {', '.join(runs.variables)}: `herd up`")
    if planned.build:
        built = json_object(build_manifest(planned.build, outputs).get("sha256")).get("llama-server")
        if runs.sha256 != built:
            problems.append(f"its binary (sha256 {runs.sha256[:12]}…) is not the one of {planned.build}")
    return Check("process", not problems, "; ".join(problems) or f"runs spec {planned.spec}")


def check_files(
    planned: InstancePlan, build: BuildPlan | None, plan: Plan, server: ServerFound, outputs: ProbeOutputs
) -> Check:
    """Check the files of the next start."""
    problems = []
    if build and build_manifest(build.id, outputs).get("id") != build.id:
        problems.append(f"{build.folder} holds no finished build")
    if build:
        problems += _replaced(build, outputs)
    problems += _unreadable(planned, server)
    problems += permission_problems(planned, server.owned)
    if server.file_sha256 != hashlib.sha256(planned.file.text.encode()).hexdigest():
        there = "out of date: `herd up`" if server.file_sha256 else "not there"
        problems.append(f"{planned.file.path} is {there}")
    for model in plan.models:
        stored = stored_files(model.folder, outputs)
        for file in model.files if model.folder in planned.server.folders else ():
            if file.name not in stored:
                problems.append(f"{PurePosixPath(model.folder, file.name)} is not there")
            elif file.size not in (None, stored[file.name]):
                problems.append(f"{file.name} has {stored[file.name]} bytes, but the lock contains {file.size}")
    return Check("files", not problems, "; ".join(problems) or "engine, model and definition are in place")


def _unreadable(planned: InstancePlan, server: ServerFound) -> Iterator[str]:
    """Yield files that a server's user cannot read or run."""
    for path in planned.reads:
        match server.access.get(path):
            case "absent":
                yield f"there is no {path}"
            case "closed":
                yield f"its user may not read {path}"
            case "silent":
                yield f"the disk of {path} did not respond: run again"
    if not server.runs_program:
        yield f"its user may not run {planned.server.program}"


def _replaced(build: BuildPlan, outputs: ProbeOutputs) -> list[str]:
    """Return programs that exist, and differ from the build."""
    built = json_object(build_manifest(build.id, outputs).get("sha256"))
    folder = f"{build.folder}/bin/"
    lines = outputs.get(("programs", build.id), "").split("\n")
    hashes = ((path.removeprefix(folder), sha256) for sha256, blank, path in (each.partition("  ") for each in lines))
    return [
        f"{build.folder}/bin/{name} is {'not what' if name in built else 'no part of what'} was built: `herd up`"
        for name, sha256 in hashes
        if name and built.get(name) != sha256
    ]


def installed_files(plan: Plan, found: VerifiedServers) -> Iterator[Installed]:
    """Yield images, units and projects that exist."""
    for image in plan.images:
        if (there := found.images.get(image.tag)) and there.id:
            yield Installed(f"image {image.tag} ({show_size(there.size)})", "Docker's store")
    for instance in plan.instances:
        if found.servers.get(instance.name, ServerFound()).file_sha256:
            kind = "unit" if instance.backend == "systemd" else "compose project"
            yield Installed(f"{kind} {instance.service}", instance.file.path)
