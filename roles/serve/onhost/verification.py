"""Verify servers by other means than the inspection: loaded units and containers, processes, and responses.

An inspection reads files on disk. A verification reads what systemd and Docker have loaded and started, sends requests
by curl, and opens files as each server's own user. It changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from llamaherd.onhost.clients import query_systemctl
from llamaherd.onhost.files import as_text, resolve
from llamaherd.onhost.system import TIMED_OUT, Entry, System, UnknownStateError
from llamaherd.onhost.units import show_units
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.container_facts import DockerFound, find_docker
from roles.serve.onhost.drop_ins import DECIDING
from roles.serve.onhost.gpu_processes import find_gpu_processes, find_gpus
from roles.serve.onhost.listening import find_holder, find_listening
from roles.serve.onhost.requests import send_requests
from roles.serve.onhost.verified import (
    Access,
    Found,
    GpusFound,
    OwnedFile,
    PlannedServer,
    ProcessFound,
    ServerFound,
    UnitFound,
    VerifyServersInput,
)

_PROPERTIES = (
    *("ActiveState", "UnitFileState", "Result", "FragmentPath", "DropInPaths", "NeedDaemonReload", "MainPID"),
)
_DECIDING = re.compile(DECIDING)
_SPEC = "LLAMAHERD_SPEC="
_MOST_FILES, _MOST_WORDS, _MOST_NAMES = 10_000, 4096, 100
_DISK_SECONDS = 15
"""A limit that lets a sleeping disk wake up."""

Value = TypeVar("Value")


def verify(given: VerifyServersInput, system: System) -> Found:
    """Return the state of servers, queried one after another: at the same time, they would disturb measurements."""
    unknown: set[str] = set()
    no_units: dict[str, UnitFound] = {}
    units = _unless_unknown(lambda: _find_units(given, system), no_units, unknown)
    enabled = _unless_unknown(lambda: _docker_enabled(given, system), "", unknown)
    docker = _unless_unknown(lambda: find_docker(given, system), DockerFound(), unknown)
    servers = {each.name: _find_server(each, units, docker, system) for each in given.servers}
    return Found(
        # This follows the chats: after them, servers hold all the GPU memory that they need.
        servers={each.name: _with_gpus(each, servers[each.name], system) for each in given.servers},
        images=docker.images,
        docker_enabled=enabled,
        listening=find_listening(system),
        published=docker.published,
        gpus=find_gpus(system) if any(each.has_gpus for each in given.servers) else GpusFound(),
        unknown=tuple(sorted(unknown)),
    )


def _unless_unknown(find: Callable[[], Value], otherwise: Value, unknown: set[str]) -> Value:
    """Return the result; if a part of the host does not respond, add its name and return the other value."""
    try:
        return find()
    except UnknownStateError as error:
        unknown.add(error.part)
        return otherwise


def _find_units(given: VerifyServersInput, system: System) -> dict[str, UnitFound]:
    """Return units by instance, without units that systemd has not loaded."""
    shown = {
        each.name: show_units([f"{each.service}.service"], _PROPERTIES, system) for each in given.servers if each.unit
    }
    services = {each.name: each.service for each in given.servers}
    # systemd shows a unit with an alias by its own name.
    return {name: _unit(services[name], values, system) for name, by_id in shown.items() for values in by_id.values()}


def _unit(service: str, shown: Mapping[str, str], system: System) -> UnitFound:
    paths = [path for path in re.split(" (?=/)", shown.get("DropInPaths", "")) if path]
    others = [path for path in paths if f"/{service}.service.d/" not in path]
    shared = {path: keys for path in others if (keys := _deciding_keys(system.read(path) or ""))}
    return UnitFound(
        active=shown.get("ActiveState", ""),
        enabled=shown.get("UnitFileState", ""),
        result=shown.get("Result", ""),
        file=shown.get("FragmentPath", ""),
        drop_ins=tuple(path for path in paths if path not in others),
        needs_reload=shown.get("NeedDaemonReload") == "yes",
        pid="" if shown.get("MainPID") == "0" else shown.get("MainPID", ""),
        shared=shared,
    )


def _deciding_keys(text: str) -> str:
    """Return the keys of a drop-in that set the program or its user."""
    lines = [line for line in text.splitlines() if _DECIDING.match(line)]
    return " ".join(sorted({line.partition("=")[0].strip() for line in lines}))


def _docker_enabled(given: VerifyServersInput, system: System) -> str:
    """Return whether Docker starts at boot, as systemd reports it."""
    if all(each.unit for each in given.servers):
        return ""
    return query_systemctl(system, "is-enabled", "docker.service").out.strip()


def _find_server(
    planned: PlannedServer, units: Mapping[str, UnitFound], docker: DockerFound, system: System
) -> ServerFound:
    unit, container = units.get(planned.name), docker.containers.get(planned.name)
    runs = unit or container
    process = _find_process(planned, runs.pid, system) if runs and runs.pid else None
    return ServerFound(
        file_sha256=system.digest([planned.file]) if resolve(planned.file, system) else "",
        unit=unit,
        container=container,
        process=process,
        holder="" if process else find_holder(planned.port, system),
        access={path: why for path in planned.reads if (why := _access(planned.user, path, system))},
        runs_program=not planned.program or _may(planned.user, "-x", planned.program, system) != "closed",
        owned=tuple(_owned(planned.owned, system)),
        responses=send_requests(planned.name, planned.requests, system),
    )


def _find_process(planned: PlannedServer, pid: str, system: System) -> ProcessFound | None:
    """Return the process of a server: the binary that it was started from, and what it was started with."""
    words = (system.read(f"/proc/{pid}/cmdline") or "").removesuffix("\0").split("\0")
    if words == [""]:
        return None
    status = dict(
        line.split(":\t", 1) for line in (system.read(f"/proc/{pid}/status") or "").split("\n") if ":\t" in line
    )
    variables = (system.read(f"/proc/{pid}/environ") or "").split("\0")
    return ProcessFound(
        sha256=system.digest([f"/proc/{pid}/exe"]),
        spec=next((each.removeprefix(_SPEC) for each in variables if each.startswith(_SPEC)), ""),
        uid=next(iter(status.get("Uid", "").split()), ""),
        account=system.run(["id", "-u", planned.user]).out.strip() if planned.unit else "",
        stopped=status.get("State", "").startswith("T "),
        argv=tuple(words[-_MOST_WORDS:]),
        variables=_other_variables(variables, planned),
    )


def _other_variables(has: Sequence[str], planned: PlannedServer) -> tuple[str, ...]:
    """Return names of variables of a process that differ from the declared ones or are not allowed."""
    declared = {each.partition("=")[0] for each in planned.variables}
    names = {each.partition("=")[0] for each in {*planned.variables} - {*has}}
    if planned.strange_variables:
        others = {each.partition("=")[0] for each in has} - declared
        names |= {name for name in others if re.search(planned.strange_variables, name)}
    return tuple(sorted(names)[:_MOST_NAMES])


def _access(user: str, path: str, system: System) -> Access | None:
    """Return why a user cannot read a file; None if it can."""
    return "absent" if resolve(path, system) is None else _may(user, "-r", path, system)


def _may(user: str, how: str, path: str, system: System) -> Access | None:
    """Try an operation on a file as a user. Return why it fails: modes alone do not show closed folders."""
    words = ("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "test", how, path)
    code = system.run(words, seconds=_DISK_SECONDS).code
    return None if code == 0 else "silent" if code == TIMED_OUT else "closed"


def _owned(paths: Collection[str], system: System) -> Iterator[OwnedFile]:
    """Yield the owners of files and of all files in folders, without manifests of folders."""
    every = (each for path in paths for each in _below(path, system))
    for path, found in islice(every, _MOST_FILES):
        if not path.rpartition("/")[2].startswith(".manifest"):
            yield OwnedFile(as_text(path), found.kind, found.mode, found.owner)


def _below(path: str, system: System) -> Iterator[tuple[str, Entry]]:
    found = system.entry(path)
    if found:
        yield path, found
    if found and found.kind == "folder":
        yield from system.tree(path)


def _with_gpus(planned: PlannedServer, found: ServerFound, system: System) -> ServerFound:
    """Return a server with its processes on GPUs, if GPUs are planned for it."""
    runs = found.unit or found.container
    if not planned.has_gpus or runs is None:
        return found
    processes = find_gpu_processes(runs.pid, system, swaps=planned.swaps, container=not planned.unit)
    return replace(found, on_gpus=processes)


VERBS = {"verify": Verb(VerifyServersInput, verify)}
