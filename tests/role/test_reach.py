"""Whether servers are reached from this machine: what was tried, and what is made of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.host.responses import ProbeOutputs
from llamaherd.inventory.schema import LOCAL, Connect, Rig
from llamaherd.plan import Endpoint
from llamaherd.role.dial import dial, reached, way
from llamaherd.role.reach import Door, NoWay, RigAddress, Tried, WayThere, doors, judge_reach, networks
from tests.support.ours import judge as judged
from tests.support.rigs import cpu_rig, planned


def door(name: str, listen: str, port: int) -> Door:
    return Door(name, Endpoint(listen=listen, port=port, models=("m",), streams=1))


DOOR = door("chat", "0.0.0.0", 8080)
HOST = networks(["127.0.0.1/8", "::1/128", "192.168.1.5/24", "100.64.0.9/32", "fd00::5/64", "nonsense"])
BESIDE = RigAddress("192.168.1.5", "192.168.1.77")


@pytest.mark.parametrize("problem", ["does not respond", "is refused", "is rejected"])
def test_a_port_that_is_shut_to_a_neighbour_is_an_alarm(problem: str) -> None:
    reach = judge_reach(WayThere((BESIDE,)), Tried(((BESIDE, problem),)), DOOR, HOST)
    assert (reach.ok, reach.doubt) == (False, False)
    assert f"192.168.1.5:8080 {problem} from this machine" in reach.detail


@pytest.mark.parametrize(
    ("address", "words"),
    [
        # A router lies between; an address of a tunnel, which has no network around it; one that is translated.
        (RigAddress("192.168.1.5", "10.0.0.7"), "this machine is in another network (10.0.0.7)"),
        (RigAddress("192.168.1.5", ""), "without an address there"),
        (RigAddress("100.64.0.9", "100.64.0.2"), "this machine is in another network"),
        (RigAddress("203.0.113.9", "192.168.1.77"), "203.0.113.9 is no address of the host's own"),
    ],
)
def test_what_may_have_another_reason_is_a_doubt(address: RigAddress, words: str) -> None:
    reach = judge_reach(WayThere((address,)), Tried(((address, "does not respond"),)), DOOR, HOST)
    assert (reach.ok, reach.doubt, words in reach.detail) == (True, True, True), reach.detail


def test_one_address_that_answers_is_enough() -> None:
    other = RigAddress("fd00::5", "fd00::77")
    reach = judge_reach(WayThere((BESIDE, other)), Tried(((BESIDE, "is refused"), (other, ""))), DOOR, HOST)
    assert (reach.ok, reach.doubt, "[fd00::5]:8080" in reach.detail) == (True, False, True)


def test_without_a_way_of_its_own_nothing_is_said_against_it() -> None:
    for there, tried in ((NoWay("ssh jumps"), None), (WayThere((BESIDE,)), Tried(()))):
        reach = judge_reach(there, tried, DOOR, HOST)
        assert (reach.ok, reach.doubt) == (True, False)
        assert reach.detail.startswith("not tried from here: ")


@pytest.mark.parametrize(
    ("listen", "addresses"),
    [
        ("0.0.0.0", ["192.168.1.5"]),
        ("::", ["192.168.1.5", "fd00::5"]),
        ("192.168.1.5", ["192.168.1.5"]),
        ("fd00::5", ["fd00::5"]),
        ("10.9.9.9", []),
    ],
)
def test_a_door_is_tried_where_it_opens(listen: str, addresses: list[str]) -> None:
    there = WayThere((BESIDE, RigAddress("fd00::5", "fd00::77")))
    assert [each.there for each in there.to(door("chat", listen, 1))] == addresses


def test_only_servers_for_others_that_are_well_have_a_door() -> None:
    rig = cpu_rig()
    rig["instances"]["chat"] |= {"listen": "0.0.0.0", "api_key": {"env": "KEY"}}
    plan = planned(rig)
    assert [each.name for each in doors(plan, ["chat", "drafter"])] == ["chat"]
    assert doors(plan, ["drafter"]) == []


@pytest.fixture
def listener() -> Iterator[int]:
    """A port of this machine that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_what_listens_answers_and_what_does_not_is_refused(listener: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        shut = gone.getsockname()[1]
    here = RigAddress("127.0.0.1", "127.0.0.1")
    tried = dial(WayThere((here,)), [door("open", "0.0.0.0", listener), door("shut", "0.0.0.0", shut)])
    assert tried == {"open": Tried(((here, ""),)), "shut": Tried(((here, "is refused"),))}


def connect(host: str) -> Connect:
    return Connect.model_validate({"host": host})


@pytest.mark.usefixtures("starts_processes")
def test_a_way_is_what_the_ssh_client_goes_by() -> None:
    found = way(connect("192.0.2.5"))
    assert isinstance(found, WayThere)
    assert [each.there for each in found.addresses] == ["192.0.2.5"]


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("host", "why"),
    [
        (LOCAL, "it is this machine"),
        ("127.0.0.1", "by a port of this machine"),
        ("no-such-name.invalid", "no name of an address"),
        ("jumped", "through another machine"),
    ],
)
def test_where_nothing_can_be_known_nothing_is_tried(
    host: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "ssh"
    config = tmp_path / "config"
    config.write_text("Host jumped\n  HostName 192.0.2.5\n  ProxyJump 192.0.2.1\n")
    real.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} "$@"\n')
    real.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = way(connect(host))
    assert isinstance(found, NoWay)
    assert why in found.why
    assert reached(connect(host), [DOOR], [])["chat"].detail.endswith(found.why)


def test_nothing_is_asked_where_no_server_is_for_others() -> None:
    assert reached(connect("no-such-name.invalid"), [], []) == {}


def test_a_door_that_is_shut_fails_its_instance() -> None:
    rig = cpu_rig()
    plan = planned(rig)
    shut = judge_reach(WayThere((BESIDE,)), Tried(((BESIDE, "does not respond"),)), DOOR, HOST)
    nothing: ProbeOutputs = {}
    report = judged(Rig.model_validate(rig), plan, nothing, {"chat": shut})
    found = {each.name: [check for check in each.checks if check.name == "reach"] for each in report.instances}
    assert [(check.ok, check.detail) for check in found["chat"]] == [(False, shut.detail)]
    assert found["drafter"] == []
