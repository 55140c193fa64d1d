"""A short notation of a host's state for tests: a line per fact, its kind and its fields, with tabs between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from llamaherd.host.limits import read_limits
from llamaherd.host.protocol import BEGIN, END
from llamaherd.onhost.inspection import FileFound, Inspected
from llamaherd.onhost.serving import ContainerState, Holder, Holding, Loaded, Refused, ServingState, UnitState
from llamaherd.text.numbers import parse_whole
from roles.serve.onhost.inspected import Found as ServeFound
from roles.serve.onhost.inspected import HeldPort


def inspected(lines: Iterable[str]) -> Inspected:
    """Return what an inspection of a host in this state returns."""
    stats: dict[str, list[str]] = {}
    files: dict[str, FileFound] = {}
    rest: list[str] = []
    for line in lines:
        match line.split("\t"):
            case "file", path, stat:
                stats[path] = stat.split()
            case "sum", sha256, path:
                mode, number, owner, written = stats[path]
                files[path] = FileFound(int(mode, 8), int(number), owner, float(written), sha256)
            case _:
                rest.append(line)
    parts = {"serve.inspection.inspect": _serve(rest)}
    return Inspected(files, parts, lines=(BEGIN, *rest, END))


def _take(rest: list[str], known: Callable[[str, Sequence[str]], bool]) -> None:
    """Remove the lines that a role knows, which takes them in. A line that it cannot read stays."""

    def is_known(line: str) -> bool:
        kind, *fields = line.split("\t")
        try:
            return known(kind, fields)
        except ValueError:
            return False

    rest[:] = [line for line in rest if not is_known(line)]


def _serve(rest: list[str]) -> ServeFound:
    found: dict[str, Any] = {"units": {}, "containers": {}, "serving": {}}
    several: dict[str, list[Any]] = {}

    def known(kind: str, fields: Sequence[str]) -> bool:
        match kind, fields:
            case "unit", [name, active, enabled, reload, run, spec, port, waits]:
                ports = (parse_whole(each) if each else None for each in (port, waits))
                found["units"][name] = UnitState(active, enabled, reload == "yes", run, spec, *ports)
            case "container", [name, status, health, run, spec, port, limits]:
                number = parse_whole(port) if port else None
                state = ContainerState(status, health, run, spec, number, read_limits(limits))
                found["containers"][name.lstrip("/")] = state
            case "serving", [name, what, *values]:
                before = found["serving"].get(name, ServingState())
                found["serving"][name] = _serving(before, what, values)
            case "holder", [port, pid, program, container]:
                held = HeldPort(parse_whole(port), "", Holder(parse_whole(pid), program, container))
                several.setdefault("ports", []).append(held)
            case "own-port", [port, unit]:
                several.setdefault("ports", []).append(HeldPort(parse_whole(port), unit, Holder(0, "", "")))
            case (("project" | "image" | "off-cards" | "closed" | "key-file"), [name]):
                names = {"project": "projects", "image": "images", "off-cards": "off_gpus", "key-file": "keys"}
                several.setdefault(names.get(kind, kind), []).append(name)
            case "exchange", [names]:
                found["cut_off"] = names
            case _:
                return False
        return True

    _take(rest, known)
    return ServeFound(**found, **{name: tuple(values) for name, values in several.items()})


def _serving(before: ServingState, what: str, values: Sequence[str]) -> ServingState:
    """Return what is known of a server with one more fact. Raise ValueError where it is none."""
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
