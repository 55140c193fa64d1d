"""Inspect the servers of a host: units, containers, holders of ports, and records of earlier runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

from llamaherd.layout import EXCHANGE, KEPT, KEYS, PAUSED, PROJECTS, REFUSED, RUNTIME_UNITS, UNITS
from llamaherd.onhost.clients import query_docker, query_systemctl
from llamaherd.onhost.files import as_text, resolve
from llamaherd.onhost.server_control import left_of
from llamaherd.onhost.servers import Holder, Holding, Loaded, Refused, ServingState
from llamaherd.onhost.system import TIMED_OUT, System, UnknownStateError
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.containers import PROBES, Probes, inspect_containers
from roles.serve.onhost.model import InspectedServers, InspectServersInput, Probed, UsedPort
from roles.serve.onhost.processes import listening_sockets, process_environment, socket_owners
from roles.serve.onhost.units import inspect_units, is_marked

STOPPED = "its process is stopped (SIGSTOP)"
SILENT = "it does not respond, and does nothing"
_FIRST_SECONDS = 1
_MORE_SECONDS = (4, 2)
_PAUSE = 0.5
_IDLE_TICKS = 2
"""Processor time that a process may take while it does nothing."""
_PROBES_AT_ONCE = 32

_UNIT = re.compile(r".*/(llama-[^/]*)\.service")
_CONTAINER = re.compile("[0-9a-f]{64}")
_PROXY = "docker-proxy"
_AT_ONCE = 3

_FIND_SECONDS = 15
"""A disk that wakes up takes a while."""

_KEY_NAME = re.compile("[a-z0-9._-]+")
_NUMBER = re.compile("[0-9]{1,18}")
_CANDIDATE_UNIT = re.compile(r"llamaherd-beside-(.*)\.service")
_UNPRIVILEGED = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


def find_hangs(servers: Sequence[Probed], system: System, probes: Probes) -> dict[str, str]:
    """Return why servers hang, by service, for those that do. All are probed side by side."""
    if not servers:
        return {}
    with ThreadPoolExecutor(min(len(servers), _PROBES_AT_ONCE)) as pool:
        reasons = pool.map(lambda each: hangs(each, system, probes), servers)
        return {each.service: why for each, why in zip(servers, reasons, strict=True) if why}


def hangs(server: Probed, system: System, probes: Probes) -> str:
    """Return why a server surely hangs; empty where it does not. A server that computes may respond late."""
    if _stat(f"/proc/{server.pid}", system)[:1] == ["T"]:
        return STOPPED
    if probes.responds(server.url, _FIRST_SECONDS):
        return ""
    before = _progress(server.pid, system)
    for seconds in _MORE_SECONDS:
        if probes.responds(server.url, seconds):
            return ""
        system.sleep(_PAUSE)
    after = _progress(server.pid, system)
    if before is None or after is None or _waits(server.pid, system):
        return ""
    return SILENT if after[0] == before[0] and after[1] - before[1] <= _IDLE_TICKS else ""


def _stat(folder: str, system: System) -> list[str]:
    """Return the words of a process's or thread's `stat` after its name, which may contain blanks."""
    return (system.read(f"{folder}/stat") or "").rpartition(") ")[2].split()


def _progress(pid: str, system: System) -> tuple[int, int] | None:
    """Return how much a process has done: pages read from disk, and ticks of processors. None where it has ended."""
    words = _stat(f"/proc/{pid}", system)
    return (int(words[9]), int(words[11]) + int(words[12])) if len(words) > 12 else None


def _waits(pid: str, system: System) -> bool:
    """Return whether a thread waits for a processor or for a disk, which others may have."""
    threads = (_stat(f"/proc/{pid}/task/{each}", system) for each in system.names(f"/proc/{pid}/task"))
    return any(words[:1] in (["R"], ["D"]) for words in threads)


def inspect_ports(ports: Iterable[int], ours: Collection[int], system: System, *, docker: bool) -> list[UsedPort]:
    """Return the processes that hold ports, without those of our servers. `docker`: whether it responds.

    Raise UnknownStateError where that may be a container of ours.
    """
    wanted = set(ports) - set(ours)
    listening = [each for each in listening_sockets(system) if each.port in wanted]
    pids = socket_owners({each.inode for each in listening}, system)
    held = {(each.port, pids[each.inode]) for each in listening if each.inode in pids}
    return [_held(port, pid, system, docker=docker) for port, pid in sorted(held)]


def _held(port: int, pid: int, system: System, *, docker: bool) -> UsedPort:
    groups = system.read(f"/proc/{pid}/cgroup") or ""
    program = (system.read(f"/proc/{pid}/comm") or "").strip("\n").replace("\t", "")
    unit = _own_unit(groups, pid, system)
    if unit:
        return UsedPort(port, unit, Holder(pid, program, ""))
    inside = _CONTAINER.search(groups)
    container = ""
    if docker:
        container = _container(port, inside[0] if inside else "", system)
    elif program.startswith(_PROXY) or (inside and re.search(f"docker[-/]{inside[0]}", groups)):
        # It may be one of ours, which only Docker reports.
        raise UnknownStateError("Docker")
    return UsedPort(port, "", Holder(pid, program, container))


def _own_unit(groups: str, pid: int, system: System) -> str:
    """Return the unit of ours whose control group a process is in."""
    found = _UNIT.search(groups)
    if not found:
        return ""
    text = system.read(f"{UNITS}/{found[1]}.service") or ""
    return found[1] if is_marked(text) or "LLAMAHERD_SPEC" in (process_environment(str(pid), system) or {}) else ""


def _container(port: int, inside: str, system: System) -> str:
    """Return the name of the container that a port is of: by the process in it, or as one that publishes it."""
    if inside:
        ended = query_docker(system, "inspect", "--type", "container", "--format", "{{.Name}}", inside)
    else:
        ended = query_docker(system, "ps", "--filter", f"publish={port}", "--format", "{{.Names}}")
    return ended.out.partition("\n")[0].lstrip("/")


def inspect(given: InspectServersInput, system: System, probes: Probes = PROBES) -> InspectedServers:
    """Inspect the servers of a host. Raise UnknownStateError where systemd or Docker do not respond."""
    # Units, containers and files wait for other programs, so each has a thread.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        closed = pool.submit(find_closed, given, system)
        in_docker = pool.submit(inspect_containers, given, system, probes)
        units = inspect_units(given.units, system)
        containers = in_docker.result()
        hung = pool.submit(find_hangs, [*units.probed, *containers.probed], system, probes)
        ports = inspect_ports(given.ports, units.ports | containers.ports, system, docker=containers.docker)
        serving = dict(_records(system))
        hangs = {name: ServingState(hangs=why) for name, why in hung.result().items()}
        for found in (units.serving, containers.serving, hangs):
            for name, state in found.items():
                serving[name] = _together(serving.get(name, ServingState()), state)
        return InspectedServers(
            units=units.units,
            containers=containers.containers,
            serving={name: state for name, state in _with_given(serving, system).items() if state != ServingState()},
            images=tuple(containers.images),
            off_gpus=tuple(containers.off_gpus),
            closed=closed.result(),
            projects=tuple(_named(str(PROJECTS), "folder", system)),
            keys=tuple(name for name in _named(str(KEYS), "file", system) if _KEY_NAME.fullmatch(name)),
            ports=tuple(ports),
            cut_off=_cut_off(system),
        )


def _together(one: ServingState, other: ServingState) -> ServingState:
    """Return the two in one. Each comes from another source and has other fields."""
    found = {each.name: getattr(other, each.name) for each in fields(other)}
    return replace(one, **{name: value for name, value in found.items() if value})


def _with_given(serving: Mapping[str, ServingState], system: System) -> dict[str, ServingState]:
    """Return states with the variables among those of their processes that systemd gives to all units."""
    if not any(each.variables for each in serving.values()):
        return dict(serving)
    lines = query_systemctl(system, "show-environment").out.split("\n")
    given = {line.partition("=")[0] for line in lines}
    return {
        name: replace(each, given_to_all=" ".join(word for word in each.variables.split() if word in given))
        for name, each in serving.items()
    }


def find_closed(given: InspectServersInput, system: System) -> tuple[str, ...]:
    """Return what a user without any rights may not read: each server is a user of its own."""
    stores = [path for path in given.stores if (found := resolve(path, system)) and found.kind == "folder"]
    paths = [*given.reads, *stores]
    if not paths:
        return ()
    # The folder / comes along: where it is not found, this could not be tried at all.
    readable = ("-readable", "(", "!", "-type", "d", "-o", "-executable", ")", "-print0")
    opened = _find(["-H", "/", *paths, "-maxdepth", "0", *readable], system)
    if "/" not in opened:
        return ()
    closed = [path for path in paths if path not in opened and resolve(path, system)]
    folders = [path for path in stores if path in opened]
    if folders:
        # What belongs to somebody else is no file of the store, and comes again.
        inner = ("!", "-name", ".manifest", "!", "-readable", "(", "-type", "d", "-o", "-type", "f", "-user", "0", ")")
        closed += [path for path in _find([*folders, *inner, "-print0"], system) if path and system.entry(path)]
    return tuple(closed)


def _find(words: Sequence[str], system: System) -> list[str]:
    """Return what `find` prints to a user without any rights. Raise UnknownStateError where a disk does not respond."""
    ended = system.run([*_UNPRIVILEGED, "find", *words], seconds=_FIND_SECONDS)
    if ended.code == TIMED_OUT:
        raise UnknownStateError("the disk with models")
    return ended.out.split("\0")


def _named(folder: str, kind: str, system: System) -> Iterator[str]:
    for name in system.names(folder):
        found = None if name.startswith(".") else resolve(f"{folder}/{name}", system)
        if found and found.kind == kind:
            yield as_text(name)


def _cut_off(system: System) -> str:
    way_back = system.entry(f"{EXCHANGE}/back")
    return (system.read(f"{EXCHANGE}/members") or "").strip() if way_back and way_back.size else ""


def _records(system: System) -> Iterator[tuple[str, ServingState]]:
    """Yield what runs have recorded of servers, by service."""
    refused = {name: _refused(system.read(f"{REFUSED}/{name}") or "") for name in _named(str(REFUSED), "file", system)}
    beside = {
        f"llama-{found[1]}" for each in system.names(str(RUNTIME_UNITS)) if (found := _CANDIDATE_UNIT.fullmatch(each))
    }
    kept = {*_named(str(KEPT), "folder", system)}
    paused = {*_named(str(PAUSED), "folder", system)}
    for name in sorted(refused.keys() | beside | kept | paused):
        folder = f"{KEPT}/{name}"
        untried = (system.read(f"{folder}/untried") or "").split("\n")
        yield (
            name,
            ServingState(
                refused=refused.get(name),
                beside=name in beside,
                untried=tuple(sorted({spec for spec in untried if spec})),
                loaded=_loaded(_first_line(f"{folder}/last/loaded", system)),
                holding=_holding(_first_line(f"{folder}/last/holds", system)),
                pause_left=left_of(name, system) if name in paused else None,
            ),
        )


def _first_line(path: str, system: System) -> str:
    return (system.read(path) or "").partition("\n")[0]


def _refused(text: str) -> Refused | None:
    """Return an attempt that was rolled back: its identity, when and why, with tabs between them."""
    tried, when, why = [*text.partition("\n")[0].split("\t", 2), "", ""][:3]
    return Refused(tried, when, why) if tried else None


def _loaded(line: str) -> Loaded | None:
    milliseconds, *folders = line.split("\t")
    return Loaded(int(milliseconds) / 1000, tuple(folders)) if _NUMBER.fullmatch(milliseconds) else None


def _holding(line: str) -> Holding | None:
    spec, *places = line.split("\t")
    pairs = [each.rpartition("=") for each in places]
    room = {where: int(size) for where, _, size in pairs if _NUMBER.fullmatch(size)}
    return Holding(spec, room) if spec else None


VERBS = {"inspect": Verb(InspectServersInput, inspect)}
