"""What became of things that were to be removed on a host: of models, builds, images and caches alike."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from llamaherd.onhost.system import System

LEFT = ".trash-"
"""How the names of folders begin in which a removal that was killed has left something."""


@dataclass(frozen=True)
class Outcome:
    """What was removed, and what was not and why.

    `busy`: the progress of another run, as far as it reports any, because of which nothing was done.
    """

    removed: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    busy: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all went that was to go."""
        return not self.kept and self.busy is None


class Removals:
    """Collects what is removed and what is kept."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._removed: list[str] = []
        self._kept: dict[str, str] = {}

    def keep(self, what: str, why: str) -> None:
        """Record why something is kept."""
        self._kept[what] = why

    def removed(self, what: str) -> None:
        """Record that something was removed."""
        self._removed.append(what)

    def discard(self, path: str, trash: str) -> bool:
        """Remove a file or folder: out of the way by one rename, so that it never lies half in its place.

        Return False where it cannot be removed. `trash` is a folder on the same disk.
        """
        bin_ = f"{trash}/{LEFT}{self._system.random().hex()[:12]}"
        try:
            self._system.folder(bin_, mode=0o700)
            self._system.rename(path, f"{bin_}/it")
            # What a kill leaves here has neither its name nor a manifest.
            if self._system.entry(f"{bin_}/it/.manifest"):
                self._system.remove(f"{bin_}/it/.manifest")
            self._system.remove(bin_)
        except OSError:
            if not self._system.names(bin_):
                with suppress(OSError):
                    self._system.remove(bin_)
            return False
        return True

    @property
    def outcome(self) -> Outcome:
        """Return what became of all."""
        return Outcome(tuple(self._removed), self._kept)


def empty_trash(system: System, folder: str) -> None:
    """Remove what removals that were killed have left in a folder."""
    for name in system.names(folder):
        if name.startswith(LEFT):
            with suppress(OSError):
                system.remove(f"{folder}/{name}")
