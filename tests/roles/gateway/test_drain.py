"""What becomes of requests while a server is drained, and what the gateway says of itself: the real HAProxy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llamaherd.fleet.gateway_snapshot import GatewaySnapshot, ServerSnapshot
from tests.support.gateway import Running, Upstream, free_port, made, now_of, rig_at, running, until

SESSION = {"X-Session-Id": "mine"}


@pytest.fixture
def servers() -> Iterator[list[Upstream]]:
    upstreams = [Upstream(), Upstream()]
    yield upstreams
    for each in upstreams:
        each.stop()


@pytest.fixture
def gateway(servers: list[Upstream], tmp_path: Path) -> Iterator[Running]:
    """One model before both servers, with sessions that stay; and one before the second alone."""
    one, two = servers
    text = f"""
    gateway:
      on: [box]
      port: {free_port()}
      users: {{tom: {{key: {{env: A}}, streams: 50}}, ann: {{key: {{env: B}}, models: [small]}}}}
      models:
        coder: {{serve: [box.one, box.two], sticky: session}}
        small: {{serve: [box.two]}}
    """
    with running(made(text, [rig_at({"one": one.port, "two": two.port})]), tmp_path) as made_one:
        until(lambda: states(made_one) == {"box.one": "up", "box.two": "up"})
        yield made_one


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as workers:
        yield workers


def now(gateway: Running) -> GatewaySnapshot:
    """What it says of itself."""
    done = gateway.talk("status")
    assert done.returncode == 0, done.stderr
    return now_of(done.stdout.splitlines())


def rows(gateway: Running, model: str = "coder") -> dict[str, ServerSnapshot]:
    """The servers of a model."""
    return {server.name: server for each in now(gateway).models if each.name == model for server in each.servers}


def states(gateway: Running) -> dict[str, str]:
    """How the servers of `coder` are."""
    return {name: server.state for name, server in rows(gateway).items()}


def left(gateway: Running, *words: str) -> int:
    """How many streams it says are left."""
    done = gateway.talk("drain", *words)
    assert done.returncode == 0, done.stderr
    return next(int(line.removeprefix("left\t")) for line in done.stdout.splitlines() if line.startswith("left\t"))


def by(gateway: Running, headers: dict[str, str] | None = None) -> str:
    """Which server answers."""
    answer = gateway.ask(headers=headers)
    assert answer.status == 200
    return answer.headers["x-herd-instance"]


def test_a_drained_server_is_sent_nothing_new(gateway: Running) -> None:
    assert {by(gateway) for _ in range(8)} == {"box.one", "box.two"}
    assert left(gateway, "box.one") == 0
    assert {by(gateway) for _ in range(8)} == {"box.two"}
    assert states(gateway) == {"box.one": "draining", "box.two": "up"}
    assert gateway.talk("ready", "box.one").stdout == "ready\n"
    assert {by(gateway) for _ in range(8)} == {"box.one", "box.two"}


def test_it_is_drained_for_each_model_that_it_answers_for(gateway: Running) -> None:
    left(gateway, "box.two")
    assert {rows(gateway, model)["box.two"].state for model in ("coder", "small")} == {"draining"}
    assert gateway.ask(model="small").status == 503


def test_sessions_that_stay_on_it_go_elsewhere(gateway: Running) -> None:
    here = by(gateway, SESSION)
    assert {by(gateway, SESSION) for _ in range(6)} == {here}
    left(gateway, here)
    elsewhere = {by(gateway, SESSION) for _ in range(6)}
    assert len(elsewhere) == 1
    assert here not in elsewhere


def test_streams_go_on_and_who_waits_goes_elsewhere(
    gateway: Running, servers: list[Upstream], pool: ThreadPoolExecutor
) -> None:
    for server in servers:
        server.hold.clear()
    answers = [pool.submit(gateway.ask) for _ in range(8)]
    until(lambda: all(server.busy == 2 for server in servers))
    until(lambda: now(gateway).models[0].waiting == 4)
    for server in servers:
        server.seen.clear()
    assert left(gateway, "box.one") == 2
    servers[0].hold.set()
    until(lambda: left(gateway, "box.one") == 0)
    time.sleep(0.3)
    assert servers[0].seen == [], "who waits is not sent there, though it is free"
    servers[1].hold.set()
    assert [each.result().status for each in answers] == [200] * 8
    assert len(servers[1].seen) == 4


def test_it_is_waited_for_until_no_stream_is_left_or_the_time_is_over(
    gateway: Running, servers: list[Upstream], pool: ThreadPoolExecutor
) -> None:
    left(gateway, "box.two")
    servers[0].hold.clear()
    held = pool.submit(gateway.ask)
    until(lambda: servers[0].busy == 1)
    gateway.talk("ready", "box.two")
    assert left(gateway, "box.one", "1") == 1, "the time is over"
    waiting = pool.submit(left, gateway, "box.one", "30")
    time.sleep(0.7)
    assert not waiting.done()
    servers[0].hold.set()
    assert waiting.result() == 0
    assert held.result().status == 200


def test_streams_answers_and_users_are_counted(
    gateway: Running, servers: list[Upstream], pool: ThreadPoolExecutor
) -> None:
    for _ in range(3):
        gateway.ask(model="small")
    servers[1].hold.clear()
    held = [pool.submit(gateway.ask, model="small") for _ in range(3)]
    until(lambda: servers[1].busy == 2)
    until(lambda: now(gateway).models[1].waiting == 1)
    told = now(gateway)
    assert told.models[1].servers == (ServerSnapshot("box.two", "up", 2, 2, 3),)
    assert {user.name: (user.streams, user.most) for user in told.users} == {"tom": (3, 50), "ann": (0, 4)}
    servers[1].hold.set()
    assert [each.result().status for each in held] == [200] * 3
    until(lambda: now(gateway).users == tuple(type(user)(user.name, 0, user.most) for user in told.users))


def test_a_server_that_does_not_answer_is_down(gateway: Running, servers: list[Upstream]) -> None:
    servers[0].healthy = False
    until(lambda: states(gateway) == {"box.one": "down", "box.two": "up"})
    assert now(gateway).down == ("box.one",)
    assert now(gateway).alone("box.two") == ("coder", "small")


def test_a_reload_takes_it_back_and_says_what_goes_on(
    gateway: Running, servers: list[Upstream], pool: ThreadPoolExecutor
) -> None:
    """HAProxy forgets what it was told; what the process before has begun is counted by nobody."""
    servers[0].hold.clear()
    left(gateway, "box.two")
    held = pool.submit(gateway.ask)
    until(lambda: servers[0].busy == 1)
    assert now(gateway).ending == 0
    gateway.reload()
    until(lambda: states(gateway) == {"box.one": "up", "box.two": "up"})
    assert now(gateway).ending == 1
    assert rows(gateway)["box.one"].streams == 0
    servers[0].hold.set()
    assert held.result().status == 200
    until(lambda: now(gateway).ending == 0)


def test_telling_it_of_users_takes_nothing_back(gateway: Running) -> None:
    left(gateway, "box.one")
    (gateway.folder / "streams.map").write_text("ann 7\n")
    assert gateway.talk("maps").returncode == 0
    assert states(gateway)["box.one"] == "draining"


@pytest.mark.parametrize("name", ["box.three", "box.one; shutdown sessions server m_coder/box.one", "", "BACKEND"])
def test_what_is_no_server_of_it_is_put_into_no_command(gateway: Running, name: str) -> None:
    for done in (gateway.talk("drain", name), gateway.talk("ready", name)):
        assert (done.returncode, done.stdout) == (1, "")
        assert "no such server" in done.stderr
    assert set(states(gateway).values()) == {"up"}
