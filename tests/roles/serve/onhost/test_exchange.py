"""Servers that change together: all of them or none, also where the run is killed before any of its steps."""

from __future__ import annotations

from itertools import product

import pytest

from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.servers import FailedSwitch
from llamaherd.onhost.system import FailedError
from llamaherd.plan import Plan
from roles.serve.onhost.exchange import end_cut_off
from roles.serve.onhost.exchange import exchange as run_exchange
from roles.serve.onhost.kept import LINKS
from roles.serve.onhost.model import CutOffInput, ExchangeInput
from roles.serve.onhost.switch import JOURNAL
from tests.support.played_host import Fate, File, Killed, PlayedHost
from tests.support.rigs import KEY, cpu_rig, planned
from tests.support.sample import drawn
from tests.support.switches import copied, decided, instance_of, one_run

NAMES = ("chat", "drafter")
FATES: tuple[Fate, ...] = ("serves", "does not load", "does not answer", "is too slow")
OLD = planned(cpu_rig())
LONGER = {f"instances/{name}/context": 2048 for name in NAMES}
MOVED = {"instances/chat/backend": "compose", "instances/drafter/backend": "systemd"}
NEW = {False: planned(cpu_rig(), LONGER), True: planned(cpu_rig(), LONGER | MOVED)}
CASES = list(product(FATES, FATES, (False, True)))


def spec(plan: Plan, name: str) -> str:
    """Return the spec of a planned server."""
    return instance_of(plan, name).spec


def serving() -> PlayedHost:
    """Return a host on which both servers serve and are kept."""
    host = PlayedHost({}, accounts={instance_of(OLD, name).server.user for name in NAMES})
    for name in NAMES:
        assert one_run(host, OLD, name) == ""
    host.steps = 0
    return host


def together(host: PlayedHost, plan: Plan, *, retry: bool = True) -> ExchangeInput | None:
    """Return what a run would do with both, as it travels; None where one of them is as planned."""
    members = tuple(each for name in NAMES if (each := decided(host, plan, name, retry=retry)))
    if len(members) < len(NAMES):
        return None
    given = ExchangeInput("llama-chat, llama-drafter", members, (), (8001, 8002))
    return decode(ExchangeInput, parse_document(dump(given).encode()))


def run(host: PlayedHost, plan: Plan, *, retry: bool = True) -> str:
    """Run once: end what was cut off, or change both. Return why that failed."""
    try:
        if host.read(JOURNAL):
            end_cut_off(CutOffInput("both"), host, host)
        elif given := together(host, plan, retry=retry):
            run_exchange(given, host, host)
    except FailedError as error:
        return str(error)
    return ""


def specs(host: PlayedHost) -> tuple[str, ...]:
    """Return what both serve."""
    return tuple(host.running(f"llama-{name}") for name in NAMES)


def left_over(host: PlayedHost) -> list[str]:
    """Return the kept versions that no link points to."""
    kept = [f"/var/lib/llamaherd/kept/llama-{name}" for name in NAMES]
    linked = {host.target(f"{folder}/{link}") for folder in kept for link in LINKS}
    return [name for folder in kept for name in host.names(folder) if name not in {*LINKS, *linked}]


BEFORE = tuple(spec(OLD, name) for name in NAMES)


@pytest.mark.parametrize(("first", "second", "moved"), CASES)
def test_all_change_or_none(first: Fate, second: Fate, moved: bool) -> None:
    plan, host = NEW[moved], serving()
    after = tuple(spec(plan, name) for name in NAMES)
    host.fates |= dict(zip(after, (first, second), strict=True))
    why = run(host, plan)
    good = {"serves", "is too slow"} >= {first, second}  # a second try may have any speed
    assert specs(host) == (after if good else BEFORE), (why, host.log)
    assert bool(why) is not good
    assert not host.entry(JOURNAL)
    assert left_over(host) == []


@pytest.mark.parametrize(("first", "second", "moved"), drawn(CASES))
def test_killed_before_each_step(first: Fate, second: Fate, moved: bool) -> None:
    plan, started = NEW[moved], serving()
    after = tuple(spec(plan, name) for name in NAMES)
    started.fates |= dict(zip(after, (first, second), strict=True))
    whole = copied(started)
    run(whole, plan)
    for step in range(whole.steps):
        for dies in (False, True):
            host = copied(started)
            host.kill_at = step
            with pytest.raises(Killed):
                run(host, plan)
            host.kill_at = -1
            host.held.clear()
            if dies:
                host.boot()
            if host.read(JOURNAL):
                run(host, plan)
            assert specs(host) in (BEFORE, after), (step, dies, host.log)
            assert not host.entry(JOURNAL)


@pytest.mark.parametrize("second", ["does not load", "does not answer"])
def test_a_refused_version_is_not_kept_where_the_run_is_killed(second: Fate) -> None:
    started = serving()
    started.fates[spec(NEW[False], "drafter")] = second
    whole = copied(started)
    run(whole, NEW[False])
    for step in range(whole.steps):
        host = copied(started)
        host.kill_at = step
        with pytest.raises(Killed):
            run(host, NEW[False])
        host.kill_at = -1
        host.held.clear()
        if host.read(JOURNAL):
            run(host, NEW[False])
            assert left_over(host) == [], (step, host.log)


@pytest.mark.parametrize("slow", NAMES)
@pytest.mark.parametrize("has_become_slow", [False, True])
def test_a_host_that_became_slow_is_not_the_servers_fault(slow: str, has_become_slow: bool) -> None:
    host = serving()
    host.has_become_slow = has_become_slow
    host.fates[spec(NEW[False], slow)] = "is too slow"
    assert "serve as before" in run(host, NEW[False], retry=False)
    assert specs(host) == BEFORE
    kept = host.read(f"/var/lib/llamaherd/kept/llama-{slow}/last/speeds")
    assert (kept == "[slow]") is has_become_slow
    refused = [name for name in NAMES if host.entry(f"/var/lib/llamaherd/refused/llama-{name}")]
    assert refused == ([] if has_become_slow else [slow])
    assert not host.entry(JOURNAL)


def test_the_downtime_of_a_failed_change_begins_with_the_first_stop() -> None:
    host = serving()
    host.fates[spec(NEW[False], "drafter")] = "does not load"
    times: list[float] = []
    host.seen = lambda now: times.append(now.time) if not now.running("llama-drafter") else None
    assert "serve as before" in run(host, NEW[False])
    (failed,) = (each for each in host.values if isinstance(each, FailedSwitch))
    assert failed.downtime is not None
    assert failed.downtime >= times[-1] - times[0]


def test_one_that_is_cut_off_is_ended_before_another_begins() -> None:
    host = serving()
    given = together(host, NEW[False])
    assert given
    host.files[JOURNAL] = File("{}")
    with pytest.raises(FailedError, match="another run was cut off"):
        run_exchange(given, host, host)
    assert specs(host) == BEFORE


@pytest.mark.parametrize("name", NAMES)
def test_one_of_them_does_not_change_alone_where_they_were_cut_off(name: str) -> None:
    """A server that was started alone would keep the port which the previous version of the other needs."""
    started = serving()
    whole = copied(started)
    run(whole, NEW[False])
    refused = 0
    for step in range(whole.steps):
        host = copied(started)
        host.kill_at = step
        with pytest.raises(Killed):
            run(host, NEW[False])
        host.kill_at = -1
        host.held.clear()
        if host.read(JOURNAL):
            before = specs(host)
            why = one_run(host, NEW[False], name)
            refused += "was cut off" in why
            assert specs(host) == before, (step, why)
            assert run(host, NEW[False]) == "", (step, host.log)
            assert specs(host) in (BEFORE, tuple(spec(NEW[False], each) for each in NAMES))
    assert refused


def test_a_journal_that_cannot_be_read_is_reported() -> None:
    host = serving()
    host.files[JOURNAL] = File('{"names": 1}')
    with pytest.raises(FailedError, match="cannot be read"):
        end_cut_off(CutOffInput("both"), host, host)
    assert specs(host) == BEFORE


def test_the_journal_holds_no_key() -> None:
    host = serving()
    host.files["/etc/llamaherd/keys/chat"] = File("another key", 0o400, "llama-chat")
    given = together(host, NEW[False])
    assert given
    journals: list[str] = []
    host.seen = lambda now: journals.append(now.read(JOURNAL) or "")
    run_exchange(given, host, host)
    assert any(journals)
    assert KEY in dump(given)
    assert not [each for each in journals if KEY in each]


def test_a_server_that_still_loads_after_a_boot_is_left_alone() -> None:
    """It was not stopped yet when the host died, and is not healthy yet."""
    host = serving()
    given = together(host, NEW[False])
    assert given
    host.files[JOURNAL] = File(dump(given))
    host.units["llama-chat"].state = "activating"
    run = host.units["llama-chat"].run
    end_cut_off(CutOffInput("both"), host, host)
    assert (host.units["llama-chat"].run, host.units["llama-chat"].state) == (run, "activating")


def test_a_candidate_that_was_left_over_ends_first() -> None:
    host = serving()
    unit = "/run/systemd/system/llamaherd-beside-chat.service"
    host.files[unit] = File("Environment=LLAMAHERD_SPEC=0")
    given = together(host, NEW[False])
    assert given
    run_exchange(given, host, host)
    assert unit not in host.files


def test_a_journal_of_an_earlier_version_is_a_script() -> None:
    host = serving()
    ran: list[str] = []
    host.scripts = lambda argv: ran.append(" ".join(argv))
    host.files[JOURNAL] = File("# Ends what servers do together\n")
    end_cut_off(CutOffInput("both"), host, host)
    assert ran == [f"sh {JOURNAL}"]
