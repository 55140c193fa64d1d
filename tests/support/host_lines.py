"""A short notation of a host's state for tests: a line per fact, its kind and its fields, with tabs between them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from llamaherd.host.protocol import BEGIN, END
from llamaherd.onhost.document import Secret
from llamaherd.onhost.files import Disk
from llamaherd.onhost.hardware import MachineState, PciGpu, parse_gpu
from llamaherd.onhost.servers import ContainerState, Holder, Holding, Loaded, Refused, ServingState, UnitState
from llamaherd.onhost.services import ServiceState
from llamaherd.onhost.verification import FileFound, Inspected
from llamaherd.text.numbers import parse_real, parse_whole
from roles.base.onhost import FolderFound, UserFound
from roles.base.onhost import Found as BaseFound
from roles.chat_page.onhost import Found as ChatFound
from roles.chat_page.onhost import PageState
from roles.container_runtime.onhost import DaemonFound
from roles.container_runtime.onhost import Found as RuntimeFound
from roles.container_runtime.onhost import UnitFound as DockerUnit
from roles.cuda_toolkit.onhost import Found as ToolkitFound
from roles.cuda_toolkit.onhost import RoomState
from roles.engines.onhost import Found as EnginesFound
from roles.gateway.onhost import Found as GatewayFound
from roles.gateway.onhost import RunningState
from roles.gpus.onhost import Found as GpusFound
from roles.models.onhost.store import Found as ModelsFound
from roles.models.onhost.store import StoredFile, VerifiedFile
from roles.monitoring.onhost import Found as MonitoringFound
from roles.nvidia_driver.onhost import Found as DriverFound
from roles.nvidia_driver.onhost import PersistenceFound
from roles.power.onhost import Found as PowerFound
from roles.serve.onhost.model import InspectedServers as ServeFound
from roles.serve.onhost.model import UsedPort
from roles.suspend.onhost import Found as SuspendFound
from roles.virtual_address.onhost import Found as AddressFound
from roles.wake.onhost import Found as WakeFound
from roles.wsl.onhost import Found as WslFound
from roles.wsl.onhost import ScriptFound, TextFound, VirtualMachineFound

Rows = Sequence[Sequence[str]]
NO_DISK = Disk("/", 0, "", "", writable=True)
"""The disk of a store of which no line is."""


def inspected(lines: Iterable[str]) -> Inspected:
    """Return what an inspection of a host in this state returns."""
    stats: dict[str, list[str]] = {}
    files: dict[str, FileFound] = {}
    rows: dict[str, list[list[str]]] = {}
    rest: list[str] = []
    unsettled = ""
    for line in lines:
        kind, *fields = line.split("\t")
        match kind, fields:
            case "file", [path, stat]:
                stats[path] = stat.split()
            case "sum", [sha256, path]:
                mode, number, owner, written = stats[path]
                files[path] = FileFound(int(mode, 8), int(number), owner, float(written), sha256)
            case "wsl", ["release", release]:
                rows.setdefault("base.inspect", []).append(["release", release])
            case "unsettled", [why]:
                unsettled = why
            case _ if kind in OF_ROLES:
                rows.setdefault(OF_ROLES[kind], []).append([kind, *fields])
            case _:
                rest.append(line)
    parts = {verb: PARTS[verb](found) for verb, found in rows.items()}
    return Inspected(files, parts, {"a role": (BEGIN, *rest, END)} if rest else {}, unsettled=unsettled)


def _machine(rows: Rows) -> MachineState:
    found = MachineState()
    for row in rows:
        match row[1:]:
            case "kernel", running, following:
                found = replace(found, kernel=running, next_kernel=following)
            case "virtual", kind:
                found = replace(found, virtual=kind)
            case "card", address, device, name, driver:
                gpu = PciGpu(address.removeprefix("-"), device.strip("-"), name.removeprefix("-"), driver)
                found = replace(found, cards=(*found.cards, gpu))
            case "bus", devices:
                found = replace(found, bus=int(devices))
            case "secure-boot", state:
                found = replace(found, secure_boot=state == "on")
            case "mok", state:
                found = replace(found, mok=state == "enrolled")
            case "headers", kernel:
                found = replace(found, headers=(*found.headers, kernel))
            case "gcc", version:
                found = replace(found, gcc=(*found.gcc, int(version)))
            case "memory", kibibytes:
                found = replace(found, memory=int(kibibytes) * 1024)
            case "cores", cores:
                found = replace(found, cores=int(cores))
            case "boot", free:
                found = replace(found, boot_free=int(free))
            case "holder", holder:
                found = replace(found, package_holder=holder)
            case "held", package:
                found = replace(found, held=(*found.held, package))
            case ("laptop",):
                found = replace(found, laptop=True)
            case ("amx",):
                found = replace(found, amx=True)
            case ("nouveau",):
                found = replace(found, nouveau=True)
            case other:
                raise ValueError(other)
    return found


def _base(rows: Rows) -> BaseFound:
    found = BaseFound(machine=_machine([row for row in rows if row[0] == "machine"]))
    for row in rows:
        match row:
            case "os", value:
                found = replace(found, os=value)
            case "arch", value:
                found = replace(found, arch=value)
            case "fetcher", value:
                found = replace(found, fetcher=value)
            case "systemd", _:
                found = replace(found, systemd=True)
            case "release", release:
                found = replace(found, wsl=release)
            case "free", folder, size, device:
                found = replace(found, disk=Disk(folder, int(size), device, "ext4", writable=True))
            case "address", address:
                found = replace(found, addresses=(*found.addresses, address))
            case "listens", port:
                found = replace(found, listening=(*found.listening, int(port, 16)))
            case "folder", path, mode, owner:
                found = replace(found, folders={**found.folders, path: FolderFound(int(mode, 8) & 0o777, owner)})
            case "package", name, status:
                found = replace(found, packages=(*found.packages, *([name] if status == "installed" else [])))
            case "user", name, shell, groups:
                found = replace(found, users={**found.users, name: UserFound(shell, tuple(groups.split()))})
            case "twin", name, other:
                found = replace(found, twins={**found.twins, name: other})
            case "password", name:
                found = replace(found, passwords=(*found.passwords, name))
            case "repository", name, path:
                found = replace(found, repositories={**found.repositories, name: path})
            case "machine", *_:
                pass
            case other:
                raise ValueError(other)
    return found


def _wsl(rows: Rows) -> WslFound:
    found = WslFound()
    for row in rows:
        match row[1:]:
            case "profile", path, disk:
                found = replace(found, profiles={**found.profiles, path: disk == "yes"})
            case "file", path, written, content:
                base64.b64decode(content, validate=True)
                found = replace(found, files={**found.files, path: TextFound(float(written), content)})
            case "script", path, sha256, applied:
                found = replace(found, scripts={**found.scripts, path: ScriptFound(sha256, applied.lower())})
            case "machine", started, memory, processors:
                machine = VirtualMachineFound(float(started), int(memory) * 1024, int(processors))
                found = replace(found, machine=machine)
            case other:
                raise ValueError(other)
    return found


def _gpus(rows: Rows) -> GpusFound:
    gpus = tuple(parse_gpu(row[1]) for row in rows if row[0] == "card")
    return GpusFound(gpus, next((row[1] for row in rows if row[0] == "driver"), ""))


def service(active: str, enabled: str, needs_reload: str, spec: str) -> ServiceState:
    """Return a service by its fields."""
    return ServiceState(active, enabled, needs_reload == "yes", spec)


def _gateway(rows: Rows) -> GatewayFound:
    found = GatewayFound()
    for row in rows:
        match row[1:]:
            case "unit", *fields:
                found = replace(found, unit=service(*fields))
            case "running", read, maps:
                spec, _, port = read.partition("/")
                found = replace(found, running=RunningState(spec, int(port) if port else None, maps == "same"))
            case ("idle-own",):
                found = replace(found, idle_own=True)
            case other:
                raise ValueError(other)
    return found


def _address(rows: Rows) -> AddressFound:
    (row,) = rows
    return AddressFound(service(*row[1:]))


def _chat(rows: Rows) -> ChatFound:
    found = ChatFound()
    for row in rows:
        match row[1:]:
            case ("there",):
                found = replace(found, there=True)
            case ("untried",):
                found = replace(found, untried=True)
            case ("unsigned",):
                found = replace(found, unsigned=True)
            case "container", status, health, spec, port:
                found = replace(found, page=PageState(status, health, spec, int(port)))
            case other:
                raise ValueError(other)
    return found


def _monitoring(rows: Rows) -> MonitoringFound:
    found = MonitoringFound()
    for row in rows:
        match row[1:]:
            case "unit", name, *fields:
                found = replace(found, units={**found.units, name: service(*fields)})
            case "read", spec:
                found = replace(found, read=spec)
            case "idle", package:
                found = replace(found, idle=(*found.idle, package))
            case other:
                raise ValueError(other)
    return found


def _serve(rows: Rows) -> ServeFound:
    units: dict[str, UnitState] = {}
    containers: dict[str, ContainerState] = {}
    serving: dict[str, ServingState] = {}
    lists: dict[str, list[Any]] = {}
    names = {"project": "projects", "image": "images", "off-cards": "off_gpus", "key-file": "keys", "closed": "closed"}
    cut_off = ""
    for row in rows:
        match row:
            case "unit", name, active, enabled, reload, run, spec, port, waits:
                ports = (parse_whole(each) if each else None for each in (port, waits))
                units[name] = UnitState(active, enabled, reload == "yes", run, spec, *ports)
            case "container", name, status, health, run, spec, port, limits:
                number = parse_whole(port) if port else None
                state = ContainerState(status, health, run, spec, number, read_limits(limits))
                containers[name.lstrip("/")] = state
            case "serving", name, what, *values:
                serving[name] = _serving(serving.get(name, ServingState()), what, values)
            case "holder", port, pid, program, container:
                held = UsedPort(parse_whole(port), "", Holder(parse_whole(pid), program, container))
                lists.setdefault("ports", []).append(held)
            case "own-port", port, unit:
                lists.setdefault("ports", []).append(UsedPort(parse_whole(port), unit, Holder(0, "", "")))
            case "exchange", text:
                cut_off = text
            case kind, value:
                lists.setdefault(names[kind], []).append(value)
            case other:
                raise ValueError(other)
    tuples = {name: tuple(values) for name, values in lists.items()}
    return ServeFound(units=units, containers=containers, serving=serving, cut_off=cut_off, **tuples)


def read_limits(text: str) -> dict[str, str]:
    """Return the limits of a container by its line, those that are set."""
    pairs = dict(word.split("=", 1) for word in text.split(" ")) if text else {}
    return {name: value for name, value in pairs.items() if value not in ("", "null", "0", "-1", "<nil>")}


def _serving(before: ServingState, what: str, values: Sequence[str]) -> ServingState:
    """Return what is known of a server with one more fact."""
    match what, values:
        case "changed", [_, path]:
            return replace(before, changed=(*before.changed, path))
        case (("foreign" | "untried"), [value]):
            several: dict[str, Any] = {what: (*getattr(before, what), value)}
            return replace(before, **several)
        case "shared", [path, keys]:
            return replace(before, shared={**before.shared, path: keys})
        case (("argv" | "replaced" | "user" | "groups" | "hangs"), [value]):
            one: dict[str, Any] = {what: value}
            return replace(before, **one)
        case "variables", [names, given]:
            return replace(before, variables=names, given_to_all=given.strip())
        case "beside", []:
            return replace(before, beside=True)
        case "refused", [tried, when, why]:
            return replace(before, refused=Refused(tried, when, why))
        case "loaded", [milliseconds, *folders]:
            return replace(before, loaded=Loaded(parse_whole(milliseconds) / 1000, tuple(folders)))
        case "holding", [spec, *room]:
            pairs = (each.rpartition("=") for each in room)
            return replace(before, holding=Holding(spec, {where: parse_whole(size) for where, _, size in pairs}))
    raise ValueError(what)


def _driver(rows: Rows) -> DriverFound:
    found = DriverFound()
    for row in rows:
        match row[1:]:
            case "package", name, version, status:
                installed = {name: version} if status == "installed" else {}
                found = replace(found, packages={**found.packages, **installed})
            case "origin", name, source:
                sources = tuple(sorted({*found.origins.get(name, ()), source}))
                found = replace(found, origins={**found.origins, name: sources})
            case "loaded", version:
                found = replace(found, loaded=version)
            case ("uvm",):
                found = replace(found, uvm=True)
            case "disk", kernel, version:
                found = replace(found, disk={**found.disk, kernel: version})
            case "library", version:
                found = replace(found, library=version)
            case "says", problem:
                found = replace(found, problem=problem)
            case ("run",):
                found = replace(found, runfile=True)
            case "persistence", active, enabled:
                found = replace(found, persistence=PersistenceFound(active, enabled))
            case "component", name:
                found = replace(found, components=(*found.components, name))
            case "free", size:
                found = replace(found, free=int(size))
            case "tried", note:
                found = replace(found, tried=note)
            case "kept", version:
                found = replace(found, kept=version)
            case ("judging",):
                found = replace(found, judging=True)
            case "refused", *fields:
                found = replace(found, refused=tuple(fields))
            case other:
                raise ValueError(other)
    return found


def _engines(rows: Rows) -> EnginesFound:
    found = EnginesFound()
    for row in rows:
        match row:
            case "build", build, ("done" | "built" | "building" | "intact" | "damaged") as stage:
                found = replace(found, builds={**found.builds, build: stage})
            case "flags", build, text:
                found = replace(found, flags={**found.flags, build: base64.b64decode(text).decode()})
            case "source", sha256:
                found = replace(found, sources=(*found.sources, sha256))
            case other:
                raise ValueError(other)
    return found


def _models(rows: Rows) -> ModelsFound:
    found = ModelsFound(NO_DISK)
    for row in rows:
        match row:
            case "store", folder, size, device, kind, ("rw" | "ro") as access:
                found = replace(found, store=Disk(folder, parse_whole(size), device, kind, access == "rw"))
            case "verified", folder, size, written, sha256, name:
                verified = VerifiedFile(name, parse_whole(size), parse_real(written), sha256)
                files = (*found.verified.get(folder, ()), verified)
                found = replace(found, verified={**found.verified, folder: files})
            case "stored", folder, size, written, name:
                stored = (*found.stored.get(folder, ()), StoredFile(name, parse_whole(size), parse_real(written)))
                found = replace(found, stored={**found.stored, folder: stored})
            case "incoming", name, size, blocks:
                there = min(parse_whole(size), parse_whole(blocks) * 512)
                found = replace(found, incoming={**found.incoming, name: there})
            case "kept", folder, size:
                found = replace(found, kept={**found.kept, folder: parse_whole(size)})
            case "fetch", job:
                found = replace(found, fetch=job)
            case other:
                raise ValueError(other)
    return found


def _runtime(rows: Rows) -> RuntimeFound:
    found = RuntimeFound()
    running: tuple[str, ...] = ()
    for row in rows:
        match row[1:]:
            case ("armed",):
                found = replace(found, armed=True)
            case ("snap",):
                found = replace(found, is_snap=True)
            case ("package", name, version) | ("toolkit", name, version, "installed"):
                found = replace(found, packages={**found.packages, name: version})
            case "toolkit", _, _, _:
                pass
            case "compose", version:
                found = replace(found, compose=version)
            case "info", text:
                info = json.loads(text)
                lives, cdi = bool(info.get("LiveRestoreEnabled")), bool(info.get("CDISpecDirs"))
                runtimes = tuple(info.get("Runtimes") or ())
                found = replace(found, daemon=DaemonFound(str(info["ServerVersion"]), lives, runtimes, cdi))
            case "silent", version:
                found = replace(found, program=version)
            case "unit", name, load, active, enabled, needs:
                unit = DockerUnit(load, active, enabled, tuple(needs.split()))
                found = replace(found, units={**found.units, name: unit})
            case "running", name:
                running = (*running, name)
            case "settings", _, content:
                found = replace(found, settings=Secret(content))
            case "refresh", unit, enabled:
                found = replace(found, refresh={**found.refresh, unit: enabled})
            case "device", name:
                found = replace(found, devices=(*found.devices, name))
            case other:
                raise ValueError(other)
    return replace(found, daemon=replace(found.daemon, running=running)) if found.daemon else found


def _toolkit(rows: Rows) -> ToolkitFound:
    found = ToolkitFound()
    for row in rows:
        match row:
            case "toolkit", version:
                found = replace(found, version=version)
            case "room", folder, size, device, begun:
                found = replace(found, room=RoomState(folder, parse_whole(size), device, parse_whole(begun)))
            case other:
                raise ValueError(other)
    return found


def _power(rows: Rows) -> PowerFound:
    found = PowerFound()
    for row in rows:
        match row:
            case "power", active, enabled, needs_reload:
                found = replace(found, unit=ServiceState(active, enabled, needs_reload == "yes", ""))
            case "held", uuid, *words:
                found = replace(found, held={**found.held, uuid: tuple(words)})
            case other:
                raise ValueError(other)
    return found


def _suspend(rows: Rows) -> SuspendFound:
    found = SuspendFound()
    for row in rows:
        match row:
            case "suspend", state:
                found = SuspendFound(state)
            case other:
                raise ValueError(other)
    return found


def _wake(rows: Rows) -> WakeFound:
    found = WakeFound()
    for row in rows:
        match row:
            case "wake", state:
                found = WakeFound(state)
            case other:
                raise ValueError(other)
    return found


PARTS: dict[str, Callable[[Rows], Any]] = {
    "engines.inspect": _engines,
    "models.store.inspect": _models,
    "container_runtime.inspect": _runtime,
    "cuda_toolkit.inspect": _toolkit,
    "power.inspect": _power,
    "serve.inspection.inspect": _serve,
    "base.inspect": _base,
    "wsl.inspect": _wsl,
    "gpus.inspect": _gpus,
    "nvidia_driver.inspect": _driver,
    "gateway.inspect": _gateway,
    "virtual_address.inspect": _address,
    "wake.inspect": _wake,
    "suspend.inspect": _suspend,
    "chat_page.inspect": _chat,
    "monitoring.inspect": _monitoring,
}
_KINDS = {
    "serve.inspection.inspect": (
        *("unit", "container", "serving", "holder", "own-port", "exchange", "project", "image", "off-cards"),
        *("key-file", "closed"),
    ),
    "base.inspect": (
        *("os", "arch", "fetcher", "systemd", "free", "address", "listens", "folder", "package", "user"),
        *("twin", "password", "repository", "machine"),
    ),
    "wsl.inspect": ("wsl",),
    "gpus.inspect": ("card", "driver"),
    "nvidia_driver.inspect": ("nvidia",),
    "gateway.inspect": ("gateway",),
    "virtual_address.inspect": ("virtual-address",),
    "wake.inspect": ("wake",),
    "suspend.inspect": ("suspend",),
    "chat_page.inspect": ("chat",),
    "monitoring.inspect": ("monitoring",),
    "engines.inspect": ("build", "flags", "source"),
    "models.store.inspect": ("store", "verified", "stored", "incoming", "kept", "fetch"),
    "container_runtime.inspect": ("docker",),
    "cuda_toolkit.inspect": ("toolkit", "room"),
    "power.inspect": ("power", "held"),
}
OF_ROLES = {kind: verb for verb, kinds in _KINDS.items() for kind in kinds}
"""The verb that inspects what a kind of line is about."""
