"""Packages of the distribution: what is missing is installed, and nothing is removed for it."""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.onhost.apt import LOCK_SECONDS, InstallInput
from llamaherd.render import render
from llamaherd.role.changes import Change, RunScript, RunVerb

_PYTHON = "python3"
"""Runs the program that runs on hosts, so a script installs it."""
_WHY = ("not installed",)


def install_changes(missing: Iterable[str]) -> list[Change]:
    """Install these packages, Python first."""
    wanted = list(missing)
    changes = []
    if _PYTHON in wanted:
        wanted.remove(_PYTHON)
        script = render("host/install-python.sh.j2", wait=LOCK_SECONDS)
        changes.append(Change("install", "packages", _PYTHON, _WHY, RunScript(script, f"installing {_PYTHON}")))
    if wanted:
        names = ", ".join(wanted)
        how = RunVerb("base.install", InstallInput(tuple(wanted)), f"installing {names}")
        changes.append(Change("install", "packages", names, _WHY, how))
    return changes
