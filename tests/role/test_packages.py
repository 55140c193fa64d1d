"""Packages that are missing are installed by one verb."""

from __future__ import annotations

from llamaherd.onhost.apt import InstallInput
from llamaherd.role.apt import install_changes
from llamaherd.role.changes import RunVerb


def test_what_is_missing_is_installed_by_one_verb() -> None:
    (change,) = install_changes(["curl", "git"])
    assert change.name == "curl, git"
    assert change.how == RunVerb("base.install", InstallInput(("curl", "git")), "installing curl, git")


def test_nothing_is_installed_where_nothing_is_missing() -> None:
    assert install_changes([]) == []
