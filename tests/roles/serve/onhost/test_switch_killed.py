"""A switch that is killed before each of its steps, or whose host dies there: the next runs end it."""

from __future__ import annotations

from itertools import product

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.plan import Plan
from tests.support.played_host import Fate, Killed, PlayedHost
from tests.support.sample import drawn
from tests.support.switches import copied, decided, instance_of, one_run, serving_host, settled, two_plans

FATES: tuple[Fate, ...] = ("serves", "does not load", "does not answer", "is too slow")
CASES = list(product(("chat", "drafter"), FATES, (False, True), (False, True)))


def _down(host: PlayedHost, name: str) -> bool:
    return not host.running(f"llama-{name}") and not host.candidate(name)


@pytest.mark.parametrize(("name", "fate", "room", "moved"), drawn(CASES))
def test_killed_before_each_step(name: str, fate: Fate, room: bool, moved: bool) -> None:
    old, new = two_plans(name, moved)
    before, after = instance_of(old, name), instance_of(new, name)
    started = serving_host(old, name, room=room)
    started.fates[after.spec] = fate
    whole = copied(started)
    one_run(whole, new, name)
    for step in range(whole.steps):
        for dies in (False, True):
            host = copied(started)
            host.kill_at = step
            with pytest.raises(Killed):
                one_run(host, new, name)
            host.kill_at = -1
            host.held.clear()
            if dies:
                host.boot()
            why = settled(host, new, name)
            expected = after.spec if fate == "serves" else before.spec
            assert host.running(f"llama-{name}") == expected, (step, dies, why, host.log)
            assert not host.led
            assert not host.read(f"/var/lib/llamaherd/kept/llama-{name}/untried"), (step, dies)
            assert decided_or_refused(host, new, name) == ("refused" if fate != "serves" else "in sync"), (step, why)


def decided_or_refused(host: PlayedHost, plan: Plan, name: str) -> str:
    """Return what the run after that decides."""
    try:
        return "in sync" if decided(host, plan, name) is None else "something to do"
    except UserError:
        return "refused"


@pytest.mark.parametrize(("name", "fate"), [(name, fate) for name in ("chat", "drafter") for fate in FATES])
def test_with_room_for_both_a_server_is_never_away(name: str, fate: Fate) -> None:
    old, new = two_plans(name)
    host = serving_host(old, name, room=True)
    host.fates[instance_of(new, name).spec] = fate
    away: list[int] = []
    host.seen = lambda now: away.append(now.steps) if _down(now, name) else None
    one_run(host, new, name)
    assert away == []


@pytest.mark.parametrize("name", ["chat", "drafter"])
def test_without_room_it_is_away_from_its_stop_to_its_start(name: str) -> None:
    old, new = two_plans(name)
    host = serving_host(old, name)
    away: list[int] = []
    host.seen = lambda now: away.append(now.steps) if _down(now, name) else None
    assert one_run(host, new, name) == ""
    assert away == list(range(away[0], away[-1] + 1))
    assert len(away) <= 3
