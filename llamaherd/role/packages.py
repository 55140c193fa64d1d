"""Packages of the distribution: what is missing is installed, and nothing is removed for it."""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.onhost.apt import InstallInput
from llamaherd.role.changes import Change, RunVerb


def install_changes(missing: Iterable[str]) -> list[Change]:
    """Install these packages."""
    wanted = tuple(missing)
    names = ", ".join(wanted)
    how = RunVerb("base.install", InstallInput(wanted), f"installing {names}")
    return [Change("install", "packages", names, ("not installed",), how)] if wanted else []
