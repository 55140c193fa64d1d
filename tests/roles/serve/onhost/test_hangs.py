"""Servers that hang, told apart from those that are busy, by real processes and sockets; and by a played host."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.onhost.system import Host
from roles.serve.onhost.containers import Probes
from roles.serve.onhost.inspection import SILENT, STOPPED, find_hangs, hangs
from roles.serve.onhost.model import Probed
from tests.support.inspected_host import InspectedHost
from tests.support.played_host import File

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
HOST = Host(lambda _: None, lambda _: None)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Probed]:
    """Return a process, and where it is probed."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, request.param], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    yield Probed("llama-a", str(process.pid), f"http://127.0.0.1:{int(process.stdout.readline())}/health")
    process.kill()
    process.wait()


@pytest.mark.parametrize("server", ["answers", "is busy"], indirect=True)
def test_a_server_that_answers_or_computes_does_not_hang(server: Probed) -> None:
    assert hangs(server, HOST, Probes()) == ""


@pytest.mark.parametrize("server", ["is deadlocked"], indirect=True)
def test_a_server_that_does_neither_hangs(server: Probed) -> None:
    assert hangs(server, HOST, Probes()) == SILENT


@pytest.mark.parametrize("server", ["answers"], indirect=True)
def test_a_server_that_is_stopped_hangs_and_is_not_waited_for(server: Probed) -> None:
    os.kill(int(server.pid), signal.SIGSTOP)
    while " T " not in Path(f"/proc/{server.pid}/stat").read_text():
        time.sleep(0.01)
    began = time.monotonic()
    assert hangs(server, HOST, Probes()) == STOPPED
    assert time.monotonic() - began < 0.5


def test_a_port_that_nobody_listens_at_while_its_process_sleeps_is_no_server() -> None:
    process = subprocess.Popen(["sleep", "600"])
    while " (sleep) S " not in Path(f"/proc/{process.pid}/stat").read_text():
        time.sleep(0.01)  # a program that still starts computes
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and nobody else can take it meanwhile
        at = f"http://127.0.0.1:{held.getsockname()[1]}/health"
        assert hangs(Probed("llama-a", str(process.pid), at), HOST, Probes()) == SILENT
    process.kill()
    process.wait()


IDLE = "S 1 0 0 0 0 0 0 0 7 0 5 5"
PROBED = Probed("llama-a", "7", "http://127.0.0.1:8080/health")


def played(*, silent: bool = True) -> InspectedHost:
    """Return a host with one server, which does nothing."""
    host = InspectedHost()
    host.process(7, "llama-server", stat=IDLE)
    host.silent = {":8080"} if silent else set()
    return host


def test_a_server_is_probed_three_times_before_it_hangs() -> None:
    host = played()
    assert hangs(PROBED, host, host) == SILENT
    assert host.requested == [PROBED.url] * 3


def test_a_server_that_responds_is_probed_once() -> None:
    host = played(silent=False)
    assert (hangs(PROBED, host, host), host.requested) == ("", [PROBED.url])


def test_a_server_that_responds_late_does_not_hang() -> None:
    host = played()

    class Late(InspectedHost):
        def responds(self, url: str, seconds: float) -> bool:
            del url
            return seconds == 2

    assert hangs(PROBED, host, Late()) == ""


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (IDLE, "S 1 0 0 0 0 0 0 0 7 0 6 6", SILENT),
        (IDLE, "S 1 0 0 0 0 0 0 0 7 0 7 6", ""),
        (IDLE, "S 1 0 0 0 0 0 0 0 8 0 5 5", ""),
        (IDLE, "", ""),
        ("", IDLE, ""),
        ("T 1 0 0 0 0 0 0 0 7 0 5 5", IDLE, STOPPED),
    ],
    ids=["two ticks", "three ticks", "a page from disk", "ended", "has ended before", "stopped"],
)
def test_what_counts_as_doing_nothing(before: str, after: str, why: str) -> None:
    host = played()
    stat = "/proc/7/stat"
    host.files[stat] = File(f"7 (a) b) {before}")

    class Silent(InspectedHost):
        def responds(self, url: str, seconds: float) -> bool:
            del url
            if seconds > 1:
                host.files[stat] = File(f"7 (a) b) {after}")
            return False

    assert hangs(PROBED, host, Silent()) == why


@pytest.mark.parametrize("state", ["R", "D"])
def test_a_thread_that_waits_for_others_does_not_hang(state: str) -> None:
    host = played()
    host.files["/proc/7/task/9/stat"] = File(f"9 (x) {state} 1 0")
    assert hangs(PROBED, host, host) == ""


def test_servers_are_probed_side_by_side_and_told_apart() -> None:
    """Each of three probes waits until the others are there, too."""
    host = played()
    for pid in (8, 9):
        host.process(pid, "llama-server", stat=IDLE)
    servers = [Probed(f"llama-{pid}", str(pid), f"http://127.0.0.1:80{pid}/health") for pid in (7, 8, 9)]
    together = threading.Barrier(3, timeout=60)

    class Together(InspectedHost):
        def responds(self, url: str, seconds: float) -> bool:
            if seconds == 1:
                together.wait()
            return ":808/" in url

    assert find_hangs(servers, host, Together()) == {"llama-7": SILENT, "llama-9": SILENT}
    assert find_hangs([], host, host) == {}
