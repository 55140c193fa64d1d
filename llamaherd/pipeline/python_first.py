"""A host without python3: what is known of it, and the change that installs python3 before anything else."""

from __future__ import annotations

from llamaherd.onhost.apt import LOCK_SECONDS
from llamaherd.render import render
from llamaherd.role.changes import Change, RunScript
from llamaherd.role.facts import Row

NOTE = "the host has no python3 yet: its other changes follow once it is there"


def python_change() -> Change:
    """Return the change that installs python3."""
    reason = "the host has none, and all that llamaherd does there needs it"
    return Change("install", "package", "python3", (reason,), RunScript(install_script(), "installing python3"))


def install_script() -> str:
    """Return the shell script that installs python3."""
    return render("host/install-python.sh.j2", wait=LOCK_SECONDS)


def python_row() -> Row:
    """Return preflight's row about it."""
    return Row(
        "python3", "missing", "python3", "note", "the rest is inspected once it is there", "`herd up` installs it"
    )
