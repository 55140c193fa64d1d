"""Commands that query a host more than once, and those that run a verb: what is shown and noted of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyinfra.api import Config, Host, Inventory, State
from pyinfra.api.connect import connect_all
from pyinfra.api.state import StateOperationMeta

from llamaherd.deploy import commands, connector, run_state
from llamaherd.deploy.commands import RebootHostCommand, VerbCommand, command
from llamaherd.deploy.run_state import downtimes_of, failures_of, noted_failures, speeds_of
from llamaherd.host import program
from llamaherd.onhost.document import Secret, encode
from llamaherd.onhost.servers import FailedSwitch, StartedServer
from llamaherd.role.changes import Change, RebootHost, RunVerb
from tests.support.played_role import played, write_played_role
from tests.support.rigs import KEY
from tests.support.stores import needs_root

pytestmark = needs_root


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Host]:
    """This machine as a rig of pyinfra's, in the middle of an operation."""
    monkeypatch.setattr(commands, "ASK_SECONDS", 0.01)
    monkeypatch.setattr(program, "PROGRAMS", tmp_path / "onhost")
    write_played_role(tmp_path)
    data = {"rig_connect": {"host": "@local"}, "inventory": str(tmp_path / "box.yaml")}
    inventory = Inventory((["@llamaherd/one"], data))
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
    after = played(f"{asked} after")
    assert rebooted(here, RebootHost(ask=played(), back=played(f"{asked} back", fails_until=3), after=after))
    assert asked.read_text() == "back\nback\nback\nafter\n"
    assert noted_failures(here) == []


@pytest.mark.usefixtures("starts_processes")
def test_a_reboot_that_did_not_help_is_said_again(here: Host) -> None:
    assert not rebooted(here, RebootHost(ask=played(), back=played(), after=played(fails="no driver")))
    assert noted_failures(here) == ["reboot: no driver"]


@pytest.mark.usefixtures("starts_processes")
def test_a_host_that_does_not_come_back_is_said_again(here: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "REBOOT_SECONDS", 0.2)
    assert not rebooted(here, RebootHost(ask=played(), back=played(fails="not yet"), after=played()))
    (why,) = noted_failures(here)
    assert why.startswith("reboot: this host did not come back within 0.2 s of its reboot\n  help: ")


@dataclass(frozen=True)
class Keyed:
    """The input of a verb with a key."""

    key: Secret


def verb(how: RunVerb) -> VerbCommand:
    """Return the command of a change by a verb."""
    found = command(Change("start", "server", "llama-chat", ("it is stopped",), how))
    assert isinstance(found, VerbCommand)
    return found


@pytest.mark.usefixtures("starts_processes")
def test_why_a_verb_fails_is_shown_and_noted(here: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    for module in (connector, run_state):
        monkeypatch.setattr(module, "echo", lambda line="", **_: shown.append(line))
    here.state.print_input = True
    done, said = verb(RunVerb("serve.removal.explode", Keyed(Secret(KEY)))).execute(here.state, here, {"_sudo": True})
    message = "this version of the program has no verb `serve.removal.explode`"
    assert (done, said.combined_lines) == (False, [])
    assert noted_failures(here) == [
        f"reboot: {message}\n  help: run `herd up` again: it sends its own version of the program"
    ]
    assert any(message in line for line in shown)
    assert not any(KEY in line for line in shown)
    assert [each.suffix for each in (tmp_path / "onhost").iterdir()] == [".pyz"]


@pytest.mark.usefixtures("starts_processes")
def test_what_a_switch_sends_is_kept_as_values(here: Host) -> None:
    failed = FailedSwitch("llama-chat", "it is not healthy: no memory", "no memory", True, 3.5)
    started, silent = StartedServer("llama-embed", 54.3), StartedServer("llama-card", None, 2.5)
    how = played(
        fails="llama-chat serves again as before", sends=[encode(failed), encode(started), encode(silent), {"other": 1}]
    )
    assert not verb(how).execute(here.state, here, {"_sudo": True})[0]
    (failure,) = failures_of(here)
    assert (failure.message, failure.switch) == ("llama-chat serves again as before", failed)
    assert speeds_of(here) == {"llama-embed": 54.3}
    assert downtimes_of(here) == {"llama-card": 2.5}


class Noted:
    """A screen that keeps what it is to show."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, rig: str, changes: Sequence[Change]) -> None:
        self.lines += [f"{rig} begins {each}" for each in changes]

    def end(self, rig: str) -> None:
        self.lines.append(f"{rig} ends")

    def detail(self, rig: str, line: str) -> None:
        self.lines.append(f"{rig} {line}")

    def note(self, rig: str, line: str) -> None:
        self.lines.append(f"{rig} {line}")

    def finish(self, rig: str) -> None:
        self.lines.append(f"{rig} is done")


@pytest.mark.usefixtures("starts_processes")
def test_on_a_screen_progress_is_shown_and_failures_are_not(here: Host, capsys: pytest.CaptureFixture[str]) -> None:
    noted = Noted()
    with run_state.shown_on(noted):
        verb(replace(played(), says="starting llama-chat")).execute(here.state, here, {"_sudo": True})
        verb(played(fails="no memory")).execute(here.state, here, {"_sudo": True})
    assert noted.lines == ["one starting llama-chat"]
    assert [each.message for each in failures_of(here)] == ["no memory"]
    assert capsys.readouterr().err == ""


def test_what_is_printed_of_a_verb_holds_no_secret() -> None:
    how = RunVerb("serve.switch.switch", Keyed(Secret(KEY)), "starting llama-chat")
    shown = verb(how)
    assert KEY not in f"{how}{how!r}{shown}{shown!r}{shown.get_raw_value()}{shown.get_masked_value()}"
    assert shown.get_raw_value() == "python3 -I serve.switch.switch"
    assert KEY.encode() in program.request(how.verb, how.given)
