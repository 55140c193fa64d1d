"""The socket through which a gateway wakes rigs, on pyinfra's @fake connector, and the checks of `wake`."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.system import Ended, FailedError
from llamaherd.onhost.verbs import NoInput
from llamaherd.plan import Plan
from roles.gateway.config import configuration, waker
from roles.wake import WakeState, wake_changes, wake_checks, wake_files, wake_leftovers
from roles.wake.onhost import ApplyInput, apply, inspect, remove
from tests.checks.test_fleet import Found, porch, survey
from tests.support.gateway import gateway_of, gateway_plans, keys_of, waking_plan
from tests.support.ours import parse_state, show_plan
from tests.support.recording import RecordingHost, input_of
from tests.support.rigs import Declared, changed, converged, cpu_rig

__all__ = ["survey"]
KEYS = {"tom": "a", "ann": "b", "chat": "c", "drafter": "d", "box.chat": "c", "box.drafter": "d"}
KEYS |= {"duo.reasoner": "c", "duo.worker": "c"}
MAC = "3c:7c:3f:12:ab:cd"


@pytest.fixture(name="wanted")
def _wanted(monkeypatch: pytest.MonkeyPatch) -> Plan:
    for name, key in (("TOM_KEY", "a"), ("ANN_KEY", "b"), ("CHAT_KEY", "c")):
        monkeypatch.setenv(name, key)
    return waking_plan()


def test_a_host_as_planned_stays_unchanged(wanted: Plan) -> None:
    assert wake_changes(wanted, parse_state(converged(wanted, KEYS))) == []


@pytest.mark.parametrize(
    ("line", "restart"), [("/etc/llamaherd/wake", False), ("wake.socket", True), ("wake\tactive", True)]
)
def test_what_differs_is_applied(wanted: Plan, line: str, restart: bool) -> None:
    lines = [each for each in converged(wanted, KEYS) if line not in each]
    (change,) = wake_changes(wanted, parse_state(lines))
    assert input_of(change, ApplyInput).restart is restart


def test_a_fleet_without_wake_has_none_of_it() -> None:
    plan = gateway_plans()[0]
    assert wake_files(plan.gateway) == ()
    assert list(waker(gateway_of(plan))) == []
    assert "wake" not in configuration(gateway_of(plan), keys_of(gateway_of(plan))).text
    (change,) = wake_leftovers(plan, HostState.of(WakeState("active")))
    assert input_of(change, NoInput) == NoInput()
    assert wake_leftovers(plan, HostState.of(WakeState())) == []


def test_only_models_of_rigs_that_can_be_woken_wait(wanted: Plan) -> None:
    text = configuration(gateway_of(wanted), keys_of(gateway_of(wanted))).text
    wakes = [line for line in text.splitlines() if "txn.wake)" in line and "str(" in line]
    # `coder` has a server here, too: it is woken for if neither responds.
    assert [line.partition("str(")[2].partition(")")[0] for line in wakes] == [
        "m_coder 120 22 duo/duo.reasoner",
        "m_last 120 21 duo/duo.worker",
    ]
    assert text.index("str(m_coder 120") < text.index("set-var(txn.fallback) str(small)"), "it is woken before"


def test_its_description_and_its_check(wanted: Plan) -> None:
    assert f"wakes      duo ({MAC}), by a wake-on-LAN packet" in show_plan(wanted)
    (check,) = wake_checks(wanted, {("wake socket", ""): "ActiveState=active\nUnitFileState=enabled\n"})
    assert check.ok
    (check,) = wake_checks(wanted, {("wake socket", ""): "ActiveState=failed\nUnitFileState=enabled\n"})
    assert not check.ok


def test_verbs_on_a_host() -> None:
    host = RecordingHost({}, ends={"systemctl restart": Ended(1), "id -u": Ended(0, "994\n")})
    assert inspect(NoInput(), host).socket == ""
    with pytest.raises(FailedError, match="does not listen"):
        apply(ApplyInput((), restart=True), host)
    apply(ApplyInput((), restart=False), host)
    remove(NoInput(), host)


@pytest.mark.parametrize(
    ("mac", "stored"),
    [(MAC, MAC), ("3C-7C-3F-12-AB-CD", MAC), ("3c7c3f12abcd", MAC), ("10:20:30:40:50:60", "10:20:30:40:50:60")],
)
def test_addresses_of_cards(mac: str, stored: str) -> None:
    wake = Rig.model_validate(changed(cpu_rig(), {"wake": {"mac": mac}})).wake
    assert wake
    assert wake.mac == stored


@pytest.mark.parametrize(
    "mac",
    [
        *(
            "",
            "eth0",
            "3c:7c:3f:12:ab",
            "3c:7c:3f:12:ab:cd:ef",
            "3c:7c:3f:12:ab:cg",
            "3c:7c-3f:12:ab:cd",
            "192.168.1.2",
        ),
        *("ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "00:00:00:00:00:00", "3c:7c:3f:12:ab:cd\n", "3c 7c 3f 12 ab cd"),
    ],
)
def test_what_is_no_address_of_a_card(mac: str) -> None:
    with pytest.raises(ValidationError):
        Rig.model_validate(changed(cpu_rig(), {"wake": {"mac": mac}}))


def test_a_rig_that_no_gateway_can_wake(survey: Found) -> None:
    asleep = changed(porch(), {"wake": {"mac": MAC}})

    def of_rigs(text: str, box: Declared | None = None, beside: Declared | None = None) -> list[str]:
        found = survey(text, box, beside)
        return [each.code for each in found.findings if each.place.file.name != "fleet.yaml" and each.code == "LH362"]

    gateway = "gateway: {on: [box], models: {small: {serve: [box.drafter]}}}"
    assert of_rigs(gateway, None, asleep) == []
    assert of_rigs("monitoring: null", None, asleep) == ["LH362"]
    assert of_rigs(gateway, changed(cpu_rig(), {"wake": {"mac": MAC}})) == ["LH362"], "the gateway sleeps with it"
    assert of_rigs(gateway.replace("on:", "onn:"), None, asleep) == [], "what the fleet has is unknown"
