"""A change that may cut the connection to a host: the host undoes it by itself, unless a new login disarms that."""

from __future__ import annotations

from llamaherd.role.changes import Guard, RunVerb

WITHIN = 120
"""Seconds after a change within which a new login must come through."""

UNDOING = 300
"""Seconds that an undo may last: Docker is restarted."""


def guarded(verb: str, given: object, says: str, *, name: str, undone: str) -> RunVerb:
    """Return a verb that arms an undo called `name`, and its guard. `undone` is the state after the undo, in words."""
    said = f"no new login came through within {WITHIN} s of this, and this host has taken it back by itself: {undone}"
    return RunVerb(verb, given, says, guard=Guard(name, said, WITHIN + UNDOING, UNDOING))
