"""A fleet's own role whose verb records that it ran, and fails where it is told to: for commands of real runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from llamaherd.role.changes import RunVerb

_ONHOST = """
from dataclasses import dataclass
from pathlib import Path

from llamaherd.onhost.system import FailedError
from llamaherd.onhost.verbs import Verb


@dataclass(frozen=True)
class PlayedInput:
    record: str
    fails: str
    fails_until: int
    sends: tuple[dict[str, object], ...]


def play(given, system):
    path, _, text = given.record.partition(" ")
    runs = 0
    if path:
        with Path(path).open("a+") as file:
            file.write(text + chr(10))
            file.seek(0)
            runs = len(file.readlines())
    for value in given.sends:
        system.send(value)
    if given.fails or runs < given.fails_until:
        raise FailedError(given.fails or "not yet")


VERBS = {"play": Verb(PlayedInput, play)}
"""


@dataclass(frozen=True)
class PlayedInput:
    """What the verb does: a path and a line to add to that file, and what it fails with."""

    record: str
    fails: str
    fails_until: int
    """Lines that the file must have before it succeeds."""
    sends: tuple[object, ...] = ()
    """Values that it sends before."""


def write_played_role(inventory: Path) -> None:
    """Write the role into an inventory's folder."""
    folder = inventory / "roles" / "played"
    folder.mkdir(parents=True)
    (folder / "onhost.py").write_text(_ONHOST)


def played(record: str = "", *, fails: str = "", fails_until: int = 0, sends: Iterable[object] = ()) -> RunVerb:
    """Return how its verb is run."""
    return RunVerb("played.play", PlayedInput(record, fails, fails_until, tuple(sends)))
