"""Packages that are missing: Python first, by a script, as the program that installs the others is written in it."""

from __future__ import annotations

from llamaherd.onhost.apt import InstallInput
from llamaherd.role.changes import RunScript, RunVerb
from llamaherd.role.packages import install_changes


def test_python_is_installed_first_by_a_script() -> None:
    first, then = install_changes(["curl", "python3", "git"])
    assert (first.name, then.name) == ("python3", "curl, git")
    assert isinstance(first.how, RunScript)
    assert "install --no-install-recommends --no-remove python3" in first.how.script
    assert then.how == RunVerb("base.install", InstallInput(("curl", "git")), "installing curl, git")


def test_a_host_with_python_needs_no_script() -> None:
    (only,) = install_changes(["curl"])
    assert isinstance(only.how, RunVerb)
    (python,) = install_changes(["python3"])
    assert isinstance(python.how, RunScript)
    assert install_changes([]) == []
