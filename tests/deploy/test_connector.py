"""pyinfra's way to a rig, on this machine: what is run, what is shown, and files that are sent."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import Config, Host, Inventory, State, StringCommand, output
from pyinfra.api.connect import connect_all
from pyinfra.api.state import StateOperationMeta

from llamaherd.cli.common import echo, print_findings
from llamaherd.deploy import connector
from llamaherd.deploy.connector import upload_progress
from llamaherd.deploy.run_state import failures_of, noted_failures
from llamaherd.diagnostics.findings import Finding, Place, UserError
from llamaherd.host.remote import RemoteError, Shell
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.onhost.reporting import Pace
from llamaherd.text.terminal import shown
from tests.support.stores import needs_root

pytestmark = [needs_root, pytest.mark.usefixtures("starts_processes")]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reaches the terminal."""
    lines: list[str] = []

    def echo(line: str = "", **_: object) -> None:
        lines.append(line)

    monkeypatch.setattr(output, "_echo", echo)
    return lines


@pytest.fixture
def here() -> Iterator[Host]:
    """This machine as a rig of pyinfra's."""
    inventory = Inventory((["@llamaherd/one"], {"rig_connect": {"host": "@local"}}))
    connect_all(State(inventory, Config()))
    (host,) = inventory
    assert (host.name, host.connected) == ("one", True)
    yield host
    host.disconnect()


def run(host: Host, script: str, **arguments: object) -> tuple[bool, list[str], list[str]]:
    done, said = host.run_shell_command(StringCommand("sh", "-s"), _stdin=script, _sudo=True, **arguments)
    return done, said.stdout_lines, said.stderr_lines


def test_a_script_is_run_and_its_lines_are_kept(here: Host) -> None:
    assert run(here, "id -u; echo oops >&2; exit 3") == (False, ["0"], ["oops"])
    # The shell that waited has run one; another runs the next.
    assert run(here, "printf 'no end'") == (True, ["no end"], [])


def test_the_next_script_is_logged_in_for_while_one_works(here: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where our turn says that one follows: no login more than without, and none after the last."""
    logins: list[Shell] = []

    class Counted(Shell):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            logins.append(self)

    monkeypatch.setattr(connector, "Shell", Counted)
    monkeypatch.setattr(connector, "holds_host_lock", lambda host: host is here)
    # By the shell that waited; the next one logs in meanwhile, and the one after that.
    assert run(here, "echo 1")[1] == ["1"]
    assert run(here, "echo 2")[1] == ["2"]
    assert run(here, "echo 3", _last=True)[1] == ["3"]
    assert len(logins) == 2
    assert run(here, "echo 4")[1] == ["4"]
    here.disconnect()  # also of the one that is on its way
    assert not any(shell.alive for shell in logins)


def test_a_shell_that_is_gone_meanwhile_is_no_reason_to_fail(here: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Shell(Connect(host=LOCAL))
    gone.close()
    monkeypatch.setattr(connector, "holds_host_lock", lambda _: True)
    for ahead in (None, gone):
        monkeypatch.setattr(connector, "_shell_or_none", lambda _, ahead=ahead: ahead)
        assert run(here, "echo 1")[1] == ["1"]
        assert run(here, "echo 2", _last=True)[1] == ["2"]


def test_a_host_that_does_not_respond_while_it_reboots_has_not_failed(
    here: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(Shell):
        def __init__(self, *_: Any, **__: Any) -> None:
            raise RemoteError("it closes the connection before the login", "")

    here.disconnect()
    with monkeypatch.context() as patched:
        patched.setattr(connector, "Shell", Refused)
        here.connect(show_errors=False)
        assert not here.connected
    here.connect()
    assert run(here, "echo 1")[1] == ["1"]
    assert noted_failures(here) == []


def test_any_other_command_of_pyinfras_runs_too(here: Host) -> None:
    done, said = here.run_shell_command(
        StringCommand("cat; echo", '"$WORD"'), _stdin="told", _env={"WORD": "it's"}, _chdir="/", _sudo=True
    )
    assert (done, said.stdout_lines) == (True, ["told", "it's"])


def test_what_is_shown_holds_nothing_that_a_terminal_obeys(here: Host, said: list[str]) -> None:
    script = r"printf '\033]0;mine\007\033[2J\033[31mred\033[0m caf\351\r\n\0a\303\251\342\200\256b\n'"
    script += r"; printf '\033c\tx\n' >&2"
    assert run(here, script, print_output=True)[0]
    assert [line.removeprefix("[one] ") for line in said] == ["red caf\N{REPLACEMENT CHARACTER}", "aéb", " x"]


def test_a_host_that_never_ends_fails_with_a_sentence(here: Host) -> None:
    done, _, err = run(here, "yes")
    assert not done
    assert "this machine does not stop printing" in err[-2]
    assert err[-1].startswith("  help: ")


def test_a_host_that_is_silent_fails_with_a_sentence(here: Host) -> None:
    done, _, err = run(here, "exec sleep 60", _timeout=0.2)
    assert not done
    assert "did not finish within 0 s" in err[-2]


def sent(here: Host, file: Path, to: Path) -> bool:
    done: bool = here.put_file(str(file), str(to), settled=(), _sudo=False)
    return done


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of some size, no two parts of which are the same."""
    file = tmp_path / "mine"
    file.write_bytes(b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(10_000)))
    return file


def test_the_bytes_of_an_upload_and_its_speed_are_shown() -> None:
    """Those that the host had before count as arrived, but not for the speed."""
    shown, now = list[str](), [50.0]
    tell = upload_progress(2_500_000_000, lambda: now[0], shown.append)
    for second, done in ((0.5, 1_000_000_000), (1.9, 1_100_000_000), (2, 1_200_000_000), (3, 1_250_000_000)):
        now[0] = 50.0 + second
        tell(done)
    now[0] = 60.0
    tell(2_500_000_000)
    assert shown == ["sent 1.2 GB of 2.5 GB at 100 MB/s", "sent 2.5 GB of 2.5 GB at 150 MB/s"]


def test_the_bytes_of_a_real_upload_are_shown(
    here: Host, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "is_due", lambda *_: True)
    lines = list[tuple[str, bool]]()
    monkeypatch.setattr(
        connector, "show_output", lambda _, name, text, *, wrong: lines.append((f"{name}: {text}", wrong))
    )
    (tmp_path / "there.part").write_bytes(file.read_bytes()[:100_000])
    assert sent(here, file, tmp_path / "there")
    sizes = [(line.split(" at ")[0], wrong) for line, wrong in lines]
    assert sizes == [(f"one: sent {done} kB of 320 kB", False) for done in (166, 231, 297, 320)]


@pytest.mark.parametrize("there", [None, 0, 100_000, 320_000])
def test_a_file_that_was_cut_off_goes_on_where_it_ended(
    here: Host, file: Path, tmp_path: Path, there: int | None
) -> None:
    there_ = tmp_path / "it's there"
    part = tmp_path / "it's there.part"
    if there is not None:
        # Told from what is sent: what is there is not sent again.
        part.write_bytes(b"-" * there)
    assert sent(here, file, there_)
    assert there_.read_bytes() == b"-" * (there or 0) + file.read_bytes()[there or 0 :]
    assert not part.exists()


def test_a_part_that_is_longer_than_the_file_is_of_another(here: Host, file: Path, tmp_path: Path) -> None:
    (tmp_path / "there.part").write_bytes(b"-" * 400_000)
    assert sent(here, file, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == file.read_bytes()


def test_why_a_file_cannot_be_sent_is_noted(here: Host, file: Path, tmp_path: Path) -> None:
    """As to a host that was never set up: it has no folder for files that arrive."""
    meta = StateOperationMeta((0,))
    meta.names.add("models | in the store")
    here.state.op_meta["this"] = meta
    here.executing_op_hash = "this"
    assert not sent(here, file, tmp_path / "incoming" / "there")
    (failure,) = failures_of(here)
    assert str(tmp_path / "incoming") in failure.message


SOURCES = {"bytes": BytesIO(b"\0text\n"), "text": StringIO("\0text\n"), "file": None}
"""What pyinfra's operations write; None is a file of the controller's."""


@pytest.mark.parametrize("kind", SOURCES)
def test_files_of_pyinfras_operations_are_written(here: Host, tmp_path: Path, kind: str) -> None:
    (tmp_path / "local").write_bytes(b"\0text\n")
    there = tmp_path / "a name with 'quotes'"
    source = SOURCES[kind] or str(tmp_path / "local")
    assert here.put_file(source, str(there), remote_temp_filename="/nowhere", _sudo=True)
    assert there.read_bytes() == b"\0text\n"
    assert not here.put_file(source, str(tmp_path / "no folder" / "file"), _sudo=True)


@contextmanager
def another_run_sends(part: Path, *, up_to: int = 10) -> Iterator[Callable[[Path | None], None]]:
    """Another run that has sent some bytes of a file; told where, it moves the file there and ends."""
    with part.open("ab") as held:
        held.write(b"-" * up_to)
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)

        def end(to: Path | None) -> None:
            if to:
                part.rename(to)
            held.close()

        yield end


def test_a_file_that_another_run_sends_is_waited_for_and_there(
    here: Host, file: Path, tmp_path: Path, said: list[str]
) -> None:
    there, part = tmp_path / "there", tmp_path / "there.part"
    with another_run_sends(part, up_to=320_000) as end, ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(sent, here, file, there) for _ in range(5)]
        until(lambda: sum("another run that sends this file" in line for line in said) == 5)
        end(there)
        assert [each.result() for each in waiting] == [True] * 5
    assert there.read_bytes() == b"-" * 320_000
    assert not part.exists()


def test_a_file_that_another_run_has_let_in_is_not_sent_again(here: Host, file: Path, tmp_path: Path) -> None:
    there, store = tmp_path / ("5" * 64), tmp_path / "store"
    store.mkdir()
    with another_run_sends(tmp_path / f"{there.name}.part") as end, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(here.put_file, str(file), str(there), settled=[store / "a model"], _sudo=False)
        until(lambda: waiting.running())
        end(store / "a model")
        stat = (store / "a model").stat()
        line = f"{stat.st_size}\t{stat.st_mtime_ns // 10**9}.{stat.st_mtime_ns % 10**9:09}\t{there.name}\ta model\n"
        (store / ".manifest").write_text(line)
        assert waiting.result()
    assert (store / "a model").read_bytes() == b"-" * 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "store"]


@pytest.mark.parametrize("otherwise", ["its owner", "its mode", "a link"])
def test_what_is_no_file_of_the_store_any_more_is_sent(here: Host, file: Path, tmp_path: Path, otherwise: str) -> None:
    """A manifest vouches for it, and somebody else may write to it."""
    sha256, model = "5" * 64, tmp_path / "model"
    model.write_bytes(b"-" * 10)
    stat = model.stat()
    written = f"{stat.st_mtime_ns // 10**9}.{stat.st_mtime_ns % 10**9:09}"
    (tmp_path / ".manifest").write_text(f"{stat.st_size}\t{written}\t{sha256}\tmodel\n")
    if otherwise == "its owner":
        os.chown(model, 1000, 1000)
    elif otherwise == "its mode":
        model.chmod(0o666)
    else:
        model.rename(tmp_path / "elsewhere")
        model.symlink_to(tmp_path / "elsewhere")
    assert here.put_file(str(file), str(tmp_path / sha256), settled=[model], _sudo=False)
    assert (tmp_path / sha256).read_bytes() == file.read_bytes()


def test_a_file_that_another_run_gave_up_goes_on_where_that_ended(here: Host, file: Path, tmp_path: Path) -> None:
    with another_run_sends(tmp_path / "there.part") as end, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sent, here, file, tmp_path / "there")
        until(lambda: waiting.running())
        end(None)
        assert waiting.result()
    assert (tmp_path / "there").read_bytes() == b"-" * 10 + file.read_bytes()[10:]


def test_what_has_become_of_a_part_meanwhile_is_not_written_to(here: Host, file: Path, tmp_path: Path) -> None:
    """Sent by another run, let in, and gone: what the part was is a model by now."""
    with another_run_sends(tmp_path / "there.part") as end, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sent, here, file, tmp_path / "there")
        until(lambda: waiting.running())
        end(tmp_path / "model")
        assert waiting.result()
    assert (tmp_path / "model").read_bytes() == b"-" * 10
    assert (tmp_path / "there").read_bytes() == file.read_bytes()


def test_a_run_that_sends_nothing_any_more_is_not_waited_for(
    here: Host, file: Path, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "STANDING", 2)
    with another_run_sends(tmp_path / "there.part"):
        assert not sent(here, file, tmp_path / "there")
    assert "has sent nothing for 2 s: 10 of 320000 bytes have arrived" in said[-2]
    assert (tmp_path / "there.part").stat().st_size == 10


def test_a_file_that_arrived_and_was_not_let_in_is_not_sent_again(here: Host, file: Path, tmp_path: Path) -> None:
    """A run was killed in between; whether it is the right one is found out when it is let in."""
    (tmp_path / "there").write_bytes(b"-" * file.stat().st_size)
    assert sent(here, file, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == b"-" * file.stat().st_size
    assert not (tmp_path / "there.part").exists()


def until(so: Callable[[], bool]) -> None:
    """Wait until it is so, which it will be."""
    deadline = time.monotonic() + 60
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_place_that_cannot_be_written_is_named(here: Host, file: Path, said: list[str]) -> None:
    assert not sent(here, file, Path("/proc/there"))
    assert "cannot write /proc/there.part" in said[-2]


def test_a_full_disk_is_named(here: Host, file: Path, tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "there.part").symlink_to("/dev/full")
    assert not sent(here, file, tmp_path / "there")
    assert f"cannot write {tmp_path}/there.part: No space left on device" in "".join(said)
    assert "help: make room on /" in "".join(said)


def test_blanks_are_kept_and_sequences_go_whole() -> None:
    assert (
        shown("  a\tb \x1b[1;31mred\x1b[m \x1b]8;;https://x\x1b\\link\x1b]8;;\x07 \x9b31m\u202e")
        == "  a b red link 31m"
    )


def test_no_sentence_of_ours_carries_what_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "red \x1b[31mand\x07 \x1b]0;mine\x07more\r\nnext"
    escaped = r"red \x1b[31mand\x07 \x1b]0;mine\x07more\r\nnext"
    assert str(UserError(hostile, hostile)) == f"{escaped}\n  help: {escaped}"
    echo(hostile, err=True)
    print_findings([Finding("LH005", Place(Path("a\x1b[2Jb.yaml")), hostile, hostile)])
    said = capsys.readouterr()
    assert not {character for character in said.out + said.err if not character.isprintable()} - {"\n"}
    assert (said.err.count("red and more"), said.err.count(escaped)) == (1, 2)
