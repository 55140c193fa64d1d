"""Inspect all that serves on a host, and what decides whether it serves as planned. Changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

from llamaherd.layout import BESIDE_UNITS, EXCHANGE, KEPT, KEYS, PROJECTS, REFUSED
from llamaherd.onhost.clients import query_systemctl
from llamaherd.onhost.files import as_text, resolve
from llamaherd.onhost.serving import Holding, Loaded, Refused, ServingState
from llamaherd.onhost.system import TIMED_OUT, System, UnknownStateError
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.containers import inspect_containers
from roles.serve.onhost.hangs import find_hangs
from roles.serve.onhost.inspected import Found, Question
from roles.serve.onhost.ports import inspect_ports
from roles.serve.onhost.probes import Probes, RealProbes
from roles.serve.onhost.units import inspect_units

_AT_ONCE = 3
_FIND_SECONDS = 15
"""A disk that wakes up takes a while."""
_KEY_NAME = re.compile("[a-z0-9._-]+")
_NUMBER = re.compile("[0-9]{1,18}")
_BESIDE = re.compile(r"llamaherd-beside-(.*)\.service")
_AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


def inspect(given: Question, system: System) -> Found:
    """Inspect the servers of a host. Raise UnknownStateError where systemd or Docker do not respond."""
    return inspect_servers(given, system, RealProbes())


def inspect_servers(given: Question, system: System, probes: Probes) -> Found:
    """Inspect the servers of a host. Units, containers and files wait for other programs, so each has a thread."""
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
        return Found(
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


def find_closed(given: Question, system: System) -> tuple[str, ...]:
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
    ended = system.run([*_AS_NOBODY, "find", *words], seconds=_FIND_SECONDS)
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
    beside = {f"llama-{found[1]}" for each in system.names(str(BESIDE_UNITS)) if (found := _BESIDE.fullmatch(each))}
    kept = {*_named(str(KEPT), "folder", system)}
    for name in sorted(refused.keys() | beside | kept):
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


VERBS = {"inspect": Verb(Question, inspect)}
