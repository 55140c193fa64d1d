"""An instance of a group is measured by itself, once its model is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.measure.bench.job import Job, ObstacleError
from llamaherd.measure.bench.measurement import load_model, request_load
from llamaherd.measure.client.http_client import Target
from llamaherd.measure.meter.meter import Obstacle
from llamaherd.plan.plan import instances_of
from tests.bench.grouped import CARD, GROUPED
from tests.bench.site import Site, page
from tests.bench.test_session import Told
from tests.support.stores import needs_root

ONE, TWO = instances_of(CARD)
JOB = Job(Connect(host=LOCAL), GROUPED, TWO, Path(), 60.0, "a test", group=CARD)


def test_each_is_as_it_would_be_alone_at_the_groups_port() -> None:
    assert [(each.name, each.model, each.context, each.mtp) for each in (ONE, TWO)] == [
        ("one", "gemma", 8192, 0),
        ("two", "moe", 4096, 2),
    ]
    assert TWO.endpoint.metrics == ("http://127.0.0.1:8090/metrics?model=moe&autoload=false",)
    assert (TWO.endpoint.streams, TWO.endpoint.models) == (2, ("moe",))
    assert (TWO.service, TWO.spec) == ("llama-card", CARD.spec)
    assert TWO.server.arguments == CARD.members[1].arguments
    assert ONE.expect
    assert (ONE.expect.decode, TWO.expect) == (10, None)
    assert (ONE.memory, TWO.memory) == tuple(each.memory for each in CARD.members)


def test_a_server_of_its_own_is_its_only_instance() -> None:
    chat = next(each for each in GROUPED.instances if each.name == "chat")
    assert instances_of(chat) == (chat,)


def test_it_is_asked_of_itself_and_loaded_for_that() -> None:
    with Site({"/props?model=moe": page({"total_slots": 2})}) as site:
        request_load(JOB, CARD, Target(site.url, "a-key"))
        assert [(path, told["authorization"]) for path, told, _ in site.asked] == [("/props?model=moe", "Bearer a-key")]


@pytest.mark.parametrize("said", [{"error": {"message": "model name=moe failed to load"}}, "oh"])
def test_one_that_does_not_load_is_said(said: Any) -> None:
    said_so = pytest.raises(UserError, match="card does not load moe: the server returns 500")
    with Site({"/props?model=moe": page(said, "500 Internal Server Error")}) as site, said_so as raised:
        request_load(JOB, CARD, Target(site.url))
    assert raised.value.help == "see its log: journalctl -u llama-card"


@needs_root
def test_nothing_is_loaded_by_a_group_that_does_not_run_as_planned() -> None:
    """The host is this machine, which has no such unit."""
    with Site({}) as site:
        with pytest.raises(ObstacleError, match="card does not run"):
            load_model(replace(JOB, anyway=True), Target(site.url), Told())
        assert site.asked == []


def test_nothing_is_done_for_a_server_of_its_own() -> None:
    with Site({}) as site:
        load_model(replace(JOB, group=None), Target(site.url), Told())
        assert site.asked == []


@pytest.mark.parametrize(("code", "anyway", "through"), [("busy", True, True), ("busy", False, False)])
def test_what_is_in_the_way_of_a_swap_can_be_overruled(code: str, anyway: bool, through: bool) -> None:
    job, found = replace(JOB, anyway=anyway), [Obstacle(code, "card serves 1 request of other clients")]
    if through:
        job.let_through(found)
    else:
        with pytest.raises(ObstacleError):
            job.let_through(found)
