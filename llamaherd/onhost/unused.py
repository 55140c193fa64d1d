"""Builds, images, preset files and caches on a host: their users, and the removal of unused ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from llamaherd.layout import APT_ARCHIVES, BUILDS, CACHE, PRESETS, WORK
from llamaherd.onhost.clients import docker, systemctl
from llamaherd.onhost.releases import needed
from llamaherd.onhost.removal import Outcome, Removals, Use, empty_trash, find_uses, real_path
from llamaherd.onhost.system import HeldError, System
from llamaherd.onhost.verbs import Verb

Kind = Literal["build", "image", "preset", "source", "work", "packages"]
"""Finished builds, images of them, preset files of groups, sources as they were sent, rests of builds, and downloaded
packages.
"""
SOURCES = CACHE / "sources"
_PRESET = re.compile(r"[a-z0-9-]+-[0-9a-f]{12}\.ini")
"""Named by their content: files that users have put there have other names."""
_BLOCK = 512
_SIZE_SECONDS, _LOCK_SECONDS, _APT_SECONDS = 60, 10, 120


@dataclass(frozen=True)
class UnusedInput:
    """The number of good releases that count as users."""

    keep: int


@dataclass(frozen=True)
class FoundThing:
    """A removable item, and its size in bytes. Bytes that images share are counted in each."""

    kind: Kind
    name: str
    size: int


@dataclass(frozen=True)
class Things:
    """All items, and their users: the path of a use begins with a name, or is the folder of all.

    `building`: a build runs.
    """

    things: tuple[FoundThing, ...] = ()
    needs: tuple[Use, ...] = ()
    building: bool = False


@dataclass(frozen=True)
class RemoveInput:
    """The items to remove if they are still unused, by name."""

    builds: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    packages: bool = False
    keep: int = 0


def inspect(given: UnusedInput, system: System) -> Things:
    """Return the removable items, and their users. Raise FailedError if these are unknown."""
    things = tuple(_things(system))
    return Things(things, tuple(sorted(_needs(system, given.keep))), _is_building(system))


def _things(system: System) -> Iterator[FoundThing]:
    for build in _builds(system):
        yield FoundThing("build", build, _size(system, f"{real_path(system, str(BUILDS))}/{build}"))
    for image in _images(system):
        size = docker(system, "image", "inspect", "--format", "{{.Size}}", image).out.strip()
        yield FoundThing("image", image, int(size) if size.isdecimal() else 0)
    for preset in _presets(system):
        yield FoundThing("preset", preset, _size(system, f"{PRESETS}/{preset}"))
    places: tuple[tuple[Kind, str], ...] = (("source", str(SOURCES)), ("work", str(WORK)))
    for kind, folder in places:
        for name in system.names(folder):
            found = system.entry(f"{folder}/{name}")
            if found and found.kind != "link" and not name.startswith("."):
                yield FoundThing(kind, name, _size(system, f"{folder}/{name}"))
    packages = (found for path, found in system.tree(str(APT_ARCHIVES)) if path.endswith(".deb"))
    yield FoundThing("packages", "apt", sum(each.blocks for each in packages if each.kind == "file") * _BLOCK)


def _size(system: System, path: str) -> int:
    """Return the bytes that an item takes of its disk."""
    size = system.run(["du", "-sx", "-B1", "--", path], seconds=_SIZE_SECONDS).out.split("\t")[0]
    return int(size) if size.isdecimal() else 0


def _builds(system: System) -> list[str]:
    real = real_path(system, str(BUILDS))
    entries = [(name, system.entry(f"{real}/{name}")) for name in (system.names(real) if real else ())]
    return [name for name, found in entries if found and found.kind == "folder" and not name.startswith(".")]


def _images(system: System) -> list[str]:
    form = "{{.Repository}}:{{.Tag}}"
    listed = docker(system, "image", "ls", "--filter", "reference=llamaherd/*", "--format", form).out.split()
    return [each for each in listed if not each.endswith(":<none>")]


def _presets(system: System) -> list[str]:
    entries = [(name, system.entry(f"{PRESETS}/{name}")) for name in system.names(str(PRESETS))]
    return [name for name, found in entries if _PRESET.fullmatch(name) and found and found.kind == "file"]


def _is_building(system: System) -> bool:
    """Return whether a build runs: files in caches and work folders may be part of it."""
    units = ("list-units", "-q", "--no-legend", "--plain", "--state=active,activating", "llamaherd-build-*")
    return bool(systemctl(system, *units).out.strip())


def _needs(system: System, keep: int) -> set[Use]:
    """Return the users of each build, image or preset file. A program that may use all of a folder needs the folder."""
    images, presets, builds = _images(system), _presets(system), _builds(system)
    folders = [str(BUILDS)] if real_path(system, str(BUILDS)) else []
    folders += [str(PRESETS)] if presets else []
    found = {
        Use(use.kind, use.name, use.path.removeprefix(f"{folder}/"))
        for folder in folders
        for use in find_uses(system, folder, keep)
    }
    for kind, name, text in needed(system, keep):
        found |= {Use(kind, name, thing) for thing in (*builds, *images, *presets) if thing in text}
    # Of an image that another was made from, too.
    for image in images:
        names = docker(system, "ps", "-a", "--filter", f"ancestor={image}", "--format", "{{.Names}}").out.split()
        found |= {Use("container", name, image) for name in names}
    return found


def remove(given: RemoveInput, system: System) -> Outcome:
    """Remove unused items. Nothing is removed while a server is started or a build runs."""
    with ExitStack() as locks:
        try:
            # While the first is held no server is started, while the second is no build is finished.
            locks.enter_context(system.lock("host", _LOCK_SECONDS, "removing unused items"))
            locks.enter_context(system.lock("build", _LOCK_SECONDS, "removing unused items"))
        except HeldError:
            return Outcome(busy="")
        return _Removal(system, given.keep).remove(given)


class _Removal:
    """Removes items, and collects the results."""

    def __init__(self, system: System, keep: int) -> None:
        self._system = system
        self._removals = Removals(system)
        self._builds = real_path(system, str(BUILDS))
        for folder in (self._builds, str(SOURCES), str(WORK), str(PRESETS)):
            if folder:
                empty_trash(system, folder)
        self._needs = sorted(_needs(system, keep))

    def remove(self, given: RemoveInput) -> Outcome:
        """Remove all of it."""
        for name in given.builds if self._builds else ():
            if self._is_free(name, f"build {name}", str(BUILDS)):
                self._discard(f"{self._builds}/{name}", f"build {name}")
        for tag in given.images:
            if self._is_free(tag, f"image {tag}", str(BUILDS)):
                done = docker(self._system, "image", "rm", tag).ok
                self._became(f"image {tag}", done, "Docker does not remove it")
        for name in given.presets:
            if self._is_free(name, f"preset {name}", str(PRESETS)):
                self._discard(f"{PRESETS}/{name}", f"preset {name}")
        for kind, folder, names in (("source", SOURCES, given.sources), ("work", WORK, given.work)):
            for name in names:
                if _is_building(self._system):
                    self._removals.keep(f"{kind} {name}", "a build is running now")
                else:
                    self._discard(f"{folder}/{name}", f"{kind} {name}")
        if given.packages:
            clean = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=30", "clean"]
            done = self._system.run(clean, seconds=_APT_SECONDS).ok
            self._became("packages apt", done, "apt does not remove them")
        return self._removals.outcome

    def _is_free(self, thing: str, what: str, folder: str) -> bool:
        """Return whether the item is unused; record its user."""
        for need in self._needs:
            if need.path.startswith(thing) or need.path == folder:
                self._removals.keep(what, f"{need.kind} {need.name} needs it")
                return False
        return True

    def _discard(self, path: str, what: str) -> None:
        done = self._removals.discard(path, path.rpartition("/")[0])
        self._became(what, done, "it cannot be removed")

    def _became(self, what: str, done: bool, why: str) -> None:
        if done:
            self._removals.removed(what)
        else:
            self._removals.keep(what, why)


VERBS = {"inspect": Verb(UnusedInput, inspect), "remove": Verb(RemoveInput, remove)}
