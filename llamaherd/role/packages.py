"""Packages of the distribution: what is missing is installed, and nothing is taken away for it."""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.render import render

LOCK_SECONDS = 600
"""For whoever else installs: an unattended upgrade takes minutes."""


def install(packages: Iterable[str]) -> str:
    """The script that installs these."""
    return render("host/install-packages.sh.j2", packages=list(packages), wait=LOCK_SECONDS)
