"""What the look says of servers: its own functions, on real folders and real processes."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from llamaherd.host.serving import DECIDING, ServingState
from llamaherd.plan import InstancePlan
from llamaherd.render import render
from tests.support.rigs import cpu_rig, planned

SERVER = """
import socket, sys, threading, time
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
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass
    time.sleep(0.08)
"""
"""One that answers, if only that it cannot; one that computes and answers nobody; one that does neither.

The one that computes takes a fifth of a core.
"""


SAY = """say() {
    printf '%s' "$1"
    shift
    printf '\\t%s' "$@"
    printf '\\n'
}
"""


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
    functions = template[: template.index("# From here on the host is asked.")]
    done = subprocess.run(["sh", "-s"], input=SAY + functions + call, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


SYSTEMCTL = """#!/bin/sh
# As systemd's: what it is asked for by name, then by pattern; at a template it says nothing and gives up.
[ "$1" = show ] || exit 1
for name; do :; done
case $* in *llama-@.service*) exit 1 ;; esac
[ "$name" = 'llama-*.service' ] && cat "${0%/*}/units"
"""


def seen_units(folder: Path, blocks: Sequence[str], units: Sequence[InstancePlan] = ()) -> list[str]:
    """The units that are seen where systemd says this of those that it has."""
    (folder / "systemctl").write_text(SYSTEMCTL)
    (folder / "systemctl").chmod(0o755)
    (folder / "units").write_text("\n\n".join(blocks) + "\n")
    template = render(
        "serve/inspect-units.sh.j2", root=folder, units=units, before_ours=(), unit_roots=(), deciding=DECIDING
    )
    done = subprocess.run(
        ["sh", "-s"],
        input=SAY + template + "ask_all\n",
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_each_unit_of_ours_is_seen_once_with_what_its_process_was_given(tmp_path: Path) -> None:
    command = ["sh", "-c", "sleep 60; :", "sh", "--port", "1", "--host", "a b", "--port", "8080"]
    ours = subprocess.Popen(command, env={"A": "b\nc", "LLAMAHERD_SPEC": "0a1b", "PATH": os.environ["PATH"]})
    theirs = subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"]})
    try:
        while b"--port" not in Path(f"/proc/{ours.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        said = "ActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\nInvocationID=ff=ee="
        blocks = [
            f"MainPID={theirs.pid}\nId=llama-b.service\nNames=llama-b.service\n{said}",
            f"MainPID={ours.pid}\nId=llama-a.service\nNames=llama-a.service other.service\n{said}",
            f"MainPID={ours.pid}\nId=llama-a.service\nNames=other.service llama-a.service\n{said}",
            f'MainPID={ours.pid}\nId=llama-x\\x2dy.service\nNames="llama-x\\\\x2dy.service"\n{said}',
            "MainPID=0\nId=llama-d.service\nNames=llama-d.service\nActiveState=failed",
        ]
        facts = "active\tenabled\tno\tff=ee=\t0a1b\t8080\t"
        assert seen_units(tmp_path, blocks) == [f"unit\tllama-a\t{facts}", f"unit\tllama-x\\x2dy\t{facts}"]
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()


def test_a_unit_without_a_process_waits_for_the_port_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "etc/systemd/system/llama-a.service"
    file.parent.mkdir(parents=True)
    file.write_text(
        "# Written by llamaherd\nExecStart=/b/llama-server --model m.gguf --host :: --port 8080 --metrics\n"
    )
    said = "ActiveState=activating\nUnitFileState=enabled\nNeedDaemonReload=no\nInvocationID=ff"
    blocks = [f"MainPID=0\nId=llama-a.service\nNames=llama-a.service\n{said}"]
    assert seen_units(tmp_path, blocks) == ["unit\tllama-a\tactivating\tenabled\tno\tff\t\t\t8080"]


def test_a_unit_that_systemd_knows_not_is_none(tmp_path: Path) -> None:
    assert seen_units(tmp_path, []) == []


def test_what_is_no_unit_keeps_none_from_being_seen(tmp_path: Path) -> None:
    (tmp_path / "units").write_text("Id=llama-a.service\n")
    (tmp_path / "systemctl").write_text(SYSTEMCTL)
    (tmp_path / "systemctl").chmod(0o755)
    path = f"PATH={shlex.quote(str(tmp_path))}:$PATH\n"
    call = "for each in 'llama-@.service' 'llama-*.service'; do show_units \"$each\" || echo not; done\n"
    assert say(path + call) == "\nnot\nId=llama-a.service\n\n"


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


LISTENS = """
import socket, sys, time
family = socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET
at = socket.create_server((sys.argv[2], int(sys.argv[4])), family=family)
while sys.argv[5] == "answers":
    there, _ = at.accept()
    there.recv(1000)
    there.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n")
    there.close()
time.sleep(600)
"""


@pytest.mark.parametrize(("listens", "at"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "::1")])
@pytest.mark.parametrize("does", ["answers", "hangs"])
def test_a_server_is_queried_where_it_listens_and_not_where_it_is_planned_to(
    tmp_path: Path, listens: str, at: str, does: str
) -> None:
    plan = planned(cpu_rig(), {"instances/chat/port": 9})
    with socket.socket(socket.AF_INET6 if ":" in at else socket.AF_INET) as free:
        free.bind((at, 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", LISTENS, "--host", listens, "--port", str(port), does]
    process = subprocess.Popen(command, env={"LLAMAHERD_SPEC": "0a1b", "PATH": os.environ["PATH"]})
    try:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                socket.create_connection((at, port)).close()
                break
            except OSError:
                time.sleep(0.05)
        said = "ActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\nInvocationID=ff"
        block = f"MainPID={process.pid}\nId=llama-chat.service\nNames=llama-chat.service\n{said}"
        lines = seen_units(tmp_path, [block], plan.of("systemd"))
        assert f"unit\tllama-chat\tactive\tenabled\tno\tff\t0a1b\t{port}\t" in lines
        hangs = [line for line in lines if "\thangs\t" in line]
        assert bool(hangs) == (does == "hangs")
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("server", ["answers", "is deadlocked"], indirect=True)
def test_servers_that_are_asked_together_are_told_apart(
    request: pytest.FixtureRequest, server: tuple[int, str]
) -> None:
    well = subprocess.Popen([sys.executable, "-c", SERVER, "answers"], stdout=subprocess.PIPE, text=True)
    assert well.stdout
    one_that_is_well = f"{well.pid} http://127.0.0.1:{int(well.stdout.readline())}/health"
    calls = [f"llama-b {one_that_is_well}", f"llama-a {server[0]} {server[1]}", f"llama-c {one_that_is_well}"]
    said = say("".join(f"ask_later {call}\n" for call in calls) + "ask_all\n")
    hung = "serving\tllama-a\thangs\tit answers nobody, and does nothing\n"
    assert said == (hung if request.node.callspec.id == "is deadlocked" else "")
    well.kill()
    well.wait()


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
