"""A change that may cut the line to a host: the host takes it back by itself, unless a new login disarms that."""

from __future__ import annotations

from llamaherd.layout import UNDO_RUN
from llamaherd.render import render
from llamaherd.role.changes import GuardedScript
from llamaherd.text.quoting import Written

WITHIN = 120
"""Seconds after a change within which a new login must come through."""

UNDOING = 300
"""Seconds that taking back may last: Docker is started anew."""


def undo_functions() -> Written:
    """The functions of a script that arms an undo before it changes something: `arm`, `arm_within` and `undo_now`."""
    return render("host/undo.sh.j2", undos=UNDO_RUN)


def guarded(script: str, says: str, *, name: str, undone: str) -> GuardedScript:
    """A script that arms an undo called `name`, and what disarms it. `undone` says what is there after it, in words."""
    disarm = render("host/disarm-undo.sh.j2", undos=UNDO_RUN, name=name, patience=UNDOING)
    said = f"no new login came through within {WITHIN} s of this, and this host has taken it back by itself: {undone}"
    return GuardedScript(script, disarm, said, WITHIN + UNDOING, says)
