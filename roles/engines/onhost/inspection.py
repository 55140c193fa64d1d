"""Inspect builds: the stage of each, the flags that its server lists, and the sources on this host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from llamaherd.layout import BUILDS, CACHE, WORK
from llamaherd.onhost.files import is_file
from llamaherd.onhost.system import System
from llamaherd.onhost.units import show_units
from llamaherd.onhost.verbs import Verb
from roles.engines.onhost.builds import is_intact, is_whole, stamp_of

MOST_FLAGS = 64_000
"""Bytes that are kept of a server's list of flags."""

Stage = Literal["done", "built", "building", "intact", "damaged"]
"""`done`: finished. `built`: not admitted yet. `building`: a unit builds it. `intact`: modes, owners or times have
changed, but no content. `damaged`: the content of a program has changed."""


@dataclass(frozen=True)
class BuildQuestion:
    """A build, and whether to read its flags."""

    id: str
    targets: tuple[str, ...]
    flags: bool


@dataclass(frozen=True)
class Question:
    """Builds, and the sha256s of sources that the controller sends."""

    builds: tuple[BuildQuestion, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """The state of builds and sources. Absent ones have no entry."""

    builds: Mapping[str, Stage] = field(default_factory=dict)
    """By the id of the build."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """The lists of flags that servers print, by the id of the build."""
    sources: tuple[str, ...] = ()


def inspect(given: Question, system: System) -> Found:
    """Inspect builds. Raise UnknownStateError where systemd does not respond."""
    stages = {each.id: _stage(each, system) for each in given.builds}
    units = {f"llamaherd-build-{id_}.service": id_ for id_, stage in stages.items() if stage is None}
    for unit, shown in show_units(units, ("ActiveState",), system).items():
        if unit in units and shown.get("ActiveState") in ("active", "reloading"):
            stages[units[unit]] = "building"
    flags = {each.id: _flags(each.id, system) for each in given.builds if each.flags}
    return Found(
        builds={id_: stage for id_, stage in stages.items() if stage},
        flags={id_: text for id_, text in flags.items() if text is not None},
        sources=tuple(each for each in given.sources if is_file(f"{CACHE}/sources/{each}", system)),
    )


def _stage(build: BuildQuestion, system: System) -> Stage | None:
    """Return the stage of a build; None if it is unfinished, so that a unit may be building it."""
    home = f"{BUILDS}/{build.id}"
    if is_whole(home, build.targets, system):
        if system.read(f"{home}/.stamp") == stamp_of(home, system):
            return "done"
        return "intact" if is_intact(home, system) else "damaged"
    return "built" if is_file(f"{WORK}/{build.id}/out/manifest.json", system) else None


def _flags(build: str, system: System) -> str | None:
    path = f"{BUILDS}/{build}/flags"
    text = system.read_bytes(path, MOST_FLAGS) if is_file(path, system) else None
    return None if text is None else text.decode("ascii", errors="replace")


VERBS = {"inspect": Verb(Question, inspect)}
