"""The state of servers that are systemd units, by their files, drop-ins and processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llamaherd.layout import KEPT, UNITS
from llamaherd.onhost.clients import query_systemctl
from llamaherd.onhost.files import as_text, resolve
from llamaherd.onhost.servers import ServingState, UnitState
from llamaherd.onhost.system import FailedError, System
from roles.serve.onhost.kept import read_version
from roles.serve.onhost.model import PlannedUnit, Probed, ServerStates
from roles.serve.onhost.processes import (
    UNIT_RECORDS,
    changed_since,
    health_url,
    last_option,
    port_number,
    process_arguments,
    process_environment,
    process_state,
    valid_pid,
)

BEFORE_OURS = (
    *("/etc/systemd/system.control", "/run/systemd/system.control"),
    *("/run/systemd/transient", "/run/systemd/generator.early"),
)
"""Folders that systemd searches for a unit before ours (systemd.unit, unit file load path)."""

UNIT_ROOTS = (
    *BEFORE_OURS,
    *("/etc/systemd/system", "/etc/systemd/system.attached", "/run/systemd/system", "/run/systemd/system.attached"),
    *("/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"),
    "/run/systemd/generator.late",
)
"""All folders that it reads units and drop-ins from."""

DECIDING = (
    "^[ \t]*(Exec[A-Za-z]*|User|Group|DynamicUser|SupplementaryGroups|Environment|EnvironmentFile|PassEnvironment"
    "|UnsetEnvironment|RootDirectory|RootImage)[ \t]*="
)
"""The keys that decide which program runs as which user. Other keys loosen a sandbox, as containers must."""
_DECIDING = re.compile(DECIDING)

_PROPERTIES = (
    *("Id", "Names", "MainPID", "ActiveState", "UnitFileState", "NeedDaemonReload", "InvocationID"),
    *("FragmentPath", "DropInPaths"),
)
_EVERY = "llama-*.service"
_NAME = re.compile(r"llama-.*\.service")
_MARK = re.compile(r"^# Written by llamaherd", re.MULTILINE)
_SPEC = "LLAMAHERD_SPEC"
"""The variable with the spec, which a unit of llamaherd sets also where its mark was edited away."""
_START = re.compile(r"^ExecStart=.* --port ([0-9]+)", re.MULTILINE)


def is_marked(text: str) -> bool:
    """Return whether llamaherd wrote this unit."""
    return _MARK.search(text) is not None


def find_other_unit(service: str, system: System) -> str:
    """Return the unit file of this name that llamaherd did not write; empty if there is none.

    A unit that llamaherd has run before is its own, whatever the file contains now.
    """
    path = f"{UNITS}/{service}.service"
    text = system.read(path) or ""
    if not text.strip() or is_marked(text) or _SPEC in text:
        return ""
    kept = f"{KEPT}/{service}"
    last = read_version(system, kept)
    return "" if system.entry(kept) and (last is None or last.kind == "unit") else path


def other_unit_error(service: str, path: str) -> FailedError:
    """Return why a unit of another program keeps a server from starting."""
    return FailedError(
        f"{service} is left as it is: {path} exists, and `herd` did not write it",
        f"give the instance another name, or disable that unit: `systemctl disable --now {service}.service && "
        f"mv {path} {path}.old`; then run `herd up` again",
    )


def foreign_files(unit: str, system: System) -> tuple[str, ...]:
    """Return the files that change this unit alone: definitions that come before ours, and drop-ins."""
    definitions = (f"{root}/{unit}" for root in BEFORE_OURS)
    found = [path for path in definitions if system.entry(path)]
    return (*found, *(path for root in UNIT_ROOTS for path in _drop_ins(f"{root}/{unit}.d", system)))


def shared_drop_ins(folders: tuple[str, ...], system: System) -> dict[str, str]:
    """Return the drop-ins in folders of these names that decide which program runs as which user, with these keys."""
    paths = (path for root in UNIT_ROOTS for name in folders for path in _drop_ins(f"{root}/{name}", system))
    keys = {path: _deciding_keys(system.read(path) or "") for path in paths}
    return {path: found for path, found in keys.items() if found}


def _drop_ins(folder: str, system: System) -> Iterator[str]:
    for name in system.names(folder):
        if name.endswith(".conf") and not name.startswith("."):
            found = resolve(f"{folder}/{name}", system)
            if found and found.kind == "file":
                yield as_text(f"{folder}/{name}")


def _deciding_keys(text: str) -> str:
    keys = (line.partition("=")[0].strip(" \t") for line in text.split("\n") if _DECIDING.search(line))
    return " ".join(dict.fromkeys(keys))


def inspect_units(planned: Sequence[PlannedUnit], system: System) -> ServerStates:
    """Return the state of all units of ours. Raise UnknownStateError where systemd does not respond."""
    found = ServerStates()
    users = _users([each.user for each in planned], system)
    by_name = {f"{each.service}.service": each for each in planned}
    for name, unit in by_name.items():
        foreign, shared = foreign_files(name, system), shared_drop_ins(unit.drop_ins, system)
        other = find_other_unit(unit.service, system)
        found.serving[unit.service] = ServingState(foreign=foreign, other_unit=other, shared=shared)
    for name, shown in _shown_units(system):
        pid = valid_pid(shown.get("MainPID", ""))
        state, address = _unit_state(name, pid, shown, system)
        if state is None:
            continue
        found.units[name.removesuffix(".service")] = state
        if state.port is not None:
            found.ports.add(state.port)
        if pid and name in by_name:
            _inspect_process(by_name[name], pid, shown, state, address, users, found, system)
    return found


def _unit_state(name: str, pid: str, shown: Mapping[str, str], system: System) -> tuple[UnitState | None, str]:
    """Return the state of a unit, and the address that its process was given; None where it is none of ours."""
    words = process_arguments(pid, system) if pid else []
    spec = ((process_environment(pid, system) or {}) if pid else {}).get(_SPEC, "")
    text = system.read(f"{UNITS}/{name}") or ""
    if not spec and not is_marked(text):
        return None, ""
    start = None if pid else _START.search(text)
    state = UnitState(
        shown.get("ActiveState", ""),
        shown.get("UnitFileState", ""),
        shown.get("NeedDaemonReload") == "yes",
        shown.get("InvocationID", ""),
        spec,
        port_number(last_option(words, "port")),
        port_number(start[1]) if start else None,
    )
    return state, last_option(words, "host")


def _inspect_process(
    unit: PlannedUnit,
    pid: str,
    shown: Mapping[str, str],
    state: UnitState,
    address: str,
    users: Mapping[str, str],
    found: ServerStates,
    system: System,
) -> None:
    """Add what the process of a planned unit is, and whether it was started with what lies there now."""
    before = found.serving[unit.service]
    # A unit is its file and its drop-ins. What others wrote for it is set aside before the next start.
    paths = re.split(" (?=/)", f"{shown.get('FragmentPath', '')} {shown.get('DropInPaths', '')}".strip())
    own = [path for path in paths if path and path not in before.foreign]
    record = f"{UNIT_RECORDS}/{unit.service}"
    process = process_state(pid, unit, users, system) if state.active == "active" else ServingState()
    found.serving[unit.service] = replace(
        process,
        changed=changed_since(record, state.run, own, unit.inputs, system),
        foreign=before.foreign,
        other_unit=before.other_unit,
        shared=before.shared,
    )
    if state.active == "active" and state.port is not None:
        found.probed.append(Probed(unit.service, pid, health_url(address, state.port, unit.health_path)))


def _users(names: Sequence[str], system: System) -> dict[str, str]:
    """Return the numbers of accounts, by name."""
    lines = system.run(["getent", "passwd", *names]).out.split("\n") if names else ()
    return {fields[0]: fields[2] for fields in (line.split(":") for line in lines) if len(fields) > 2}


def _shown_units(system: System) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield each unit once, by its name, with what systemd reports of it; nothing where it reports none."""
    files = [name for name in system.names(str(UNITS)) if _NAME.fullmatch(name)]
    done: set[str] = set()
    for block in _show([*files, _EVERY], system).split("\n\n"):
        shown = dict(line.split("=", 1) for line in block.split("\n") if "=" in line)
        main = shown.get("Id", "")
        # It may have a file under another name.
        for name in (main, *shown.get("Names", "").split()):
            if name and name not in done and (name == main or name in files):
                done.add(name)
                yield name, shown
    for name in files:
        if name not in done:
            yield name, {}


def _show(names: Sequence[str], system: System) -> str:
    """Return properties of units, each before an empty line. Units by their files, and those without one, in one call.

    A name that is no unit, as that of a template, keeps systemctl from showing those after it.
    """
    words = ("show", "-p", ",".join(_PROPERTIES))
    ended = query_systemctl(system, *words, *names)
    texts = [ended.out]
    if not ended.ok:
        texts += [query_systemctl(system, *words, each).out for each in names]
    return "\n\n".join(texts)
