"""Reaching a rig: the command line, and what OpenSSH 9.2 and sudo 1.9 said when something was wrong."""

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import pytest

from llamaherd.host import remote
from llamaherd.host.program import Events, packed_program
from llamaherd.host.remote import Patience, Remote, RemoteError, Shell
from llamaherd.host.ssh import argv, lost, not_started, why_not_run
from llamaherd.inventory.schema import LOCAL, Connect
from tests.support.conversations import play_verb
from tests.support.stores import needs_root

HERE = Connect(host=LOCAL)
DUO = Connect(host="duo.lan", user="tom", key=Path("/keys/duo 50%"), known_hosts=Path("/keys/known_hosts"))

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Host key for [127.0.0.1]:2250 has changed and you have requested strict checking.
Host key verification failed.
"""
UNKNOWN = """\
No ED25519 host key is known for [127.0.0.1]:2250 and you have requested strict checking.
Host key verification failed.
"""
BANNED = """\
kex_exchange_identification: Connection closed by remote host
Connection closed by 127.0.0.1 port 2250
"""


def test_what_is_declared_is_all_that_counts() -> None:
    command = argv(DUO.model_copy(update={"port": 2222}))
    assert command[:6] == ["ssh", "-T", "-p", "2222", "-l", "tom"]
    assert 'IdentityFile="/keys/duo 50%%"' in command
    assert 'UserKnownHostsFile="/keys/known_hosts"' in command
    assert {"IdentitiesOnly=yes", "StrictHostKeyChecking=yes", "BatchMode=yes"} <= set(command)
    assert command[-3:-1] == ["--", "duo.lan"]


def test_what_is_not_declared_is_left_to_the_client() -> None:
    text = " ".join(argv(Connect(host="duo")))
    for option in ("IdentityFile", "IdentitiesOnly", "UserKnownHostsFile", "StrictHostKeyChecking", " -l ", " -p "):
        assert option not in text


def test_only_who_deploys_notes_the_key_of_a_host_that_is_new() -> None:
    assert "StrictHostKeyChecking=accept-new" in argv(Connect(host="duo"), note_key=True)
    assert "StrictHostKeyChecking=accept-new" not in argv(DUO, note_key=True)


def test_a_login_of_its_own_shares_no_connection() -> None:
    """Whatever ~/.ssh/config says of `ControlMaster`: by that one a line that is cut would look whole for a while."""
    alone = {"ControlMaster=no", "ControlPath=none"}
    assert alone <= set(argv(DUO, fresh=True))
    assert not alone & set(argv(DUO))


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("code", "err", "message", "help_"),
    [
        (255, CHANGED, "host key of duo.lan has changed", "ssh-keygen -f /keys/known_hosts -R 'duo.lan'"),
        (255, UNKNOWN, "is unknown", "`ssh-keyscan duo.lan >>/keys/known_hosts`"),
        (255, "tom@duo.lan: Permission denied (publickey).\n", "does not accept /keys/duo", "authorized_keys"),
        (
            255,
            'Load key "/x": error in libcrypto\ntom@d: Permission denied (publickey).',
            "private key",
            "connect: key",
        ),
        (255, "ssh: connect to host duo.lan port 22: Connection refused\n", "connection refused", "sshd"),
        (255, "ssh: Could not resolve hostname duo.lan: Name or service not known\n", "cannot be resolved", "address"),
        (255, "Connection timed out during banner exchange\n", "does not respond", "firewall"),
        (255, BANNED, "closes the connection", "wait a minute"),
        (255, "something new\n", "something new", "try `ssh tom@duo.lan`"),
        (1, "sudo: a password is required\n", "requires a password for tom", "NOPASSWD"),
        (127, "sh: 1: exec: sudo: not found\n", "there is no sudo", "as root"),
    ],
)
def test_what_went_wrong_is_said_with_a_way_out(code: int, err: str, message: str, help_: str) -> None:
    error = why_not_run(DUO, code, err)
    assert error
    assert message in error.message
    assert help_ in error.help


CLOSED = "kex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535\n"


@pytest.mark.parametrize(
    ("err", "said"),
    [
        (f"tom@door: Permission denied (publickey).\n{CLOSED}", "tom@door: Permission denied (publickey)."),
        (f"ssh: connect to host door port 22: Connection refused\n{CLOSED}", "door port 22: Connection refused"),
        (f"No ED25519 host key is known for door.\nHost key verification failed.\n{CLOSED}", "verification failed."),
        (f"channel 0: open failed: connect failed: No route\nstdio forwarding failed\n{CLOSED}", "No route"),
        (CLOSED, "kex_exchange_identification: Connection closed by remote host"),
    ],
)
def test_a_jump_host_that_leads_nowhere_is_no_fault_of_the_rig(err: str, said: str) -> None:
    error = why_not_run(DUO, 255, err)
    assert error
    assert error.message.startswith("the jump host does not connect to duo.lan: ")
    assert error.message.endswith(said)
    assert "`ssh tom@duo.lan`" in error.help


def test_a_script_that_ran_and_failed_is_no_error_of_the_connection() -> None:
    assert why_not_run(DUO, 1, "tom: Permission denied") is None
    assert why_not_run(DUO, 0, "sudo: a password is required") is None


@pytest.mark.parametrize("kind", [("ed25519",), ("rsa", "-m", "PEM"), ("ecdsa", "-m", "PKCS8")], ids=" ".join)
@pytest.mark.parametrize("passphrase", ["", "secret"])
def test_a_key_with_a_passphrase_is_told_from_one_that_is_not_let_in(
    tmp_path: Path, kind: tuple[str, ...], passphrase: str
) -> None:
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", *kind, "-N", passphrase, "-f", str(key)], check=True)
    error = why_not_run(Connect(host="duo", key=key), 255, "tom@duo: Permission denied (publickey).")
    assert error
    assert (f"{key} has a passphrase" in error.message) == bool(passphrase)
    assert (f"ssh-add {key}" in error.help) == bool(passphrase)


def test_a_shell_that_ends_at_once_is_said_with_its_last_words() -> None:
    error = not_started(DUO, 0, "", "bye \x1b[31m\x07now\n")
    assert "ended before it ran the command; its last line: bye now" in error.message
    assert "sudo" in not_started(DUO, 1, "sudo: a password is required\n", "").message


def test_a_connection_that_is_lost_is_no_failure_of_the_script() -> None:
    error = lost(DUO, 255, "client_loop: send disconnect: Broken pipe")
    assert error
    assert "was lost while a command ran" in error.message
    assert lost(DUO, 255, "a script that ends with 255") is None
    assert lost(DUO, 1, "Broken pipe") is None


@pytest.mark.parametrize(("code", "unfinished"), [(-9, False), (-15, False), (255, True)])
def test_a_client_that_was_killed_has_lost_its_connection(code: int, unfinished: bool) -> None:
    error = lost(DUO, code, "", unfinished=unfinished)
    assert error
    assert "the connection to duo.lan was lost" in error.message
    assert "run the command again: it waits" in error.help
    assert lost(HERE, code, "", unfinished=unfinished) is None


OTHER = Connect(host="duo.lan")
CLIENT = """\
echo 'llamaherd: a shell is there'
while read -r line; do case $line in *'llamaherd: go'*) break ;; esac; done
echo 'llamaherd: go'
cat >/dev/null
echo '{"event":"progress","text":"starting llama-chat"}'
"""
"""A client of SSH that logs in, and whose host runs the program."""


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("end", ["kill -9 $$", "kill -15 $$", "exit 255"])
def test_a_connection_that_is_killed_while_a_verb_runs_is_lost(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client prints nothing then, and neither does the verb."""
    monkeypatch.setattr(remote, "argv", lambda *_, **__: ["sh", "-c", CLIENT + end])
    heard: list[str] = []
    events = Events(lambda _, line: heard.append(line))
    with Shell(OTHER, fresh=True) as shell, pytest.raises(RemoteError, match="the connection to duo"):
        shell.run_program(packed_program(), b"{}", events, Patience.within(20))
    assert heard == ["starting llama-chat\n"]


@pytest.mark.usefixtures("starts_processes")
def test_a_verb_that_has_failed_is_no_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = """echo '{"event":"error","message":"no room","help":"","log":[]}'; exit 255"""
    monkeypatch.setattr(remote, "argv", lambda *_, **__: ["sh", "-c", CLIENT + failed])
    events = Events(lambda *_: None)
    with Shell(OTHER, fresh=True) as shell:
        assert shell.run_program(packed_program(), b"{}", events, Patience.within(20)) == 255
    assert events.error == ("no room", "")


@pytest.mark.usefixtures("starts_processes")
def test_a_port_that_is_declared_is_in_the_way_out() -> None:
    declared = DUO.model_copy(update={"port": 2222})
    for err, help_ in (
        (CHANGED, "-R '[duo.lan]:2222'"),
        (UNKNOWN, "ssh-keyscan -p 2222 duo.lan"),
        ("?", "ssh -p 2222 tom"),
    ):
        error = why_not_run(declared, 255, err)
        assert error
        assert help_ in error.help


@dataclass(frozen=True)
class Ended:
    """The exit code of a script, and its output."""

    code: int
    out: str
    err: str


def run(script: str, seconds: float = 60) -> Ended:
    """Run a script on this machine, within so many seconds from its login to its end."""
    printed = {"stdout": "", "stderr": ""}

    def hear(stream: str, line: str) -> None:
        printed[stream] += line

    patience = Patience.within(seconds)
    with Shell(HERE, login_seconds=min(seconds, remote.LOGIN_SECONDS)) as shell:
        code = shell.run(script, hear, patience)
    return Ended(code, printed["stdout"], printed["stderr"])


@pytest.mark.usefixtures("starts_processes")
@needs_root
@pytest.mark.parametrize("endless", ["yes", "tr '\\0' x </dev/zero", "yes oops >&2", "while :; do echo; done"])
def test_an_answer_without_end_is_cut_off(endless: str) -> None:
    """Whether it is lines or one line, and on whichever stream; a host that does so is no reason to fill our memory."""
    with pytest.raises(RemoteError, match="this machine does not stop printing"):
        run(endless)


@pytest.mark.usefixtures("starts_processes")
@needs_root
def test_a_shell_that_talks_without_end_before_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "argv", lambda *_, **__: ["yes"])
    with pytest.raises(RemoteError, match="the login shell of this machine does not stop printing"):
        run("echo")


@pytest.mark.usefixtures("starts_processes")
@needs_root
def test_a_shell_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "argv", lambda *_, **__: ["sleep", "60"])
    monkeypatch.setattr(remote, "LOGIN_SECONDS", 0.1)
    with pytest.raises(RemoteError, match="started no shell within 0 s"):
        run("echo")


DRIPS = "while :; do printf x; sleep 0.02; done"
"""Says something all the time, and never a line."""


@needs_root
@pytest.mark.parametrize("says", [DRIPS, f"echo half; {DRIPS} >&2", "echo half; exec sleep 60", "exec sleep 60"])
def test_a_script_that_drips_or_falls_silent_half_way_ends_in_time(says: str) -> None:
    began = time.monotonic()
    with pytest.raises(RemoteError, match="this machine did not finish within 1 s"):
        run(says, seconds=1)
    assert time.monotonic() - began < 4


@needs_root
@pytest.mark.parametrize("says", [DRIPS, "exec sleep 60"])
def test_a_login_that_drips_is_within_the_same_time(says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "argv", lambda *_, **__: ["sh", "-c", says])
    began = time.monotonic()
    with pytest.raises(RemoteError, match="this machine started no shell within 1 s"):
        run("echo", seconds=1)
    assert time.monotonic() - began < 4


@needs_root
def test_the_time_of_a_login_counts_and_not_that_of_making_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "argv", lambda *_, **__: ["sh", "-c", "sleep 0.7; exec sh -s"])

    def document() -> bytes:
        time.sleep(1)
        return b"{}"

    def perform(script: str) -> int:
        play_verb(monkeypatch, script)
        return Remote(HERE).perform(packed_program(), document, Events(lambda *_: None), 1.6)

    assert perform("sleep 0.1; exit 3") == 3
    with pytest.raises(RemoteError, match="did not finish within 2 s"):
        perform("exec sleep 1.2")


def test_results_come_in_their_order_and_late_ones_after_all_others() -> None:
    later: dict[str, Future[int]] = {name: Future() for name in ("attic", "box", "duo", "six")}
    later["box"].set_result(2)
    later["six"].set_result(4)
    Timer(0.6, later["duo"].set_result, [3]).start()
    Timer(1.2, later["attic"].set_result, [1]).start()
    came = [(name, each, time.monotonic()) for name, each in remote.as_they_come(later, in_order=0.1)]
    assert [each[:2] for each in came] == [("box", 2), ("six", 4), ("duo", 3), ("attic", 1)]
    assert came[3][2] - came[1][2] > 0.8
    assert [name for name, _ in remote.as_they_come(later, in_order=0)] == ["attic", "box", "duo", "six"]


@pytest.mark.usefixtures("starts_processes")
@needs_root
def test_what_start_files_print_is_nobodys_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        remote, "argv", lambda *_, **__: ["sh", "-c", "echo hello; printf 'ca\\351'; echo x >&2; exec sh -s"]
    )
    ended = run("echo mine; echo oops >&2")
    assert (ended.out, ended.err) == ("mine\n", "oops\n")


@pytest.mark.usefixtures("starts_processes")
@needs_root
def test_what_is_no_utf8_is_shown_as_that() -> None:
    ended = run("printf 'caf\\351\\n'; printf '\\303' >&2")
    assert (ended.out, ended.err) == ("caf\N{REPLACEMENT CHARACTER}\n", "\N{REPLACEMENT CHARACTER}")


@pytest.mark.usefixtures("starts_processes")
@needs_root
def test_a_script_may_be_larger_than_a_pipe() -> None:
    script = f"wc -c <<'END'\n{'x' * 1_000_000}\nEND\n"
    assert run(script).out.strip() == "1000001"


@pytest.mark.usefixtures("starts_processes")
@needs_root
def test_this_machine_runs_a_script_too() -> None:
    ended = run("id -u; echo oops >&2; exit 3")
    assert (ended.code, ended.out, ended.err) == (3, "0\n", "oops\n")
    with pytest.raises(RemoteError, match="did not finish within 0 s"):
        run("exec sleep 10", seconds=0.1)


@pytest.mark.usefixtures("starts_processes")
@needs_root
def test_lines_arrive_while_the_script_runs(tmp_path: Path) -> None:
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    script = f"echo one; printf 'tw\\303'; {wait}; printf '\\266o\\nrest'; exit 3"
    with Shell(HERE) as shell:
        lines = shell.lines(script, Patience.within(60))
        assert next(lines) == ("stdout", "one\n")
        (tmp_path / "go").touch()
        assert list(lines) == [("stdout", "twöo\n"), ("stdout", "rest")]


def trap(folder: Path) -> str:
    """Return commands by which a script notes that it is ended."""
    return f"trap 'echo gone >{folder}/noted; kill $!; exit' TERM"


@pytest.mark.usefixtures("starts_processes")
@needs_root
def test_a_script_that_is_silent_is_ended(tmp_path: Path) -> None:
    with Shell(HERE) as shell:
        # Seconds for its start, and fewer than its silence.
        lines = shell.lines(f"{trap(tmp_path)}; echo; sleep 60 & wait", Patience(3, 60))
        assert next(lines) == ("stdout", "\n")
        with pytest.raises(RemoteError, match="has sent nothing for 3 s"):
            next(lines)
    assert (tmp_path / "noted").read_text() == "gone\n"


INTERRUPTED = """
from llamaherd.host.remote import Patience
from llamaherd.host.remote import Shell
from llamaherd.inventory.schema import LOCAL, Connect

with Shell(Connect(host="@local")) as shell:
    try:
        print("there", flush=True)
        input()
    except KeyboardInterrupt:
        shell.run("echo still there", lambda _, line: print(line, end=""), Patience.within(20))
"""


@needs_root
def test_ctrl_c_is_not_the_clients() -> None:
    """As a terminal sends it: to all processes of the group."""
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with program:
        assert program.stdout
        assert program.stdout.readline() == "there\n"
        os.killpg(program.pid, signal.SIGINT)
        assert program.stdout.read() == "still there\n"
    assert program.returncode == 0


def test_nothing_listens_there() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, but not listening: refused, and nobody else gets it
        port = held.getsockname()[1]
        with pytest.raises(RemoteError, match=f"nothing listens for SSH at 127.0.0.1 port {port}"):
            Shell(Connect(host="127.0.0.1", port=port))


def test_a_key_that_is_not_there() -> None:
    with pytest.raises(RemoteError, match="there is no SSH key at /nowhere/key"):
        Shell(Connect(host="127.0.0.1", key=Path("/nowhere/key")))
