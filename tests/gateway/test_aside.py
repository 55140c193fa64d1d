"""A server that is measured gets nothing new from its gateway: the real HAProxy, asked by the program of its host."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn

import pytest
import yaml

from llamaherd.fleet import drain as fleet_drain
from llamaherd.fleet.drain import DRAIN_SECONDS, drained
from llamaherd.fleet.gateway import drain_server
from llamaherd.inventory.schema import Rig
from llamaherd.plan import Plan
from tests.support.gateway import until
from tests.support.gateway_fleet import Fleet, standing
from tests.support.ours import plan
from tests.support.rigs import hub_lock

TIMER = "llamaherd-ready-box.one.timer"


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    with standing(tmp_path, monkeypatch) as begun:
        yield begun


def planned(fleet: Fleet) -> Plan:
    """The rig whose servers stand behind the gateway."""
    return plan(Rig.model_validate(yaml.safe_load((fleet.folder / "fleet/box.yaml").read_text())), hub_lock())


def measured(fleet: Fleet, *names: str, said: list[str], wait: int = 0) -> AbstractContextManager[None]:
    """While these are measured; what people are told."""
    made = planned(fleet)
    instances = [each for name in names for each in made.instances if each.name == name]
    return drained(fleet.folder / "fleet", made, instances, said.append, wait)


def test_it_is_sent_nothing_new_until_it_is_measured(fleet: Fleet) -> None:
    said: list[str] = []
    with measured(fleet, "one", said=said):
        assert fleet.states == {"box.one": "draining", "box.two": "up"}
        assert "box.one is drained by `herd up` or a measurement" in fleet.herd("gateway", "status").output
        (told,) = fleet.timers[TIMER]
        assert f"--on-active={DRAIN_SECONDS}s" in told
        assert told.endswith("gateway-talk ready box.one")
    assert fleet.states == {"box.one": "up", "box.two": "up"}
    assert fleet.timers == {}
    assert said == ["box sends no new requests to box.one", "box sends to box.one again"]


def test_where_nobody_answers_in_its_place_it_is_left_as_it_is(fleet: Fleet) -> None:
    said: list[str] = []
    with measured(fleet, "two", said=said):
        assert fleet.states == {"box.one": "up", "box.two": "up"}
    assert said == ["box continues sending to box.two: no other server serves small"]


def test_of_two_one_goes_on(fleet: Fleet) -> None:
    """Each has the other in its place, and one of them is drained by then."""
    said: list[str] = []
    with measured(fleet, "one", "two", said=said):
        assert fleet.states == {"box.one": "draining", "box.two": "up"}
    assert fleet.states == {"box.one": "up", "box.two": "up"}
    assert "box continues sending to box.two: no other server serves coder and small" in said


@pytest.mark.parametrize("ending", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_drain_is_undone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, ending: type[BaseException]
) -> None:
    def interrupted(gateways: Mapping[str, Rig], server: str, wait: int, undo: int) -> NoReturn:
        drain_server(gateways, server, wait, undo=undo)
        assert fleet.states["box.one"] == "draining"
        raise ending

    monkeypatch.setattr(fleet_drain, "drain_server", interrupted)
    with pytest.raises(ending), measured(fleet, "one", said=[]):
        pytest.fail("it is not measured")
    assert fleet.states == {"box.one": "up", "box.two": "up"}
    assert fleet.timers == {}


@pytest.mark.parametrize("ending", [KeyboardInterrupt, RuntimeError])
def test_whatever_ends_it_takes_it_back(fleet: Fleet, ending: type[BaseException]) -> None:
    def measure() -> None:
        with measured(fleet, "one", said=[]):
            assert fleet.states["box.one"] == "draining"
            raise ending

    with pytest.raises(ending):
        measure()
    assert fleet.states["box.one"] == "up"
    assert fleet.timers == {}


@pytest.mark.parametrize(("command", "state"), [("drain", "draining"), ("ready", "up")])
def test_what_somebody_says_meanwhile_holds(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, command: str, state: str
) -> None:
    monkeypatch.setattr(fleet_drain, "_EVERY", 0.1)
    said: list[str] = []
    with measured(fleet, "one", said=said):
        assert fleet.herd(command, "box.one").exit_code == 0
        time.sleep(1)
        assert (fleet.states["box.one"], fleet.timers) == (state, {})
    assert fleet.states["box.one"] == state
    assert said[1:] == ["box is left as it is: the drain of box.one was changed, or its time was over"]


def test_one_that_somebody_has_drained_stays_so(fleet: Fleet) -> None:
    assert fleet.herd("drain", "box.one").exit_code == 0
    said: list[str] = []
    with measured(fleet, "one", said=said):
        pass
    assert fleet.states["box.one"] == "draining"
    assert said == []


def test_a_long_one_renews_what_would_take_it_back(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_drain, "_EVERY", 0.1)
    with measured(fleet, "one", said=[]):
        until(lambda: fleet.timers[TIMER][1:3] == ["again", "again"])
    assert fleet.timers == {}


def test_what_it_answers_by_then_is_waited_for(fleet: Fleet) -> None:
    fleet.herd("drain", "box.two", "--anyway")
    fleet.one.hold.clear()
    began, said = threading.Event(), list[str]()

    def measure() -> None:
        with measured(fleet, "one", said=said, wait=30):
            began.set()

    with ThreadPoolExecutor(2) as pool:
        held = pool.submit(fleet.gateway.ask)
        until(lambda: fleet.one.busy == 1)
        fleet.herd("ready", "box.two")
        done = pool.submit(measure)
        until(lambda: fleet.states["box.one"] == "draining")
        assert not began.wait(0.5)
        fleet.one.hold.set()
        done.result()
        assert held.result().status == 200
    assert began.is_set()


def test_what_is_still_answered_when_the_wait_is_over_is_said(fleet: Fleet) -> None:
    fleet.herd("drain", "box.two", "--anyway")
    fleet.one.hold.clear()
    said: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(fleet.gateway.ask)
        until(lambda: fleet.one.busy == 1)
        fleet.herd("ready", "box.two")
        with measured(fleet, "one", said=said, wait=1):
            fleet.one.hold.set()
        assert held.result().status == 200
    assert said[0] == "box sends no new requests to box.one; 1 requests that were sent before are still running"


def test_a_gateway_that_cannot_be_asked_is_said_and_nothing_stops(fleet: Fleet) -> None:
    (fleet.folder / "gone").touch()
    said: list[str] = []
    with measured(fleet, "one", said=said):
        pass
    (told,) = said
    assert told.startswith("box continues sending to box.one: nothing listens for SSH")


def test_what_stands_behind_no_gateway_asks_nobody(fleet: Fleet) -> None:
    (fleet.folder / "gone").touch()
    file = fleet.folder / "fleet/fleet.yaml"
    file.write_text(file.read_text().replace("box.one, ", ""))
    said: list[str] = []
    with measured(fleet, "one", said=said):
        pass
    file.unlink()
    with measured(fleet, "two", said=said):
        pass
    assert said == []
