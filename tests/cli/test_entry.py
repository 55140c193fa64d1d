"""`herd` as a process: outputs that take nothing, signals at any moment, and what it leaves behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
import yaml

from llamaherd.deploy.run import INTERRUPTED
from tests.support.rigs import ROOT, changed, cpu_rig

HERD = str(Path(sys.executable).with_name("herd"))
EMPTY = "host: {os: debian-13, cpu: {cores: 2}, ram: 8GB}\nengines: {}\nmodels: {}\ninstances: {}\n"
"""Of a rig: nothing is to be on it."""
TALKATIVE = [
    ["--help"],
    ["--version"],
    ["up", "--help"],
    ["completion", "bash"],
    ["-i", "inventory/examples", "check"],
    ["-i", "BOX", "check", "--json"],
    ["-i", "BOX", "show"],
    ["-i", "BOX", "show", "--json"],
]


# Other tests make and remove the files that the repository's box names: what is read twice lies in a folder of its own.
@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The repository's rig in a box, where none of its files is."""
    return str(shutil.copy(ROOT / "inventory" / "box.yaml", tmp_path_factory.mktemp("fleet")))


ended_by = pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda each: each.name)


def herd(box: str, arguments: list[str], stdout: int, **more: str) -> tuple[int, str]:
    """How it ended, and what it said on stderr; BOX among the arguments stands for the box's inventory."""
    ended = subprocess.run(
        [HERD, *(box if each == "BOX" else each for each in arguments)],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, **more},
        check=False,
    )
    return ended.returncode, ended.stderr.decode()


@pytest.mark.parametrize("arguments", TALKATIVE, ids=" ".join)
def test_an_output_that_is_full_is_a_sentence(box: str, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        code, said = herd(box, arguments, full.fileno())
    assert code == 1
    assert said.endswith("herd: cannot write the output: No space left on device\n")
    assert "Traceback" not in said
    assert "Exception ignored" not in said


@pytest.mark.parametrize("arguments", TALKATIVE, ids=" ".join)
def test_whoever_reads_no_further_is_told_nothing(box: str, arguments: list[str]) -> None:
    nobody, pipe = os.pipe()
    os.close(nobody)
    quiet = herd(box, arguments, subprocess.DEVNULL)
    code, said = herd(box, arguments, pipe)
    os.close(pipe)
    assert code != 0
    assert said == quiet[1]


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "2>&-"])
def test_an_output_that_is_closed(closed: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", f"'{HERD}' --version {closed}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode == 0) == (closed == "2>&-")
    assert ended.stderr == (
        "herd: stdout is closed\n  help: leave it open, or use `>/dev/null`\n" if closed == ">&-" else ""
    )


def test_what_the_terminal_has_no_letters_for(tmp_path: Path) -> None:
    (tmp_path / "Käse.sh").write_text("llama-server -m /models/cheese.gguf -c 4096\n")
    for variables in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}):
        ended = subprocess.run(
            [HERD, "check", str(tmp_path / "Käse.sh")],
            cwd=ROOT,
            capture_output=True,
            env={**os.environ, **variables},
            check=False,
        )
        assert b"Traceback" not in ended.stderr
        # As it is, or with a mark for each byte that is no letter here.
        assert re.search(rb"K(\xc3\xa4|\?{1,2}|(\xef\xbf\xbd){1,2})se\.sh:1", ended.stdout), ended.stdout


@pytest.mark.parametrize("module", ["click", "llamaherd/cli/herd", "llamaherd/pipeline/load"])
@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_it_is_loading(box: str, tmp_path: Path, module: str, by: signal.Signals, code: int) -> None:
    """Sent by what is being imported: at that very moment, on any machine."""
    starting = tmp_path / "sitecustomize.py"
    starting.write_text(f"""
import os, sys

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == {module.replace("/", ".")!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {int(by)})

sys.meta_path.insert(0, Hook())
""")
    got, said = herd(box, ["-i", "BOX", "show"], subprocess.DEVNULL, PYTHONPATH=str(tmp_path))
    assert (got, said) == (code, "interrupted\n" if by == signal.SIGINT else "")


def test_a_signal_while_a_class_is_made(box: str, tmp_path: Path) -> None:
    """Python 3.11 wraps what is raised there."""
    (tmp_path / "sitecustomize.py").write_text("""
import os, sys

class Named:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), 2)
        for _ in range(100):
            pass  # it is raised here

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == "llamaherd.pipeline.load":
            sys.meta_path.remove(self)
            type("Made", (), {"named": Named()})

sys.meta_path.insert(0, Hook())
""")
    got = herd(box, ["-i", "BOX", "show"], subprocess.DEVNULL, PYTHONPATH=str(tmp_path))
    assert got == (130, "interrupted\n")


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """What greets as an SSH server, and says nothing after that: a client is given up after half a minute."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(300)
        yield server


LOOK, RUN = ["up"], ["up", "-vv"]
"""A look at hosts comes before a run, unless facts are to be shown."""


@pytest.mark.parametrize("command", [LOOK, RUN], ids=" ".join)
@ended_by
def test_nothing_outlives_it(tmp_path: Path, silent: socket.socket, by: signal.Signals, command: list[str]) -> None:
    process, client = _connecting(tmp_path, silent, command)
    with client:
        left = _below(process.pid)
        assert left, "the ssh client that it started"
        process.send_signal(by)
        client.settimeout(300)
        with suppress(ConnectionResetError):  # where it has not read ours
            while client.recv(4096):
                pass  # what it had sent before
    process.communicate(timeout=300)
    assert process.returncode == (-signal.SIGKILL if by == signal.SIGKILL else 128 + by)
    _all_gone(left)


@pytest.mark.parametrize("command", [RUN, ["rollback", "one", "--yes"]], ids=" ".join)
def test_ctrl_c_ends_a_run_of_pyinfra_at_once_with_one_line(
    tmp_path: Path, silent: socket.socket, command: list[str]
) -> None:
    process, client = _connecting(tmp_path, silent, command)
    with client:
        began = monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(timeout=300)
        took = monotonic() - began
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (130, "")
    assert err.endswith(INTERRUPTED)
    assert "Traceback" not in err
    assert took < 2


def test_whoever_interrupts_a_look_is_told_no_more(tmp_path: Path, silent: socket.socket) -> None:
    process, client = _connecting(tmp_path, silent, LOOK)
    with client:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (130, "", "--> Inspecting 1 host...\ninterrupted\n")


@pytest.mark.parametrize(
    "command",
    [
        *("plan", "diff", "up --dry-run", "up -q --yes", "status", "verify", "preflight", "history", "doctor", "top"),
        *("stop box/chat", "start box/chat", "restart box", "pause box --for 1h", "resume box", "logs box/chat"),
        *("models", "models prune --yes", "prune --dry-run", "prune --yes", "unlock one", "chat box/chat hi"),
        *("support-bundle -o FOLDER/bundle", "down one --dry-run", "down one --purge --yes", "rollback one --dry-run"),
    ],
)
def test_ctrl_c_in_each_command_is_one_line(
    tmp_path: Path, silent: socket.socket, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_KEY", "canary")
    serving = changed(cpu_rig(), {"connect/port": silent.getsockname()[1]})
    words = [word.replace("FOLDER", str(tmp_path)) for word in command.split()]
    process, client = _connecting(tmp_path, silent, words, yaml.safe_dump(serving) if "box" in command else "")
    with client:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    said = [line for line in err.splitlines() if line and not line.startswith("--> ") and "`herd check`" not in line]
    assert (process.returncode, len(said)) == (130, 1), err
    assert said[0].startswith("interrupted")
    assert "Traceback" not in out


@pytest.mark.parametrize("command", ["bench box chat", "tune box chat", "compare --run box/chat --with batch=256"])
def test_whoever_interrupts_a_measurement_is_told_that_it_goes_on(
    tmp_path: Path, silent: socket.socket, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_KEY", "canary")
    rig = changed(cpu_rig(), {"connect/port": silent.getsockname()[1]})
    process, client = _connecting(tmp_path, silent, command.split(), yaml.safe_dump(rig))
    with client:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    kept = "results so far are saved: run the same command again to resume"
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == f"interrupted; {kept}"
    assert "Traceback" not in err


def _connecting(
    folder: Path, silent: socket.socket, command: list[str], rig: str = ""
) -> tuple[subprocess.Popen[str], socket.socket]:
    """A command in the middle of logging in."""
    (folder / "one.yaml").write_text(
        rig or f"rig: one\nconnect: {{host: 127.0.0.1, port: {silent.getsockname()[1]}}}\n{EMPTY}"
    )
    process = subprocess.Popen(
        [HERD, "-i", str(folder), *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    client, _ = silent.accept()
    client.sendall(b"SSH-2.0-nobody\r\n")
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.01)  # it is about to wait for the client
    return process, client


def _below(pid: int) -> set[int]:
    """All processes that a process has started, and those that these have."""
    children: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended since has no children left
            children += map(int, file.read_text().split())
    return set(children).union(*map(_below, children))


def _all_gone(pids: set[int]) -> None:
    """Wait until none of them runs any more; one that nobody has asked about yet is a zombie."""
    deadline = time.monotonic() + 300
    while left := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_package_runs_as_a_module() -> None:
    words = [sys.executable, "-m", "llamaherd.cli", "--version"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == subprocess.run([HERD, "--version"], capture_output=True, text=True, check=True).stdout
