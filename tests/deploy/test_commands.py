"""Commands that ask a host more than once: only what fails in the end is said again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyinfra.api import Config, Host, Inventory, State
from pyinfra.api.connect import connect_all
from pyinfra.api.state import StateOperationMeta

from llamaherd.deploy import commands
from llamaherd.deploy.commands import RebootHostCommand
from llamaherd.deploy.reasons import noted
from llamaherd.role.changes import RebootHost
from tests.support.stores import needs_root

pytestmark = needs_root


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """This machine as a rig of pyinfra's, in the middle of an operation."""
    monkeypatch.setattr(commands, "ASK_SECONDS", 0.01)
    inventory = Inventory((["@llamaherd/one"], {"rig_connect": {"host": "@local"}}))
    state = State(inventory, Config())
    connect_all(state)
    (host,) = inventory
    meta = StateOperationMeta((0,))
    meta.names.add("reboot")
    state.op_meta["this"] = meta
    host.executing_op_hash = "this"
    yield host
    host.disconnect()


def rebooted(here: Host, how: RebootHost) -> bool:
    return RebootHostCommand(how, "it must").execute(here.state, here, {"_sudo": True})


@pytest.mark.usefixtures("starts_processes")
def test_a_host_that_is_not_back_yet_has_not_failed(here: Host, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    third = f"echo >>{asked}; [ $(wc -l <{asked}) = 3 ]"
    assert rebooted(here, RebootHost(ask="true", back=third, after=f"echo after >>{asked}"))
    assert asked.read_text() == "\n\n\nafter\n"
    assert noted(here) == []


@pytest.mark.usefixtures("starts_processes")
def test_a_reboot_that_did_not_help_is_said_again(here: Host) -> None:
    assert not rebooted(here, RebootHost(ask="true", back="true", after="echo 'no driver' >&2; false"))
    assert noted(here) == ["reboot: no driver"]


@pytest.mark.usefixtures("starts_processes")
def test_a_host_that_does_not_come_back_is_said_again(here: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "REBOOT_SECONDS", 0.2)
    assert not rebooted(here, RebootHost(ask="true", back="false", after="true"))
    (why,) = noted(here)
    assert why.startswith("reboot: this host did not come back within 0.2 s of its reboot\n  help: ")
