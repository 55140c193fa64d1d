"""The virtual address on pyinfra's @fake connector, and what is planned of it for each of the two hosts."""

from __future__ import annotations

import pytest

from llamaherd.onhost.verbs import NoInput
from llamaherd.plan import Plan
from llamaherd.role.changes import unit_spec
from roles.gateway.config import configuration
from roles.virtual_address import address_changes, address_leftovers, refusals
from roles.virtual_address.onhost import ApplyInput
from tests.support.fake import run
from tests.support.gateway import gateway_of, keys_of
from tests.support.ours import inspect_text, parse_state, show_plan
from tests.support.recording import input_of
from tests.support.rigs import converged
from tests.support.virtual_address import ADDRESS, OVER_IPV6, SHARED, shared_by, sharing_plans

TASK = "virtual_address | an address that moves"
HELD = {"tom": "herd-tom-0f3a", "chat": "sk-servers", "box.chat": "sk-servers", "porch.chat": "sk-servers"}
ADDRESSES = ["address\t127.0.0.1/8", "address\t10.77.0.1/24"]


@pytest.fixture(name="wanted")
def _wanted(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("TOM_KEY", HELD["tom"])
    monkeypatch.setenv("CHAT_KEY", HELD["chat"])
    return sharing_plans()["box"]


def changes_of(wanted: Plan, lines: list[str]) -> tuple[str, tuple[str, ...], ApplyInput]:
    """Return what is done to it, why, and by which input of the verb."""
    (change,) = address_changes(wanted, parse_state(lines))
    return change.action, change.reasons, input_of(change, ApplyInput)


def test_each_of_the_two_hosts_is_told_of_the_other() -> None:
    plans = sharing_plans()
    box, porch = shared_by(plans["box"]), shared_by(plans["porch"])
    assert (box.own, box.peer, box.peer_rig) == (porch.peer, porch.own, "porch")
    assert box.priority > porch.priority, "the first rig takes it where nobody has it"
    assert {"keepalived", "iproute2"} <= set(plans["porch"].packages)
    for each in (box, porch):
        assert f"{ADDRESS}/32 dev" in each.config.text
        assert f"unicast_src_ip {each.own}\n" in each.config.text
        assert f"{each.peer} min_ttl 255\n" in each.config.text
        assert "nopreempt" in each.config.text


def test_an_address_of_ipv6_is_one_address_too() -> None:
    address, own = OVER_IPV6
    text = SHARED.replace(ADDRESS, address).replace("0.0.0.0", "'::'")
    made = shared_by(sharing_plans(text, own)["box"])
    assert f"{address}/128 dev" in made.config.text
    assert "http://[::1]:8000/healthz" in made.config.text


def test_without_an_address_nothing_of_it_is_planned() -> None:
    alone = sharing_plans(SHARED.replace(f"  address: {ADDRESS}\n", ""))["box"]
    assert alone.virtual_address is None
    assert "keepalived" not in alone.packages


def test_certificate_and_log_know_of_it(wanted: Plan) -> None:
    secure = sharing_plans(SHARED.replace("  users:", "  tls: {ca: /keys/ca}\n  users:"))["porch"]
    assert ADDRESS in gateway_of(secure).names
    assert "https://127.0.0.1:8000/healthz" in shared_by(secure).config.text
    quiet = "http-request set-log-level silent if METH_GET { path /healthz } { src 127.0.0.1 ::1 }"
    assert quiet in configuration(gateway_of(wanted), keys_of(gateway_of(wanted))).text


def test_a_virgin_host_gets_it_after_its_gateway(wanted: Plan) -> None:
    virgin = [line for line in converged(wanted, HELD) if "virtual-address" not in line and "keepalived" not in line]
    ran = run(wanted, virgin)
    assert TASK in ran.changed
    assert ran.operations.index("gateway | one endpoint for clients") < ran.operations.index(TASK)
    (document,) = [each for each in ran.documents if each["verb"] == "virtual_address.apply"]
    assert document["input"]["restart"]


def test_a_host_that_is_as_planned_is_left_alone(wanted: Plan) -> None:
    assert address_changes(wanted, parse_state(converged(wanted, HELD))) == []


@pytest.mark.parametrize(
    ("was", "now", "action", "reason"),
    [
        ("active\tenabled\tno", "failed\tenabled\tno", "restart", "it is failed"),
        ("active\tenabled\tno", "active\tdisabled\tno", "update", "it is disabled"),
        ("active\tenabled\tno", "active\tenabled\tyes", "update", "systemd has not reloaded its file"),
    ],
)
def test_a_drift_is_mended(wanted: Plan, was: str, now: str, action: str, reason: str) -> None:
    line = f"virtual-address\t{was}"
    before = [each.replace(line, f"virtual-address\t{now}") for each in converged(wanted, HELD)]
    assert changes_of(wanted, before)[:2] == (action, (reason,))


def test_a_process_by_another_configuration_is_restarted_and_a_file_alone_is_written(wanted: Plan) -> None:
    spec = unit_spec(shared_by(wanted).unit)
    other = [line.replace(f"no\t{spec}", "no\tabc") for line in converged(wanted, HELD)]
    assert changes_of(wanted, other)[:2] == ("restart", (f"its settings differ: spec abc runs, {spec} is planned",))
    gone = [line for line in converged(wanted, HELD) if "/address/keepalived.conf" not in line]
    action, (reason,), given = changes_of(wanted, gone)
    assert action == "update"
    assert "keepalived.conf" in reason
    assert not given.restart, "who has the address keeps it"


def test_where_there_is_none_any_more_it_goes() -> None:
    alone = sharing_plans(SHARED.replace(f"  address: {ADDRESS}\n", ""))["box"]
    (change,) = address_leftovers(alone, parse_state(["virtual-address\tactive\tenabled\tno\tabc"]))
    assert input_of(change, NoInput) == NoInput()
    assert address_leftovers(alone, parse_state([])) == []
    assert "virtual_address.inspect" in inspect_text(alone)


@pytest.mark.parametrize(
    ("addresses", "said"),
    [
        (ADDRESSES, []),
        ([*ADDRESSES, f"address\t{ADDRESS}/32"], []),
        ([], []),
        (["address\t192.168.7.1/24"], ["the rig is known as 10.77.0.1, which is no address of its host"]),
        (["address\t10.77.0.1/30"], [f"the virtual address is {ADDRESS}, which no machine can have"]),
        (
            ["address\t10.77.0.1/32"],
            [f"the virtual address is {ADDRESS}, which no machine can have", "rig porch is 10.77.0.2, which no mach"],
        ),
    ],
)
def test_what_is_in_no_network_of_the_host_is_refused(wanted: Plan, addresses: list[str], said: list[str]) -> None:
    found = [each.message for each in refusals(wanted, parse_state(addresses))]
    assert len(found) == len(said)
    assert all(message.startswith(begin) for message, begin in zip(found, said, strict=True))


def test_the_plan_says_who_else_has_it(wanted: Plan) -> None:
    assert f"address    {ADDRESS}, shared with porch (10.77.0.2) by VRRP from 10.77.0.1" in show_plan(wanted)
