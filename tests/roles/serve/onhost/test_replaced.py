"""Servers that are not declared any more serve until those that replace them do, also where the run is killed."""

from __future__ import annotations

from itertools import product

import pytest

from llamaherd.onhost.servers import FailedSwitch
from roles.serve.transaction import UndeclaredServer
from tests.support.played_host import Fate, Killed, PlayedHost
from tests.support.sample import drawn
from tests.support.switches import copied, instance_of, one_run, serving_host, settled, two_plans

OLD, NEW = two_plans("chat")
FATES: tuple[Fate, ...] = ("serves", "does not load", "does not answer")
CASES = list(product(FATES, (False, True), (False, True)))


def renamed(fate: Fate, *, room: bool) -> PlayedHost:
    """Return a host where `chat` serves, which `drafter` is to replace."""
    host = serving_host(OLD, "chat", room=room)
    host.fates[instance_of(NEW, "drafter").spec] = fate
    return host


def going(host: PlayedHost, *, port: bool) -> list[UndeclaredServer]:
    """Return the server that goes, as an inspection finds it."""
    return [UndeclaredServer("chat", unit=True, container=False, port=port, serves=bool(host.running("llama-chat")))]


@pytest.mark.parametrize(("fate", "room", "port"), CASES)
def test_one_of_them_serves_at_the_end(fate: Fate, room: bool, port: bool) -> None:
    host = renamed(fate, room=room)
    away: list[int] = []
    host.seen = lambda now: None if now.running("llama-chat") else away.append(now.steps)
    why = one_run(host, NEW, "drafter", going=going(host, port=port))
    was_down = bool(away)
    new, old = host.running("llama-drafter"), host.running("llama-chat")
    sent = [each for each in host.values if isinstance(each, FailedSwitch)]
    expected = [] if fate == "serves" else [(True, was_down)]
    assert [(each.serves, each.downtime is not None) for each in sent] == expected
    if fate == "serves":
        assert (why, new) == ("", instance_of(NEW, "drafter").spec)
    else:
        assert old == instance_of(OLD, "chat").spec, host.log
        assert "llama-chat" in why
        assert new == ""
    assert not host.entry("/var/lib/llamaherd/kept/llama-chat/aside") or fate == "serves"


@pytest.mark.parametrize(("fate", "room", "port"), drawn(CASES))
def test_killed_before_each_step(fate: Fate, room: bool, port: bool) -> None:
    started = renamed(fate, room=room)
    whole = copied(started)
    one_run(whole, NEW, "drafter", going=going(whole, port=port))
    for step in range(whole.steps):
        for dies in (False, True):
            host = copied(started)
            host.kill_at = step
            with pytest.raises(Killed):
                one_run(host, NEW, "drafter", going=going(host, port=port))
            host.kill_at = -1
            host.held.clear()
            if dies:
                host.boot()
            one_run(host, NEW, "drafter", going=going(host, port=port))
            serves = (host.running("llama-drafter"), host.running("llama-chat"))
            assert any(serves), (step, dies, host.log)


def test_one_that_has_room_is_not_stopped_before() -> None:
    host = renamed("serves", room=True)
    away: list[int] = []
    host.seen = lambda now: None if now.running("llama-chat") else away.append(now.steps)
    assert one_run(host, NEW, "drafter", going=going(host, port=False)) == ""
    assert away == []


def test_one_whose_port_is_taken_is_stopped_and_said_so() -> None:
    host = renamed("serves", room=True)
    assert one_run(host, NEW, "drafter", going=going(host, port=True)) == ""
    assert "stopping llama-chat, which is not declared any more: its port is to be that of llama-drafter" in host.log
    assert host.running("llama-chat") == ""


def test_one_that_does_not_come_back_is_reported() -> None:
    host = renamed("does not load", room=False)
    host.fates[instance_of(OLD, "chat").spec] = "does not load"
    one_run(host, NEW, "drafter", going=going(host, port=True))
    assert any("llama-chat was started again" in line and "does not come up either" in line for line in host.log)


def test_a_container_comes_back_by_its_project() -> None:
    host = serving_host(OLD, "drafter")
    host.fates[instance_of(NEW, "chat").spec] = "does not load"
    gone = [UndeclaredServer("drafter", unit=False, container=True, port=True, serves=True)]
    one_run(host, NEW, "chat", going=gone)
    assert host.running("llama-drafter") == instance_of(OLD, "drafter").spec
    assert settled(host, OLD, "drafter") == ""
