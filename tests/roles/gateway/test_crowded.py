"""More clients than there are slots, and what becomes of those that wait: the real HAProxy before plain servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.gateway import Running, Upstream, free_port, made, rig_at, running, until


@pytest.fixture
def servers() -> Iterator[list[Upstream]]:
    upstreams = [Upstream(), Upstream()]
    yield upstreams
    for each in upstreams:
        each.stop()


@contextmanager
def gateway_of(servers: list[Upstream], folder: Path, models: str, slots: int) -> Iterator[Running]:
    """A gateway with these models before `one` and `two`, which have so many slots."""
    text = f"""
    gateway:
      on: [box]
      port: {free_port()}
      queue: {{length: 50}}
      users: {{tom: {{key: {{env: A}}, streams: 50}}}}
      models: {{{models}}}
    """
    ports = {name: server.port for name, server in zip(("one", "two"), servers, strict=True)}
    rig = rig_at(ports, {f"instances/{name}/parallel": slots for name in ports})
    with running(made(text, [rig]), folder) as gateway:
        until(lambda: gateway.ask().status == 200)
        yield gateway


def test_three_streams_the_fourth_waits_and_who_has_no_patience_asks_another_model(
    servers: list[Upstream], tmp_path: Path
) -> None:
    """As a client does that gives up after a time of its own, and has a second model to ask."""
    one = servers[0]
    models = "coder: {serve: [box.one]}, small: {serve: [box.two]}"
    with gateway_of(servers, tmp_path, models, 3) as gateway, ThreadPoolExecutor(4) as pool:
        one.seen.clear()
        one.hold.clear()
        streams = [pool.submit(gateway.ask) for _ in range(3)]
        until(lambda: one.busy == 3)
        with pytest.raises(TimeoutError):
            gateway.ask(seconds=0.5)
        answer = gateway.ask(model="small")
        assert (answer.status, json.loads(answer.body)["by"]) == (200, servers[1].port)
        until(lambda: gateway.waiting() == 0)
        fourth = pool.submit(gateway.ask)
        until(lambda: gateway.waiting() == 1)
        assert (one.busy, len(one.seen)) == (3, 3), "who has left, and who waits, have not reached it"
        one.hold.set()
        assert [each.result().status for each in (*streams, fourth)] == [200] * 4
        assert (one.most, len(one.seen)) == (3, 4)


def test_a_server_that_is_gone_takes_nobody_from_the_queue(servers: list[Upstream], tmp_path: Path) -> None:
    """Its slots are free as soon as it refuses connections: without more, all that wait are sent there, and fail."""
    one, two = servers
    with (
        gateway_of(servers, tmp_path, "coder: {serve: [box.one, box.two]}", 2) as gateway,
        ThreadPoolExecutor(20) as pool,
    ):
        for server in servers:
            server.hold.clear()
        asked = [pool.submit(gateway.ask) for _ in range(16)]
        until(lambda: (one.busy, two.busy, gateway.waiting()) == (2, 2, 12))
        one.shutdown()
        one.server_close()
        one.hold.set()
        until(lambda: one.busy == 0)
        later = pool.submit(gateway.ask)
        until(lambda: sum(each.done() for each in asked) == 2)
        two.hold.set()
        assert [each.result().status for each in (*asked, later)] == [200] * 17
        assert two.most == 2


def test_memory_that_large_requests_have_taken_is_given_back(servers: list[Upstream], tmp_path: Path) -> None:
    """Else it takes, in time, the largest request of all that there is room for, at once: a gigabyte and more."""
    large = json.dumps({"messages": [{"role": "user", "content": "word " * 400_000}], "model": "coder"}).encode()
    models = "coder: {serve: [box.one]}, small: {serve: [box.two]}"
    with gateway_of(servers, tmp_path, models, 2) as gateway, ThreadPoolExecutor(40) as pool:
        before = memory(gateway)
        for server in servers:
            server.hold.clear()
        asked, small = [], []
        for number in range(30):
            asked.append(pool.submit(gateway.ask, body=large))
            until(lambda: servers[0].busy + gateway.waiting() == len(asked))
            if number % 3 == 0:
                small.append(pool.submit(gateway.ask, model="small"))
        meanwhile = memory(gateway)
        servers[0].hold.set()
        assert [each.result().status for each in asked] == [200] * 30
        assert meanwhile - before > 28 * len(large)
        # HAProxy 2.6 keeps 4 MB of 58, and 3.0 up to 36 of 75.
        assert memory(gateway) - before < (meanwhile - before) * 2 / 3, "though small ones wait that came in between"
        servers[1].hold.set()
        assert [each.result().status for each in small] == [200] * 10


def memory(gateway: Running) -> int:
    """Bytes that its processes have in RAM."""
    master = gateway.process.pid
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    lines = (line for pid in (master, *children) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))
