"""Builds, images, preset files and caches on a host: their users, and removal of the unused ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote
from llamaherd.layout import BUILDS, PRESETS
from llamaherd.onhost.removal import Kind, Outcome, RemoveInput, UnusedInput
from llamaherd.onhost.removal import Things as Found
from llamaherd.plan import Plan

_FOLDERS: dict[Kind, str] = {"build": str(BUILDS), "preset": str(PRESETS)}
"""A program that may use all of a folder may use anything in it."""


@dataclass(frozen=True)
class HostItem:
    """A removable item, and its users: `plan`, or for example `unit llama-chat.service` and `release 12`.

    `size` is in bytes; bytes that images share are counted in each.
    """

    kind: Kind
    name: str
    size: int
    needed_by: tuple[str, ...]

    @property
    def what(self) -> str:
        """The name of the item: `build llama.cpp-66ca571ae125`."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class HostItems:
    """All items of one rig. `building`: a build is running now."""

    rig: str
    things: tuple[HostItem, ...]
    building: bool = False

    @property
    def removals(self) -> tuple[HostItem, ...]:
        """The unused items; those that builds use stay while one runs."""
        return tuple(
            each
            for each in self.things
            if each.size and not each.needed_by and not (self.building and each.kind in ("source", "work"))
        )

    @property
    def frees(self) -> int:
        """The most bytes that the removal of everything unused frees."""
        return sum(each.size for each in self.removals)

    def as_json(self) -> dict[str, Any]:
        """Return the items as plain JSON values."""
        return {
            "rig": self.rig,
            "things": [asdict(each) for each in self.things],
            "removals": [each.what for each in self.removals],
            "frees": self.frees,
        }


def items_of_host(plan: Plan, found: Found) -> HostItems:
    """Return the items of a host, with their users by the host's plan."""
    planned = _planned(plan)
    needs = [(f"{each.kind} {each.name}", each.path) for each in found.needs]
    things = tuple(
        HostItem(
            each.kind,
            each.name,
            each.size,
            (*(("plan",) if each.name in planned[each.kind] else ()), *_needing(each.kind, each.name, needs)),
        )
        for each in found.things
    )
    return HostItems(plan.rig, things, found.building)


def _planned(plan: Plan) -> dict[Kind, frozenset[str]]:
    """Return the names that the plan needs, by kind. An image counts with the one that it is made from."""
    builds = frozenset(build.id for build in plan.builds)
    pages = frozenset(build.page.sha256 for build in plan.builds if build.page)
    archives = {each.sha256 for build in plan.builds if build.release for each in build.release.archives}
    return {
        "build": builds,
        "image": frozenset(name for image in plan.images for name in (image.tag, image.base)),
        "preset": frozenset(PurePosixPath(each.preset.path).name for each in plan.instances if each.preset),
        "source": pages | _with_parts(archives) | {build.source.sha256 for build in plan.builds if build.source.sha256},
        "work": builds,
        "packages": frozenset(),
    }


def _with_parts(archives: Set[str]) -> frozenset[str]:
    """Return the names of archives, and of the files in which the fetcher keeps what has arrived of them."""
    return frozenset(f"{each}{suffix}" for each in archives for suffix in ("", ".part", ".map", ".synced"))


def _needing(kind: Kind, name: str, needs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the users of an item. A name may have a suffix, and a program that may use every build needs
    their folder.
    """
    if kind not in ("build", "image", "preset"):
        return ()
    found = (who for who, thing in needs if thing.startswith(name) or thing == _FOLDERS.get(kind))
    return tuple(dict.fromkeys(found))


_INSPECT_SECONDS = 180
_REMOVE_SECONDS = 60
"""For each: a build has thousands of files, and Docker takes its time."""


def inspect_items(plan: Plan, remote: Remote, keep: int) -> HostItems:
    """Return the items on the rig's host and their users: `keep` good releases among them. Raise RemoteError."""
    given = UnusedInput(keep)
    return items_of_host(plan, query_verb(remote, "llamaherd.removal.inspect", given, Found, _INSPECT_SECONDS))


def remove_items(things: HostItems, remote: Remote, keep: int) -> Outcome:
    """Remove what is still unused. Raise RemoteError if the result is unknown."""
    seconds = _INSPECT_SECONDS + _REMOVE_SECONDS * len(things.removals)
    return query_verb(remote, "llamaherd.removal.remove", remove_input(things.removals, keep), Outcome, seconds)


def remove_input(removals: Sequence[HostItem], keep: int) -> RemoveInput:
    """Return the input that removes items, if they are still unused."""

    def names(kind: Kind) -> tuple[str, ...]:
        return tuple(each.name for each in removals if each.kind == kind)

    return RemoveInput(
        builds=names("build"),
        images=names("image"),
        presets=names("preset"),
        sources=names("source"),
        work=names("work"),
        packages=bool(names("packages")),
        keep=keep,
    )
