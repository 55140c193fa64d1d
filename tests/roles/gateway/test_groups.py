"""Models that one server has in turn, behind the real HAProxy: one queue, one cap, and each by its name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llamaherd.fleet.gateway import DeclaredGateway
from llamaherd.inventory.schema import Rig
from llamaherd.plan import GatewayPlan
from tests.support.gateway import KEYS, Running, Upstream, fleet_of, free_port, made, now_of, rig_at, running, until


def grouped(port: int, *, slots: tuple[int, int] = (1, 2)) -> Rig:
    """A rig whose instances `one` and `two` are the group `card` at this port."""
    of = {f"instances/{name}/group": "card" for name in ("one", "two")}
    parallel = dict(zip(("instances/one/parallel", "instances/two/parallel"), slots, strict=True))
    return rig_at({"one": port, "two": port, "other": 1}, {**of, **parallel, "instances/two/model": "moe"})


def plan_of(rig: Rig, more: str = "") -> GatewayPlan:
    """A gateway that serves both by their names; `more` is a model beside them."""
    text = f"""
    gateway:
      on: [box]
      port: {free_port()}
      users: {{tom: {{key: {{env: A}}, streams: 50}}}}
      models:
        gemma: {{serve: [box.one]}}
        moe: {{serve: [box.two]{", fallback: spare" if more else ""}}}
        {more}
    """
    return made(text, [rig])


@pytest.fixture
def server() -> Iterator[Upstream]:
    upstream = Upstream()
    yield upstream
    upstream.hold.set()
    upstream.shutdown()
    upstream.server_close()


@pytest.fixture
def gateway(server: Upstream, tmp_path: Path) -> Iterator[Running]:
    with running(plan_of(grouped(server.port)), tmp_path) as started:
        until(lambda: started.ask(model="gemma").status == 200)
        server.seen.clear()
        yield started


def test_each_model_reaches_the_one_server_by_its_name(gateway: Running, server: Upstream) -> None:
    for model in ("gemma", "moe", "gemma"):
        answer = gateway.ask(model=model)
        assert (answer.status, answer.headers["x-herd-instance"]) == (200, "box.card")
        assert json.loads(server.seen[-1].body)["model"] == model
    assert gateway.ask(model="gpt-4o").status == 404


def test_both_models_share_what_the_server_takes(gateway: Running, server: Upstream) -> None:
    """As many as the instance with the fewest slots has: one."""
    server.hold.clear()
    server.most = 0
    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(gateway.ask, model=model) for model in ("gemma", "moe") * 3]
        until(lambda: gateway.waiting("moe") == 5)
        assert gateway.waiting("gemma") == 5, "they wait in one queue"
        assert server.busy == 1
        server.hold.set()
        assert [answer.result().status for answer in answers] == [200] * 6
    assert server.most == 1


def test_the_queue_of_both_is_as_long_as_that_of_one(gateway: Running, server: Upstream) -> None:
    server.hold.clear()
    with ThreadPoolExecutor(12) as pool:
        first = [pool.submit(gateway.ask, model="gemma") for _ in range(9)]
        until(lambda: gateway.waiting("gemma") == 8)
        assert gateway.ask(model="moe").status == 429
        server.hold.set()
        assert [each.result().status for each in first] == [200] * 9


def test_the_status_has_each_model_and_the_server_takes_a_drain_for_both(gateway: Running) -> None:
    now = now_of(gateway.talk("status").stdout.splitlines())
    assert [(model.name, [server.name for server in model.servers]) for model in now.models] == [
        ("gemma", ["box.card"]),
        ("moe", ["box.card"]),
    ]
    assert {server.most for model in now.models for server in model.servers} == {1}
    assert now.absent([("gemma", "box.card"), ("moe", "box.card")]) == ()
    gateway.talk("drain", "box.card", "1")
    assert {gateway.ask(model=model).status for model in ("gemma", "moe")} == {503}
    gateway.talk("ready", "box.card")
    until(lambda: gateway.ask(model="moe").status == 200)


def test_a_fallback_is_that_of_the_model_that_was_asked_for(server: Upstream, tmp_path: Path) -> None:
    spare = Upstream()
    rig = grouped(server.port)
    other = rig.instances["other"].model_copy(update={"port": spare.port})
    rig = rig.model_copy(update={"instances": {**rig.instances, "other": other}})
    try:
        with running(plan_of(rig, "spare: {serve: [box.other]}"), tmp_path) as gateway:
            until(lambda: gateway.ask(model="moe").status == 200)
            server.healthy = False
            until(lambda: gateway.ask(model="moe").headers.get("x-herd-fallback") == "spare")
            assert gateway.ask(model="gemma").status == 503
    finally:
        spare.stop()


def test_no_user_sees_the_names_of_queues(gateway: Running) -> None:
    said = json.loads(gateway.ask("/v1/models", method="GET", key=KEYS["tom"]).body)
    assert [model["id"] for model in said["data"]] == ["gemma", "moe"]


def test_drains_go_by_the_group_for_whichever_instance_is_named(tmp_path: Path) -> None:
    rig = grouped(8001)
    declared = fleet_of("gateway: {on: [box], models: {gemma: {serve: [box.one]}, moe: {serve: [box.two]}}}").gateway
    assert declared
    known = DeclaredGateway(declared, tmp_path, {"box": rig})
    assert known.served == (("gemma", "box.card"), ("moe", "box.card"))
    assert {known.server(name) for name in ("box.one", "box.two", "box.card")} == {"box.card"}
