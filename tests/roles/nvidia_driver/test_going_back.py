"""What becomes of a driver that does not come up: said before, gone back from, and not tried again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState, RefusedDriver
from llamaherd.inventory.schema import Connect
from llamaherd.pipeline.plan import tasks_of
from llamaherd.plan import Plan
from llamaherd.role.role import Run
from roles.nvidia_driver import ROLE, driver_refusals
from roles.nvidia_driver.changes import BACK_SECONDS, driver_changes, reboot_changes, refusal_changes, way_back
from roles.nvidia_driver.onhost.packages import InstallInput
from tests.support.fake import run
from tests.support.ours import parse_state
from tests.support.recording import input_of
from tests.support.rigs import converged, gpu_rig, planned
from tests.support.states import edited, with_driver

BEFORE, REFUSED = "580.95.05", "590.48.01"
OLD = planned(gpu_rig(), {"host/os": "debian-13", "gpus/driver": {"branch": 580}})
TRIED = RefusedDriver(REFUSED, "open nvidia", "2026-11-23 12:03:11 UTC", BEFORE, "nvidia-smi: it has failed")
SAID = "\t".join(("nvidia", "refused", *TRIED))


def declared(**driver: Any) -> Plan:
    """The same rig with another driver: branch 590 where nothing else is said."""
    return planned(gpu_rig(), {"host/os": "debian-13", "gpus/driver": {"branch": 590, **driver}})


def host(*said: str, **nvidia: Any) -> HostState:
    """A host whose driver of 580 works, and which says this besides."""
    seen = parse_state([*converged(OLD, {}), *said])
    return with_driver(seen, **nvidia)


@pytest.mark.parametrize(
    ("nvidia", "said"),
    [
        ({}, f"the host restores {BEFORE} if 590 does not respond"),
        ({"kept": "570.1.1", "loaded": None}, "the host restores 570.1.1 if 590 does not respond"),
        ({"loaded": None}, "no driver responds now, so the host cannot roll back"),
        ({"problem": "version mismatch"}, "no driver responds now, so the host cannot roll back"),
    ],
    ids=["it works", "kept by an earlier run", "none is loaded", "it does not answer"],
)
def test_what_would_come_back_is_said_with_the_change(nvidia: dict[str, Any], said: str) -> None:
    plan = declared()
    assert plan.driver
    change = driver_changes(plan, host(**nvidia))[-1]
    assert change.reasons[-1] == said
    assert input_of(change, InstallInput).way_back == way_back(plan.driver)


def test_what_moves_no_driver_arms_nothing() -> None:
    seen = host()
    others = {name: each for name, each in seen.driver.packages.items() if name != "nvidia-kernel-open-dkms"}
    seen = with_driver(seen, packages=others)
    change = driver_changes(OLD, seen)[-1]
    assert input_of(change, InstallInput).way_back is None
    assert not [why for why in change.reasons if "go back" in why or "comes back" in why]
    # The kernel of a container is another's.
    lent = host()
    lent = edited(lent, machine=replace(lent.system.machine, virtual="lxc"))
    assert input_of(driver_changes(declared(), lent)[-1], InstallInput).way_back is None


def test_what_did_not_come_up_is_not_tried_again() -> None:
    seen = host(SAID)
    assert seen.driver.refused == TRIED
    assert driver_changes(declared(), seen) == []
    assert driver_refusals(declared(), seen) == []
    with pytest.raises(UserError) as refused:
        refusal_changes(declared(), seen, retry=False)
    told = "driver 590.48.01 was tried on 2026-11-23 12:03:11 UTC, and did not come up (nvidia-smi: it has failed), "
    assert str(refused.value).startswith(told + "and 580.95.05 serves as before")
    assert "`herd up --retry`" in str(refused.value)


def test_a_refused_driver_fails_its_task_alone_and_the_run_resumes() -> None:
    seen, failed = host(SAID), []
    for task in tasks_of(declared(), ROLE):
        try:
            task.changes(seen, Run(Connect(host="box")))
        except UserError:
            failed.append(task)
    assert [task.alone for task in failed] == [True]


def test_retry_tries_it_again() -> None:
    seen = host(SAID)
    assert refusal_changes(declared(), seen, retry=True) == []
    assert driver_changes(declared(), seen, retry=True)[-1].action == "install"


@pytest.mark.parametrize(
    "driver", [{"version": "590.44.01"}, {"modules": "proprietary"}, {"branch": 595}], ids=lambda driver: str(driver)
)
def test_another_one_is_tried(driver: dict[str, Any]) -> None:
    seen = host(SAID)
    assert refusal_changes(declared(**driver), seen, retry=False) == []
    assert driver_changes(declared(**driver), seen)


def test_one_that_is_there_by_now_is_not_refused() -> None:
    """By hand, say: what is installed as declared is gone on with."""
    seen = parse_state([*converged(declared(), {}), SAID])
    assert refusal_changes(declared(), seen, retry=False) == []


def test_a_host_that_judges_is_left_alone() -> None:
    seen = host(f"nvidia\tkept\t{BEFORE}", "nvidia\tjudging", loaded=None)
    (refusal,) = driver_refusals(declared(), seen)
    assert "still checks it" in refusal.message
    assert driver_refusals(OLD, host()) == []


def test_a_host_that_may_boot_twice_is_waited_for_longer() -> None:
    extra = [
        change.how.extra
        for kept in ("", "570.1.1")
        for change in reboot_changes(OLD, host(kept=kept, loaded="570.1.1"))
        if hasattr(change.how, "extra")
    ]
    assert extra == [0, BACK_SECONDS]


def test_a_run_says_so_and_does_nothing_to_the_driver(caplog: pytest.LogCaptureFixture) -> None:
    plan = declared()
    world = [line.replace("590.95.05", BEFORE) for line in converged(plan, {})]
    ran = run(plan, [*world, SAID])
    assert ran.failed
    assert "driver 590.48.01 was tried on 2026-11-23" in caplog.text
    assert [name for name in ran.changed if name.startswith("nvidia_driver | packages")] == []
    assert not [each for each in ran.documents if each["verb"].startswith("nvidia_driver")]
