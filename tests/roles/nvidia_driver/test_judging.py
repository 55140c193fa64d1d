"""Which servers judge a driver, what is kept of the one before until they have, and what becomes of it."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState, RefusedDriver
from llamaherd.inventory.schema import LOCAL
from llamaherd.plan import Plan
from llamaherd.role.changes import Change, RebootHost, RunVerb
from roles.nvidia_driver import tasks
from roles.nvidia_driver.changes import driver_changes, refusal_changes
from roles.nvidia_driver.onhost.booting import NothingInput, SettleInput, TakenBackInput
from roles.nvidia_driver.onhost.packages import InstallInput
from roles.nvidia_driver.onhost.undo import TakeBackInput
from roles.nvidia_driver.rollback import BACK_SECONDS, gated, roll_back, settle_changes
from tests.support.fake import run
from tests.support.ours import parse_state
from tests.support.recording import input_of
from tests.support.rigs import converged, gpu_rig, planned
from tests.support.states import updated, with_driver

BEFORE, AFTER = "580.95.05", "590.48.01"
GATE = {"instances/worker/gate": {"decode": "-3%"}}
READING = "what was measured"
READ = f"nvidia\treading\t{base64.b64encode(READING.encode()).decode()}"
PENDING = (f"nvidia\tkept\t{BEFORE}", "nvidia\tanswered", READ)


def declared(branch: int = 590, gates: dict[str, Any] | None = None, **driver: Any) -> Plan:
    """A rig with a driver, and a gate for one of its servers where nothing else is said."""
    keys = {"host/os": "debian-13", "gpus/driver": {"branch": branch, **driver}}
    return planned(gpu_rig(), keys | (GATE if gates is None else gates))


OLD, NEW, UNGATED = declared(580), declared(), declared(gates={})


def host(plan: Plan, *said: str, **nvidia: Any) -> HostState:
    """A host that is as planned, and which says this besides."""
    seen = parse_state([*converged(plan, {}), *said])
    return with_driver(seen, **nvidia)


def pending(plan: Plan = NEW, **nvidia: Any) -> HostState:
    """A host that was booted for a driver, which answers, and keeps the one before until it is judged."""
    return host(plan, *PENDING, **{"loaded": AFTER, **nvidia})


def is_judged(change: Change) -> bool:
    """Return whether what is kept of the driver before stays until servers were measured."""
    way_back = input_of(change, InstallInput).way_back
    return way_back is not None and way_back.undo.judged


def installs(plan: Plan, seen: HostState, *, retry: bool = False) -> Change:
    return driver_changes(plan, seen, retry=retry)[-1]


def test_servers_with_a_gate_are_measured_before_their_driver_is_changed() -> None:
    change = installs(NEW, host(OLD))
    assert change.measured
    (worker,) = change.measured.servers
    assert worker[0].name == "worker"
    assert worker[1] == next(each.spec for each in OLD.instances if each.name == "worker")
    assert change.measured.driver == BEFORE
    told = "worker must not become slower by it: measured before and after, for 20 min 00 s at most in all"
    assert change.reasons[-1] == told


def test_without_a_gate_a_change_is_what_it_was() -> None:
    gated_, plain = installs(NEW, host(OLD)), installs(UNGATED, host(OLD))
    assert plain.measured is None
    assert not is_judged(plain)
    assert gated_.measured
    assert is_judged(gated_)
    assert [task.name for task in tasks(UNGATED)] == [
        task.name for task in tasks(NEW) if not task.name.startswith("judged")
    ]


@pytest.mark.parametrize(
    "case", ["a kld alone", "a container", "not booted", "the machine that herd runs on", "it does not serve", "retry"]
)
def test_what_cannot_be_judged_is_not_measured(case: str) -> None:
    plans = {
        "a kld alone": declared(gates={"instances/worker/gate": {"kld": 0.02}}),
        "a container": declared(gates={"instances/boxed/gate": {"decode": "-3%"}}),
        "not booted": declared(reboot=False),
        "the machine that herd runs on": declared(gates={**GATE, "connect": {"host": LOCAL}}),
    }
    plan = plans.get(case, NEW)
    seen = host(OLD)
    if case == "it does not serve":
        seen = updated(seen, units={"llama-worker": replace(seen.servers.units["llama-worker"], active="failed")})
    change = installs(plan, seen, retry=case == "retry")
    assert change.measured is None
    assert not is_judged(change)
    assert bool(gated(plan)) is (plan is NEW)


def test_what_a_killed_run_has_measured_is_kept_for_the_boot_that_follows() -> None:
    seen = host(OLD, *PENDING[::2])
    change = installs(NEW, seen)
    assert change.measured is None
    assert is_judged(change)


def test_a_driver_that_answers_is_judged_before_the_one_before_is_let_go() -> None:
    (change,) = settle_changes(NEW, pending(), retry=False)
    assert str(change) == f"remove driver {BEFORE}: it is kept until {AFTER} is judged"
    assert change.judged
    assert (change.judged.driver, change.judged.before) == (AFTER, BEFORE)
    assert change.judged.reading == READING
    assert isinstance(change.judged.settled.given, SettleInput)
    assert "llama-worker.service" in change.judged.settled.given.units
    assert change.how == RunVerb("nvidia_driver.booting.forget_before", NothingInput())


@pytest.mark.parametrize(
    ("plan", "nvidia", "retry", "why"),
    [
        (NEW, {}, True, "the new one stays, by `--retry`"),
        (NEW, {"loaded": BEFORE}, False, "it is not what the host was booted for"),
        (NEW, {"loaded": None}, False, "it is not what the host was booted for"),
        (UNGATED, {}, False, "no `gate` requires it"),
    ],
    ids=["retry", "somebody went back", "none is loaded", "no gate"],
)
def test_what_is_not_judged_any_more_is_let_go(plan: Plan, nvidia: dict[str, Any], retry: bool, why: str) -> None:
    (change,) = settle_changes(plan, pending(**nvidia), retry=retry)
    assert (change.judged, change.reasons) == (None, (why,))


def test_nothing_is_judged_where_nothing_waits_for_it() -> None:
    assert settle_changes(NEW, host(NEW), retry=False) == []
    assert settle_changes(NEW, host(OLD, *PENDING[::2]), retry=False) == []
    assert settle_changes(NEW, pending(judging=True), retry=False) == []


def test_where_no_gate_is_left_what_is_kept_goes_with_the_packages_task() -> None:
    assert [change.action for change in driver_changes(UNGATED, pending())] == ["remove"]
    assert driver_changes(NEW, pending()) == []
    moved = driver_changes(declared(595, gates={}), pending())
    assert [change.action for change in moved] == ["remove", "install"]
    # What comes back is what works now, and not what was kept before that.
    assert f"{AFTER} comes back by itself where 595 does not answer" in moved[-1].reasons


def test_going_back_takes_the_road_of_one_that_does_not_answer() -> None:
    assert NEW.driver
    how = roll_back(NEW.driver, AFTER, BEFORE, "chat is slower by it: it's 5 %")
    assert isinstance(how, RebootHost)
    assert how.extra == BACK_SECONDS
    assert how.ask.verb == "nvidia_driver.undo.take_back"
    assert isinstance(how.ask.given, TakeBackInput)
    assert (how.ask.given.why, how.ask.given.undo.judged) == ("chat is slower by it: it's 5 %", True)
    assert how.after.given == TakenBackInput(AFTER, BEFORE, "chat is slower by it: it's 5 %")


TRIED = RefusedDriver(AFTER, "open nvidia", "2026-11-26 12:03:11 UTC", BEFORE, "chat is slower by it", "slower")


def test_one_that_was_slower_is_not_tried_again() -> None:
    seen = host(OLD, "\t".join(("nvidia", "refused", *TRIED)))
    assert seen.driver.refused == TRIED
    assert driver_changes(NEW, seen) == []
    with pytest.raises(UserError) as refused:
        refusal_changes(NEW, seen, retry=False)
    told = f"driver {AFTER} was tried on 2026-11-26 12:03:11 UTC, and taken back: chat is slower by it, "
    assert str(refused.value).startswith(told + f"and {BEFORE} serves as before")
    assert "`herd up --retry` to have it as slow as it is" in str(refused.value)
    change = installs(NEW, seen, retry=True)
    assert change.measured is None


def test_a_run_lets_a_driver_stay_of_which_nothing_is_known(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ran = run(NEW, [*converged(NEW, {}), *PENDING])
    assert not ran.failed
    assert "driver 590.95.05 stays unjudged: what was measured before it is gone" in caplog.text
    verbs = [each["verb"] for each in ran.documents]
    assert "nvidia_driver.booting.forget_before" in verbs
    assert "nvidia_driver.undo.take_back" not in verbs
