"""The change of accounts and folders: what a user reads of a new host, and of one that somebody has changed."""

from __future__ import annotations

from llamaherd.host.state import HostState
from llamaherd.role.changes import Change
from roles.base import BaseState, base_changes
from roles.base.onhost import UserFound
from tests.support.drifts import CPU, seen_of
from tests.support.states import edited


def accounts_change(seen: HostState) -> Change:
    return next(each for each in base_changes(CPU, seen) if each.kind in ("accounts", "folders"))


def test_accounts_of_a_new_host_are_new() -> None:
    change = accounts_change(HostState())
    assert (change.action, change.kind) == ("create", "accounts")
    assert set(change.name.split(", ")) == set(CPU.accounts)
    new, folders = change.reasons
    assert new == "new"
    assert folders.startswith("with ")
    assert folders.endswith(" folders")


def test_an_account_that_can_log_in_is_named() -> None:
    seen = seen_of(CPU)
    users = dict(BaseState.of(seen).users)
    users["llama"] = UserFound("/bin/bash", ())
    del users["llama-build"]
    change = accounts_change(edited(seen, users=users))
    assert (change.action, change.name) == ("update", "llama, llama-build")
    assert change.reasons == (
        "llama can log in, or is in groups of other users",
        "llama-build does not exist",
    )


def test_folders_alone_are_named() -> None:
    seen = seen_of(CPU)
    folders = dict(BaseState.of(seen).folders)
    del folders["/etc/llamaherd"]
    change = accounts_change(edited(seen, folders=folders))
    assert (change.action, change.kind, change.name) == ("update", "folders", "/etc/llamaherd")
    assert change.reasons == ("/etc/llamaherd is missing, or has another mode or owner",)
