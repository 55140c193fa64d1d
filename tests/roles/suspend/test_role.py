"""The timer that suspends a host: its plan, its changes, its checks, and what `herd check` refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import NoInput
from llamaherd.plan import Plan
from roles.suspend import SuspendState, suspend_changes, suspend_checks, suspend_leftovers
from roles.suspend.onhost import ApplyInput, apply, inspect, remove
from tests.checks.test_fleet import Found, porch, survey
from tests.support.ours import parse_state, show_plan
from tests.support.recording import RecordingHost, input_of
from tests.support.rigs import Declared, changed, converged, cpu_rig, gpu_rig, planned, wsl_rig

__all__ = ["survey"]
SLEEPS = {"suspend": {"after": "30m"}, "wake": {"mac": "3c:7c:3f:12:ab:cd"}}
GATEWAY = "gateway: {on: [box], models: {small: {serve: [box.drafter]}}}"
KEYS = {"chat": "sk-chat"}


@pytest.fixture(name="wanted")
def _wanted() -> Plan:
    return planned(cpu_rig(), SLEEPS)


def test_a_host_as_planned_stays_unchanged(wanted: Plan) -> None:
    assert suspend_changes(wanted, parse_state(converged(wanted, KEYS))) == []


@pytest.mark.parametrize("line", ["suspend.json", "suspend.timer", "libexec/suspend", "suspend\tactive"])
def test_what_differs_is_applied(wanted: Plan, line: str) -> None:
    lines = [each for each in converged(wanted, KEYS) if line not in each]
    (change,) = suspend_changes(wanted, parse_state(lines))
    assert len(input_of(change, ApplyInput).files) == 4


def test_the_program_reads_each_server() -> None:
    plan = planned(gpu_rig(), SLEEPS | {"instances/reasoner/idle": {"unload": "15m"}})
    assert plan.suspend
    table: dict[str, Any] = json.loads(plan.suspend.files[1].text)
    servers = {each["service"]: each for each in table["servers"]}
    assert (table["after"], table["mac"], len(servers)) == (1800, "3c:7c:3f:12:ab:cd", len(plan.instances))
    assert servers["llama-reasoner"] == {
        "service": "llama-reasoner",
        "unit": True,
        "metrics": ["http://127.0.0.1:8001/metrics"],
        "props": "http://127.0.0.1:8001/props",
        "key": "",
    }
    assert (servers["llama-boxed"]["unit"], servers["llama-boxed"]["props"]) == (False, "")


def test_a_rig_without_it_has_none_of_it() -> None:
    plan = planned(cpu_rig())
    assert plan.suspend is None
    assert suspend_changes(plan, HostState()) == []
    assert suspend_leftovers(plan, HostState.of(SuspendState())) == []
    (change,) = suspend_leftovers(plan, HostState.of(SuspendState("active")))
    assert input_of(change, NoInput) == NoInput()


def test_its_description_and_its_checks(wanted: Plan) -> None:
    assert "suspend    after 30 min without a request, a login or a run" in show_plan(wanted)
    timer = "ActiveState=active\nUnitFileState=enabled\n"
    answers = {("suspend timer", ""): timer, ("suspend result", ""): "success\n"}
    assert [(each.ok, each.doubt) for each in suspend_checks(wanted, answers)] == [(True, False)]
    failed = suspend_checks(wanted, {**answers, ("suspend result", ""): "exit-code\n"})
    assert [(each.ok, each.doubt) for each in failed] == [(True, False), (True, True)]


def test_verbs_on_a_host() -> None:
    host = RecordingHost({}, ends={"systemctl restart": Ended(1)})
    assert inspect(NoInput(), host).timer == ""
    with pytest.raises(FailedError, match="does not start"):
        apply(ApplyInput(()), host)
    remove(NoInput(), host)


@pytest.mark.parametrize(("after", "seconds"), [("5m", 300), ("30m", 1800), ("48h", 172800)])
def test_times(after: str, seconds: int) -> None:
    suspend = Rig.model_validate(changed(cpu_rig(), {"suspend": {"after": after}})).suspend
    assert suspend
    assert suspend.after == seconds


@pytest.mark.parametrize("after", ["4m", "299s", "49h", "30", "", "-5m", "soon"])
def test_times_that_are_out_of_bounds(after: str) -> None:
    with pytest.raises(ValidationError):
        Rig.model_validate(changed(cpu_rig(), {"suspend": {"after": after}}))


def test_a_rig_that_would_not_wake_or_must_not_sleep(survey: Found) -> None:
    def of_rigs(text: str, box: Declared | None = None, beside: Declared | None = None) -> list[str]:
        found = survey(text, box, beside)
        return sorted(each.code for each in found.findings if each.code in ("LH363", "LH364"))

    assert of_rigs(GATEWAY, None, changed(porch(), SLEEPS)) == []
    assert of_rigs(GATEWAY, None, changed(porch(), {"suspend": {"after": "30m"}})) == ["LH363"], "it has no `wake`"
    assert of_rigs(GATEWAY, changed(cpu_rig(), SLEEPS)) == ["LH364"], "it is the gateway"
    watched = f"{GATEWAY}\nmonitoring: {{on: porch, rigs: [box]}}"
    assert of_rigs(watched, None, changed(porch(), SLEEPS)) == ["LH364"]
    assert of_rigs(GATEWAY, None, changed(wsl_rig(), SLEEPS | {"rig": "porch"})) == ["LH364"]
    assert planned(wsl_rig(), SLEEPS).suspend is None
