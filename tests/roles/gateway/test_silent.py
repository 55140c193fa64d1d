"""Servers that say nothing, or late: the real HAProxy before servers that are processes.

A rig that is switched off is Linux dropping all that comes to a server's sockets.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from benchmarks.gateway_clients import Asked, Came, ask
from benchmarks.gateway_servers import Server, servers
from tests.support.gateway import KEYS, Running, Upstream, free_port, made, rig_at, running, until

PAIR = "coder: {serve: [box.one, box.two]}, small: {serve: [box.two]}"
FALLS = "coder: {serve: [box.one], fallback: small}, small: {serve: [box.two]}"
LATEST = 8
"""Seconds until a silent server is left, on a machine that is busy; of themselves they are 4.6 at most."""
LATE = 0.8
"""Seconds: twice what llama-server took to say that it is well, by a twentieth of a core."""
NUMBERS = count(1)


@contextmanager
def gateway_before(ports: list[int], folder: Path, models: str) -> Iterator[Running]:
    """A gateway that has found both its servers well."""
    text = f"""
    gateway:
      on: [box]
      port: {free_port()}
      queue: {{length: 50}}
      users: {{tom: {{key: {{env: A}}, streams: 50}}}}
      models: {{{models}}}
    """
    rig = rig_at(dict(zip(("one", "two"), ports, strict=True)))
    with running(made(text, [rig]), folder) as gateway:
        until(lambda: gateway.ask(body=_short()).status == 200)
        yield gateway


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as workers:
        yield workers


def _short(model: str = "coder") -> bytes:
    return json.dumps({"n": 0, "pieces": 0, "pause": 0, "model": model}).encode()


def _asked(pool: ThreadPoolExecutor, gateway: Running, pieces: int = 0) -> tuple[int, Future[Came]]:
    """A request with so many pieces, a tenth of a second between two, and its number."""
    asked = Asked(KEYS["tom"], next(NUMBERS), pieces, 0.1, 100)
    return asked.number, pool.submit(lambda: asyncio.run(ask(gateway.plan.port, asked, 60)))


def _left(gateway: Running) -> bool:
    return "Server m_coder/box.one is DOWN" in gateway.log


def test_one_that_stands_still_is_left_and_its_stream_goes_on_with_it(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with servers(tmp_path, 2) as (one, two), gateway_before([one.port, two.port], tmp_path, FALLS) as gateway:
        number, stream = _asked(pool, gateway, pieces=20)
        until(lambda: number in one.began)
        one.signal(signal.SIGSTOP)
        until(lambda: _left(gateway), LATEST)
        answer = gateway.ask(body=_short())
        assert (answer.status, answer.headers.get("x-herd-fallback")) == (200, "small")
        one.signal(signal.SIGCONT)
        assert stream.result().whole


def test_a_rig_that_is_switched_off_keeps_nobody(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    """What it had begun is broken off, what had not begun is answered elsewhere, and another one's stream goes on."""
    with servers(tmp_path, 2) as (one, two), gateway_before([one.port, two.port], tmp_path, PAIR) as gateway:
        streams = dict(_asked(pool, gateway, pieces=50) for _ in range(2))
        until(lambda: all(_begun(streams, each) for each in (one, two)))
        (hit,), (well,) = _begun(streams, one), _begun(streams, two)
        one.signal(signal.SIGUSR2)
        later = [_asked(pool, gateway)[1] for _ in range(4)]
        answers = [each.result() for each in later]
        assert [(each.status, each.by) for each in answers] == [(200, "box.two")] * 4
        assert max(each.waited for each in answers) < 4
        until(lambda: _left(gateway), LATEST)
        assert streams[well].result().whole
        broken = streams[hit].result()
        assert not broken.whole
        assert broken.ended - broken.sent < 40, "long before its client's patience ends"


def _begun(streams: dict[int, Future[Came]], server: Server) -> list[int]:
    return [number for number in server.began if number in streams]


def test_one_that_says_late_that_it_is_well_stays(tmp_path: Path) -> None:
    one, two = Upstream(), Upstream()
    try:
        with gateway_before([one.port, two.port], tmp_path, FALLS) as gateway:
            one.late = LATE
            time.sleep(6)
            assert not _left(gateway)
            assert gateway.ask().headers["x-herd-instance"] == "box.one"
    finally:
        one.stop()
        two.stop()
