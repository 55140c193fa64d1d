"""Hosts that send a line now and then for ever: each wait for them ends by its total, with a sentence."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from pyinfra.api import Config, Host, Inventory, State, StringCommand
from pyinfra.api.connect import connect_all
from pyinfra.api.state import StateOperationMeta

from llamaherd.deploy import connector
from llamaherd.deploy.commands import ScriptCommand
from llamaherd.deploy.run_state import noted_failures
from llamaherd.host import protocol, remote, time_limits
from llamaherd.host.program import GO, Events, Program, packed_program
from llamaherd.host.protocol import HostLock
from llamaherd.host.remote import Patience, Remote, RemoteError, Shell
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.role.changes import RunScript
from llamaherd.store import files
from tests.support.conversations import play_verb
from tests.support.rigs import cpu_rig, planned
from tests.support.stores import needs_root

pytestmark = needs_root

HERE = Connect(host=LOCAL)
SPEAKS = "while echo still here; do sleep 0.1; done"
"""Is never silent, and never ends."""
LIMIT = 1
SILENCE = 60
SOON = 15
"""Seconds in which a wait has ended that is limited to one, on a busy machine."""


@contextmanager
def ends_in_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert LIMIT <= time.monotonic() - began < SOON


def nothing(*_: object) -> None:
    """Hear nothing."""


CLOSED = "exec >&- 2>&-; sleep 60"
"""Has closed its output, and goes on."""


class Zeros(io.BytesIO):
    """A file without an end."""

    def read(self, size: int | None = -1) -> bytes:
        return bytes(size or 0)


FIRST = """echo '{"event":"value","value":0}'"""
READS_SLOWLY = f"{FIRST}; while dd bs=1 count=1 status=none >/dev/null; do sleep 0.1; done"


def send(script: str, data: BinaryIO) -> Callable[[Shell, Patience], object]:
    """Return how a file is sent to a host where a script runs in place of the program."""

    def run(shell: Shell, patience: Patience) -> int:
        with pytest.MonkeyPatch.context() as monkeypatch:
            play_verb(monkeypatch, script)
            return shell.send(packed_program(), b"{}", data, Events(nothing), patience, nothing)

    return run


def converse(shell: Shell, patience: Patience) -> list[str]:
    """Talk with a verb that never stops."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        play_verb(monkeypatch, SPEAKS)
        return list(shell.converse("a.verb", None, patience))


KINDS: dict[str, Callable[[Shell, Patience], object]] = {
    "lines": lambda shell, patience: list(shell.lines(SPEAKS, patience)),
    "a closed output": lambda shell, patience: list(shell.lines(CLOSED, patience)),
    "a step": lambda shell, patience: shell.run(SPEAKS, nothing, patience),
    "a step on stderr": lambda shell, patience: shell.run(f"exec >&2; {SPEAKS}", nothing, patience),
    "a step that drips": lambda shell, patience: shell.run("while printf x; do sleep 0.1; done", nothing, patience),
    "a conversation": converse,
    "before a file": send(SPEAKS, io.BytesIO(b"x" * 100)),
    "a file": send(READS_SLOWLY, Zeros()),
    "after a file": send(f"{FIRST}; {CLOSED}", io.BytesIO()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_reader_of_a_shell_ends_by_its_total(kind: str) -> None:
    sentence = r"^this machine did not finish its work within 1 s\n  help: .*`ps -ef --forest`"
    with Shell(HERE) as shell, ends_in_time(), pytest.raises(RemoteError, match=sentence):
        KINDS[kind](shell, Patience(SILENCE, LIMIT, "its work"))


@pytest.mark.usefixtures("starts_processes")
def test_what_ends_in_time_is_no_error() -> None:
    with Shell(HERE) as shell:
        lines = list(shell.lines("echo 1; sleep 0.5; echo 2", Patience(SILENCE, SILENCE)))
        assert lines == [("stdout", "1\n"), ("stdout", "2\n")]
    with Shell(HERE) as shell:
        assert shell.run("exec >&- 2>&-; sleep 0.5; exit 3", nothing, Patience(SILENCE, SILENCE)) == 3


def test_each_response_in_a_conversation_has_a_total_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    patience = Patience(SILENCE, LIMIT)
    play_verb(monkeypatch, "for n in 1 2 3 4; do sleep 0.5; echo $n; done; " + SPEAKS)
    with Shell(HERE) as shell:
        lines = shell.converse("a.verb", None, patience)
        for number in "1234":
            patience.renew(LIMIT, f"number {number}")
            assert next(lines) == number
        patience.renew(LIMIT, "the last one")
        with ends_in_time(), pytest.raises(RemoteError, match="did not finish the last one within 1 s"):
            list(lines)


def test_a_login_shell_that_closes_its_output_and_stays_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "argv", lambda *_, **__: ["sh", "-c", CLOSED])
    monkeypatch.setattr(remote, "_ENDING_SECONDS", LIMIT)
    with ends_in_time(), pytest.raises(RemoteError, match="did not finish its login within 1 s"):
        Shell(HERE)


def test_a_turn_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    speaks = Program(
        "1" * 16, {"__main__.py": b"import time\nwhile True:\n    print(flush=True)\n    time.sleep(0.2)\n"}
    )
    monkeypatch.setattr(protocol, "packed_program", lambda: speaks)
    monkeypatch.setattr(protocol, "_LOCK_SECONDS", LIMIT)
    with ends_in_time(), pytest.raises(RemoteError, match="did not finish waiting for other runs within 1 s"):
        HostLock("box", HERE, "tom").take(nothing, wait=0)


def test_a_disk_that_hangs_while_models_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host reports its progress every two seconds, and gets no further."""
    reports = json.dumps({"event": "progress", "text": "at 0 0 0"})
    endless = f"echo '{GO}'; while echo '{reports}'; do sleep 0.1; done"
    monkeypatch.setattr(remote, "bootstrap", lambda *_, **__: endless)
    monkeypatch.setattr(files, "hash_seconds", lambda _: LIMIT)
    told: list[files.HashProgress] = []
    with ends_in_time(), pytest.raises(RemoteError, match="did not finish hashing its models within 1 s"):
        files.check_hashes(planned(cpu_rig()), Remote(HERE), told.append)
    assert told


def test_totals_fit_what_is_waited_for() -> None:
    large = [400_000_000_000]
    assert time_limits.transfer_seconds(large) > 18 * time_limits.HOUR * 2  # at 50 Mbit/s
    assert time_limits.transfer_seconds([]) >= time_limits.STEP_SECONDS
    assert time_limits.hash_seconds(large) > 400_000 / 80  # by a disk that reads 80 MB/s
    assert time_limits.transfer_seconds([None]) > time_limits.transfer_seconds(large)
    assert time_limits.STEP_SECONDS > time_limits.BUILD_SECONDS + 2 * time_limits.HOUR
    assert time_limits.BUILD_SECONDS > 3 * 3 * time_limits.HOUR
    assert [time_limits.show_limit(each) for each in (33, 3600, 86400)] == ["33 s", "3600 s", "24 h"]


# --- pyinfra's way ------------------------------------------------------------------------------------------


@pytest.fixture
def rig() -> Iterator[Host]:
    """This machine as a rig of pyinfra's, in the middle of an operation."""
    inventory = Inventory((["@llamaherd/one"], {"rig_connect": {"host": LOCAL}}))
    state = State(inventory, Config())
    connect_all(state)
    (host,) = inventory
    meta = StateOperationMeta((0,))
    meta.names.add("step")
    state.op_meta["this"] = meta
    host.executing_op_hash = "this"
    yield host
    host.disconnect()


def test_a_step_that_speaks_for_ever_fails_with_a_sentence(rig: Host) -> None:
    step = ScriptCommand(RunScript(SPEAKS, seconds=LIMIT))
    with ends_in_time():
        done, _ = step.execute(rig.state, rig, {"_sudo": True})
    assert not done
    (why,) = noted_failures(rig)
    assert why.startswith("step: this machine did not finish this step within 1 s\n  help: ")


def test_a_command_of_another_role_has_a_total_too(rig: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "STEP_SECONDS", LIMIT)
    with ends_in_time():
        done, said = rig.run_shell_command(StringCommand(SPEAKS), _sudo=True)
    assert not done
    assert "did not finish this step within 1 s" in said.stderr_lines[-2]


def test_a_file_that_is_received_for_ever_fails_with_a_sentence(
    rig: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_bytes(bytes(1 << 20))
    sent: list[str] = []
    monkeypatch.setattr(connector.HostOutput, "hear", lambda _self, _stream, line: sent.append(line))
    monkeypatch.setattr(connector, "transfer_seconds", lambda _: LIMIT)
    play_verb(monkeypatch, READS_SLOWLY)
    with ends_in_time():
        assert not rig.put_file(str(tmp_path / "mine"), str(tmp_path / "there"), settled=())
    assert sent[-2] == "this machine did not finish receiving mine within 1 s"
