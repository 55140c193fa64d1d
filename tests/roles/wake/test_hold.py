"""Requests for a rig that sleeps: the real HAProxy holds them, the real program sends the packet, the rig comes up.

A sleeping host is a socket whose queue of connections is full: Linux drops further ones, as a wire to a host that is
off does. systemd's part, which starts the program for each connection, is played by a thread.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llamaherd.inventory.schema import Rig
from tests.support.gateway import HAPROXY, Running, Upstream, free_port, made, rig_at, running, until
from tests.support.rigs import ROOT

pytestmark = pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed")

MAC = "3c:7c:3f:12:ab:cd"
PACKET = b"\xff" * 6 + bytes.fromhex(MAC.replace(":", "")) * 16
PROGRAM = ROOT / "templates" / "wake" / "wake.py"
LOOPBACK = "Iface Destination Gateway Flags RefCnt Use Metric Mask\nlo 0000007F 00000000 0001 0 0 0 000000FF\n"


class Sleeper:
    """A port of a host that sleeps: nothing responds, and connections are not refused."""

    def __init__(self) -> None:
        self._line = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.port = int(self._line.getsockname()[1])
        self._clients = [socket.socket() for _ in range(3)]
        for each in self._clients:
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.connect(("127.0.0.1", self.port))

    def end(self) -> None:
        for each in (*self._clients, self._line):
            each.close()


@dataclass
class Wire:
    """The network: packets that arrived, and connections to the socket of the program that sends them."""

    packets: list[bytes] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def wire(folder: Path) -> Iterator[Wire]:
    """Play systemd: accept connections, and run the program with each as its stdin and stdout."""
    found, ended = Wire(), threading.Event()
    (folder / "table").write_text(f"porch {MAC}\n")
    (folder / "routes").write_text(LOOPBACK)
    with ExitStack() as stack:
        card = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        card.bind(("0.0.0.0", 0))
        card.settimeout(0.1)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(folder / "wake.sock"))
        listener.listen(16)
        listener.settimeout(0.1)
        port = str(card.getsockname()[1])
        env = {"WAKE_TABLE": str(folder / "table"), "WAKE_ROUTES": str(folder / "routes"), "WAKE_PORT": port}

        def accept() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    line, _ = listener.accept()
                    with line:
                        line.setblocking(True)
                        subprocess.run(
                            [sys.executable, "-I", str(PROGRAM)],
                            stdin=line.fileno(),
                            stdout=line.fileno(),
                            env=env,
                            check=False,
                        )
                        found.requests.append("a request")

        def receive() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    found.packets.append(card.recv(1000))

        threads = [threading.Thread(target=each) for each in (accept, receive)]
        for each in threads:
            each.start()
        try:
            yield found
        finally:
            ended.set()
            for each in threads:
                each.join()


def porch(ports: dict[str, int], mac: str | None = MAC) -> Rig:
    changes = {"rig": "porch", "connect": {"host": "127.0.0.1"}}
    return rig_at(ports, changes | ({"wake": {"mac": mac}} if mac else {}))


@contextmanager
def gateway(
    folder: Path,
    sleeper: Sleeper,
    awake: Upstream,
    *,
    queue: str = "{wait: 20s}",
    coder: str = "",
    mac: str | None = MAC,
) -> Iterator[Running]:
    text = f"""
    gateway:
      on: [box]
      port: {free_port()}
      queue: {queue}
      users: {{tom: {{key: {{env: A}}, streams: 50}}}}
      models:
        coder: {{serve: [porch.one]{coder}}}
        small: {{serve: [box.two]}}
    """
    with running(made(text, [porch({"one": sleeper.port}, mac), rig_at({"two": awake.port})]), folder) as found:
        until(lambda: "DOWN" in found.talk("status").stdout)
        until(lambda: found.ask(model="small").status == 200)
        yield found


@pytest.fixture
def awake() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.stop()


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    made_here = Sleeper()
    yield made_here
    made_here.end()


def test_a_request_wakes_a_rig_and_is_served_when_it_comes_up(
    tmp_path: Path, sleeper: Sleeper, awake: Upstream
) -> None:
    with wire(tmp_path) as network, gateway(tmp_path, sleeper, awake) as haproxy, ThreadPoolExecutor(3) as pool:
        held = [pool.submit(haproxy.ask) for _ in range(3)]
        until(lambda: network.packets)
        assert network.packets[0] == PACKET
        time.sleep(1)
        assert not any(each.done() for each in held), "they wait for the rig"
        assert haproxy.ask(model="small").status == 200, "requests for other rigs do not wait"
        sleeper.end()
        server = Upstream(sleeper.port)
        try:
            answers = [each.result(15) for each in held]
            assert {(each.status, each.headers["x-herd-instance"]) for each in answers} == {(200, "porch.one")}
            assert len(server.seen) == 3
            assert len(network.packets) <= 3, "three requests are one wake"
        finally:
            server.stop()


def test_a_rig_that_does_not_wake_is_replaced_by_the_fallback(
    tmp_path: Path, sleeper: Sleeper, awake: Upstream
) -> None:
    with wire(tmp_path), gateway(tmp_path, sleeper, awake, queue="{wait: 5s}", coder=", fallback: small") as haproxy:
        began = time.monotonic()
        answer = haproxy.ask()
        assert (answer.status, answer.headers["x-herd-fallback"]) == (200, "small")
        assert 4 < time.monotonic() - began < 12
        began = time.monotonic()
        assert haproxy.ask().headers["x-herd-fallback"] == "small"
        assert time.monotonic() - began < 3, "the next request is not held again"


def test_no_more_requests_are_held_than_may_wait(tmp_path: Path, sleeper: Sleeper, awake: Upstream) -> None:
    queue = "{wait: 6s, length: 1}"
    with wire(tmp_path), gateway(tmp_path, sleeper, awake, queue=queue) as haproxy, ThreadPoolExecutor(5) as pool:
        answers = [each.result() for each in [pool.submit(haproxy.ask) for _ in range(5)]]
    # Two slots, and one that waits.
    assert sorted(each.status for each in answers) == [429, 429, 503, 503, 503]
    assert {each.code for each in answers if each.status == 429} == {"queue_full"}


def test_a_client_that_leaves_makes_room(tmp_path: Path, sleeper: Sleeper, awake: Upstream) -> None:
    queue = "{wait: 15s, length: 1}"
    with wire(tmp_path), gateway(tmp_path, sleeper, awake, queue=queue) as haproxy, ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(haproxy.ask, seconds=1) for _ in range(3)]:
            with pytest.raises(TimeoutError):
                each.result()
        until(lambda: not pool.submit(_is_refused, haproxy).result(), 8, 1)


def _is_refused(haproxy: Running) -> bool:
    try:
        return haproxy.ask(seconds=1).status == 429
    except TimeoutError:
        return False


def test_a_reload_ends_the_wait_and_the_next_request_is_held(tmp_path: Path, sleeper: Sleeper, awake: Upstream) -> None:
    with wire(tmp_path) as network, gateway(tmp_path, sleeper, awake) as haproxy, ThreadPoolExecutor(2) as pool:
        held = pool.submit(haproxy.ask)
        until(lambda: network.packets)
        haproxy.reload()
        answer = held.result(8)
        assert (answer.status, answer.headers["retry-after"]) == (503, "10")
        until(lambda: "DOWN" in haproxy.talk("status").stdout)
        again = pool.submit(haproxy.ask)
        time.sleep(1)
        assert not again.done()
        sleeper.end()
        server = Upstream(sleeper.port)
        try:
            assert again.result(15).status == 200
        finally:
            server.stop()


def test_a_rig_that_is_awake_is_not_woken(tmp_path: Path, sleeper: Sleeper, awake: Upstream) -> None:
    sleeper.end()  # its host refuses connections
    with wire(tmp_path) as network, gateway(tmp_path, sleeper, awake) as haproxy:
        time.sleep(10)  # a server that went down a moment ago may be that of a rig that falls asleep
        began = time.monotonic()
        assert haproxy.ask().status == 503
        assert time.monotonic() - began < 3
        assert network.packets == []


def test_a_rig_without_wake_is_not_woken(tmp_path: Path, sleeper: Sleeper, awake: Upstream) -> None:
    with wire(tmp_path) as network, gateway(tmp_path, sleeper, awake, mac=None) as haproxy:
        assert haproxy.ask().status == 503
        assert network.packets == []
        assert not (tmp_path / "wake.lua").exists()


@pytest.mark.parametrize(
    ("routes", "rig", "why"),
    [
        (LOOPBACK, "cellar", "cannot wake 'cellar': it is not in the table of rigs"),
        ("Iface\n", "porch", "cannot wake 'porch': this host has no network"),
        ("Iface\nlo 0000007F 00000000 1 0 0 0 FFFFFFFF\nlo x\n", "porch", "this host has no network"),
    ],
)
def test_what_cannot_be_woken(tmp_path: Path, routes: str, rig: str, why: str) -> None:
    (tmp_path / "table").write_text(f"porch {MAC}\n")
    (tmp_path / "routes").write_text(routes)
    env = {"WAKE_TABLE": str(tmp_path / "table"), "WAKE_ROUTES": str(tmp_path / "routes")}
    command = [sys.executable, "-I", str(PROGRAM), rig]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr
