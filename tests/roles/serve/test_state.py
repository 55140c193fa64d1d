"""What the look says of servers: its own functions, on real folders and real processes."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.host.serving import DECIDING, ServingState
from llamaherd.render import render
from tests.support.machine import SAY

SERVER = """
import socket, sys, threading
at = socket.create_server(("127.0.0.1", 0))
print(at.getsockname()[1], flush=True)
def answer():
    while True:
        there, _ = at.accept()
        if sys.argv[1] == "answers":
            there.recv(1000)
            there.sendall(b"HTTP/1.0 503 Loading\\r\\n\\r\\n")
            there.close()
        else:
            kept.append(there)
kept = []
threading.Thread(target=answer).start()
while sys.argv[1] == "is busy":
    pass
"""
"""One that answers, if only that it cannot; one that computes and answers nobody; one that does neither."""


def say(call: str, roots: Path = Path("/nonexistent")) -> str:
    """What the look's functions print."""
    template = render(
        "serve/inspect-units.sh.j2",
        root="",
        units=(),
        before_ours=(f"{roots}/before",),
        unit_roots=(f"{roots}/before", f"{roots}/system", f"{roots}/run"),
        deciding=DECIDING,
    )
    functions = template[: template.index("units=$({")]
    done = subprocess.run(["sh", "-s"], input=SAY + functions + call, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


def look(call: str, roots: Path = Path("/nonexistent")) -> ServingState:
    """What the look's functions say, read."""
    seen = ServingState()
    for line in say(call, roots).splitlines():
        kind, name, what, *fields = line.split("\t")
        assert (kind, name) == ("serving", "llama-a")
        seen.tell(what, fields)
    return seen


def foreign(roots: Path) -> ServingState:
    """Of a unit."""
    return look("foreign llama-a.service service.d llama-.service.d | told llama-a\n", roots)


@pytest.mark.parametrize("name", ["override.conf", "my own.conf", "it's.conf"])
@pytest.mark.parametrize("root", ["before", "system", "run"])
def test_a_drop_in_is_found_wherever_it_lies(tmp_path: Path, root: str, name: str) -> None:
    file = tmp_path / root / "llama-a.service.d" / name
    file.parent.mkdir(parents=True)
    file.write_text("[Service]\nMemoryMax=1G\n")
    (file.parent / "README").write_text("systemd reads no such file")
    assert foreign(tmp_path) == ServingState(foreign=[str(file)])


def test_a_definition_that_comes_before_ours_is_found(tmp_path: Path) -> None:
    for root in ("before", "system", "run"):
        (tmp_path / root).mkdir()
        (tmp_path / root / "llama-a.service").symlink_to("/dev/null")
    assert foreign(tmp_path) == ServingState(foreign=[str(tmp_path / "before" / "llama-a.service")])


@pytest.mark.parametrize("folder", ["service.d", "llama-.service.d"])
@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("[Service]\nExecStart=\n ExecStart = /bin/a\nUser=root\n", "ExecStart User"),
        ("[Service]\nEnvironment=A=b ExecStart=c\n", "Environment"),
        ("[Service]\n# ExecStart=/bin/a\nNoNewPrivileges=no\nProtectProc=default\n", ""),
        ("", ""),
    ],
    ids=["what is run", "environment", "walls", "empty"],
)
def test_a_drop_in_for_all_counts_where_it_decides(tmp_path: Path, folder: str, text: str, keys: str) -> None:
    file = tmp_path / "system" / folder / "10-all.conf"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (tmp_path / "system" / "other.service.d").mkdir()
    (tmp_path / "system" / "other.service.d" / "a.conf").write_text("[Service]\nUser=root\n")
    assert foreign(tmp_path) == ServingState(shared={str(file): keys} if keys else {})


def test_a_unit_is_held_to_what_it_would_start_with_after_drop_ins_of_others_went(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "system" / "llama-a.service.d" / "my own.conf", "/usr/lib/systemd/system/service.d/1.conf"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("[Service]\nNice=5\n")
    kept = ["run\t1", f"file\tbb\t{ours}", f"key\tcc\t{theirs}"]
    lines = "\n".join([f"file\taa\t{theirs}", *kept])
    assert say(f"ours_of llama-a.service <<'END'\n{lines}\nEND\n", tmp_path).splitlines() == kept


@pytest.mark.parametrize(
    ("variables", "declared", "strangers", "names"),
    [
        ({"A": "b", "EMPTY": "", "HOME": "/"}, ["A=b", "EMPTY="], "^(LLAMA|LD)_", ""),
        ({"A": "c"}, ["A=b", "GONE=1"], "^LLAMA_", "A GONE"),
        ({"LLAMA_ARG_N_PREDICT": "3", "LLAMAHERD_SPEC": "x"}, [], "^(LLAMA|LD)_", "LLAMA_ARG_N_PREDICT"),
        ({"LLAMA_ARG_N_PREDICT": "3"}, [], "", ""),
        ({"A": "b=c 'd' \\", "B": "two\nLLAMA_ARG_HOST=lines"}, ["A=b=c 'd' \\"], "^LLAMA_", ""),
    ],
)
def test_variables_that_a_process_has_otherwise(
    variables: dict[str, str], declared: list[str], strangers: str, names: str
) -> None:
    process = subprocess.Popen(["/bin/sleep", "60"], env=variables)
    try:
        while b"sleep" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        wanted = " ".join(map(shlex.quote, declared))
        call = f"printf '%s\\n' {wanted} | variables {process.pid} {shlex.quote(strangers)} | told llama-a\n"
        assert look(call).variables == names
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[tuple[int, str]]:
    """A process, and where it is asked."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, request.param], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    yield process.pid, f"http://127.0.0.1:{int(process.stdout.readline())}/health"
    process.kill()
    process.wait()


def hangs(server: tuple[int, str]) -> str:
    """Why it surely hangs, if it does."""
    return look(f"hangs llama-a {server[0]} {server[1]}\n").hangs


@pytest.mark.parametrize("server", ["answers", "is busy"], indirect=True)
def test_a_server_that_answers_or_computes_does_not_hang(server: tuple[int, str]) -> None:
    assert hangs(server) == ""


@pytest.mark.parametrize("server", ["is deadlocked"], indirect=True)
def test_a_server_that_does_neither_hangs(server: tuple[int, str]) -> None:
    assert hangs(server) == "it answers nobody, and does nothing"


@pytest.mark.parametrize("server", ["answers"], indirect=True)
def test_a_server_that_is_stopped_hangs_and_is_not_waited_for(server: tuple[int, str]) -> None:
    os.kill(server[0], signal.SIGSTOP)
    while " T " not in Path(f"/proc/{server[0]}/stat").read_text():
        time.sleep(0.01)
    assert hangs(server) == "its process is stopped (SIGSTOP)"


def test_a_port_that_nobody_listens_at_while_its_process_sleeps_is_no_server() -> None:
    process = subprocess.Popen(["sleep", "600"])
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and nobody else can take it meanwhile
        at = f"http://127.0.0.1:{held.getsockname()[1]}/health"
        assert hangs((process.pid, at)) == "it answers nobody, and does nothing"
    process.kill()
    process.wait()
