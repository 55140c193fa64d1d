"""What lies on a host beside models: builds, images, preset files, caches; who needs it, and what can go. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from llamaherd.host.protocol import take_facts
from llamaherd.layout import BUILDS, PRESETS
from llamaherd.plan import Plan
from llamaherd.text.numbers import parse_whole

Kind = Literal["build", "image", "preset", "source", "work", "packages"]
"""Finished builds, images of them, what servers of groups read, sources as they were sent, what builds left behind, and
packages as they came."""


_FOLDERS: dict[Kind, str] = {"build": str(BUILDS), "preset": str(PRESETS)}
"""Who is given all of a folder may use anything in it."""

_KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}


@dataclass(frozen=True)
class Thing:
    """Something that could go, and who needs it: `plan`, or as `unit llama-chat.service` and `release 12`.

    `size` is in bytes; what images share is counted in each.
    """

    kind: Kind
    name: str
    size: int
    needed_by: tuple[str, ...]

    @property
    def what(self) -> str:
        """What it is called: `build llama.cpp-66ca571ae125`."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Things:
    """All of that on one rig. `building`: something is built just now."""

    rig: str
    things: tuple[Thing, ...]
    building: bool = False

    @property
    def removals(self) -> tuple[Thing, ...]:
        """What nobody needs; what builds work with stays as long as one does."""
        return tuple(
            each
            for each in self.things
            if each.size and not each.needed_by and not (self.building and each.kind in ("source", "work"))
        )

    @property
    def frees(self) -> int:
        """Bytes that come free if all goes that can: no more than these."""
        return sum(each.size for each in self.removals)

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {
            "rig": self.rig,
            "things": [asdict(each) for each in self.things],
            "removals": [each.what for each in self.removals],
            "frees": self.frees,
        }


@dataclass
class _Said:
    """What a host said, before anything is judged."""

    things: list[tuple[Kind, str, int]] = field(default_factory=list)
    needs: list[tuple[str, str]] = field(default_factory=list)
    building: bool = False

    def take(self, kind: str, fields: list[str]) -> bool:
        """Take in one fact; whether it is one. Raises ValueError where it is none."""
        match kind, fields:
            case "thing", [what, name, size]:
                self.things.append((_KINDS[what], name, parse_whole(size or "0")))
            case "need", [who, name, thing]:
                self.needs.append((f"{who} {name}", thing))
            case "building", []:
                self.building = True
            case _:
                return False
        return True


def things_of(plan: Plan, lines: Iterable[str]) -> Things:
    """What the host said, judged by its plan. Raises UnaskedError for what it cannot have said."""
    said = _Said()
    take_facts(lines, said.take)
    planned = _planned(plan)
    things = tuple(
        Thing(kind, name, size, (*(("plan",) if name in planned[kind] else ()), *_needing(kind, name, said.needs)))
        for kind, name, size in said.things
    )
    return Things(plan.rig, things, said.building)


def _planned(plan: Plan) -> dict[Kind, frozenset[str]]:
    """What the plan wants, by kind. An image goes with the one that it is made from."""
    builds = frozenset(build.id for build in plan.builds)
    return {
        "build": builds,
        "image": frozenset(name for image in plan.images for name in (image.tag, image.base)),
        "preset": frozenset(PurePosixPath(each.preset.path).name for each in plan.instances if each.preset),
        "source": frozenset(build.source.sha256 for build in plan.builds if build.source.sha256),
        "work": builds,
        "packages": frozenset(),
    }


def _needing(kind: Kind, name: str, needs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Who needs it. Something may follow a name, and who may use every build needs the folder of them."""
    if kind not in ("build", "image", "preset"):
        return ()
    found = (who for who, thing in needs if thing.startswith(name) or thing == _FOLDERS.get(kind))
    return tuple(dict.fromkeys(found))
