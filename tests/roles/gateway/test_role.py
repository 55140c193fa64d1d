"""The gateway on pyinfra's @fake connector: a virgin host, one that is as planned, and hosts that have drifted."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Rig
from llamaherd.layout import GATEWAY
from llamaherd.lock import Lock
from llamaherd.onhost.document import dump
from llamaherd.pipeline.fleet_files import locked_facts
from llamaherd.pipeline.plan import plan as pipeline_plan
from llamaherd.plan import Only, Plan
from roles import ROLES
from roles.gateway import gateway_changes, read_keys
from roles.gateway.onhost import ApplyInput
from tests.support.fake import run
from tests.support.gateway import KEYS, fleet_of, gateway_of
from tests.support.ours import inspect_text, parse_state, plan, refusals, show_plan
from tests.support.recording import input_of
from tests.support.rigs import changed, converged, cpu_rig

TASK = "gateway | one endpoint for clients"
SERVERS = "sk-canary-of-servers"
VIRGIN = [
    *("os\tdebian-13", "arch\tx86_64", "systemd\tyes"),
    *(f"free\t/var/lib\t{10**12}\toverlay", f"store\t/var/lib\t{10**12}\toverlay\toverlay\trw"),
]
FLEET = """
gateway:
  on: [box]
  users:
    tom: {key: {env: TOM_KEY}}
    ann: {key: {env: ANN_KEY}, models: [coder]}
  models:
    coder: {serve: [box.chat], fallback: small}
    small: {serve: [box.drafter]}
"""
HELD = {**KEYS, "chat": SERVERS, "box.chat": SERVERS}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in (("TOM_KEY", KEYS["tom"]), ("ANN_KEY", KEYS["ann"]), ("CHAT_KEY", SERVERS)):
        monkeypatch.setenv(name, key)


@pytest.fixture(name="rig")
def _rig(tmp_path: Path) -> Rig:
    """Nothing to build, and what is sent is here."""
    model = tmp_path / "model.gguf"
    model.write_text("gemma")
    sent = {"file": str(model), "sha256": hashlib.sha256(b"gemma").hexdigest()}
    changes = {"models/gemma": sent, "models/moe": sent, "instances/chat/backend": "compose"}
    image = {"engines/main": {"kind": "llama.cpp", "image": f"a@sha256:{'ab' * 32}"}}
    return Rig.model_validate(changed(cpu_rig(), changes | image))


@pytest.fixture(name="wanted")
def _wanted(rig: Rig) -> Plan:
    return plan(rig, Lock(), {"box": rig}, fleet=fleet_of(FLEET))


def changes_of(wanted: Plan, lines: list[str]) -> tuple[str, tuple[str, ...], ApplyInput]:
    """Return what is done to the gateway, why, and by which input of the verb."""
    (change,) = gateway_changes(wanted, parse_state(lines))
    return change.action, change.reasons, input_of(change, ApplyInput)


def test_a_virgin_host_becomes_a_gateway_before_it_serves(wanted: Plan) -> None:
    ran = run(wanted, VIRGIN)
    assert TASK in ran.changed
    assert ran.operations.index(TASK) < ran.operations.index("serve | chat (compose)")
    assert [each["input"]["how"] for each in ran.documents if each["verb"] == "gateway.apply"] == ["restart"]
    documents = {each["verb"]: each["input"] for each in ran.documents}
    assert "haproxy" in documents["base.install"]["packages"]
    assert "llamaherd-gateway" in documents["base.accounts"]["users"]


def test_a_host_that_is_as_planned_is_left_alone(wanted: Plan) -> None:
    assert gateway_changes(wanted, parse_state(converged(wanted, HELD))) == []


def test_a_rig_that_is_no_gateway_sees_nothing_of_it(rig: Rig) -> None:
    alone = plan(rig, Lock(), {"box": rig})
    assert "gateway" not in inspect_text(alone)
    assert not alone.of_fleet
    elsewhere = plan(rig, Lock(), {"box": rig}, fleet=fleet_of(FLEET.replace("on: [box]", "on: [other]")))
    assert elsewhere.model_copy(update={"of_fleet": False}) == alone
    assert elsewhere.accounts == alone.accounts


def test_a_new_user_is_told_and_nothing_is_reloaded(wanted: Plan) -> None:
    before = converged(wanted, {**HELD, "ann": "another key"})
    action, reasons, given = changes_of(wanted, before)
    assert action == "update"
    assert reasons == (f"{GATEWAY}/keys.map has another text",)
    assert given.how == "maps"


def test_users_that_were_not_told_are_told_by_the_next_run(wanted: Plan) -> None:
    before = [line.replace("\tsame", "\tother") for line in converged(wanted, HELD)]
    action, reasons, _ = changes_of(wanted, before)
    assert (action, reasons) == ("update", ("it has read other users than those of its files",))


def test_another_key_of_servers_is_a_reload(wanted: Plan) -> None:
    action, reasons, given = changes_of(wanted, converged(wanted, {**HELD, "box.chat": "another"}))
    assert (action, reasons) == ("update", (f"{GATEWAY}/haproxy.cfg has another text",))
    assert given.how == "reload"


def test_another_program_that_reads_requests_is_a_reload(wanted: Plan) -> None:
    """So a gateway that is from before it is reloaded, and cuts no stream."""
    before = [line for line in converged(wanted, HELD) if "read-model.lua" not in line]
    action, reasons, given = changes_of(wanted, before)
    assert (action, reasons) == (
        "update",
        (f"{GATEWAY}/read-model.lua has another text", f"{GATEWAY}/read-model.lua is not there"),
    )
    assert given.how == "reload"


def test_a_reload_that_did_not_come_is_made_by_the_next_run(wanted: Plan) -> None:
    spec = re.compile("(gateway\trunning\t)[0-9a-f]{12}")
    before = [spec.sub(r"\g<1>000000000000", line) for line in converged(wanted, HELD)]
    action, reasons, given = changes_of(wanted, before)
    assert action == "update"
    assert reasons[0].startswith("it has read 000000000000/8000")
    assert given.how == "reload"


@pytest.mark.parametrize(
    ("was", "now", "action"),
    [
        ("gateway\tunit\tactive", "gateway\tunit\tfailed", "restart"),
        ("active\tenabled\tno", "active\tdisabled\tno", "update"),
        ("active\tenabled\tno", "active\tenabled\tyes", "update"),
        ("994 llamaherd-gateway", "0 root", "update"),
    ],
    ids=["failed", "not enabled", "not read", "another's files"],
)
def test_a_drift_is_mended(wanted: Plan, was: str, now: str, action: str) -> None:
    before = [line.replace(was, now) for line in converged(wanted, HELD)]
    assert before != converged(wanted, HELD)
    assert changes_of(wanted, before)[0] == action


def test_the_distributions_own_unit_is_ended_only_while_it_serves_nobody(wanted: Plan) -> None:
    _, reasons, given = changes_of(wanted, [*converged(wanted, HELD), "gateway\tidle-own"])
    assert "serves no client" in reasons[0]
    assert given.idle_own
    _, _, other = changes_of(wanted, converged(wanted, {**HELD, "ann": "another"}))
    assert not other.idle_own


def test_a_rig_that_is_no_gateway_any_more_loses_it(rig: Rig) -> None:
    elsewhere = plan(rig, Lock(), {"box": rig}, fleet=fleet_of(FLEET.replace("on: [box]", "on: [other]")))
    lines = [*converged(elsewhere, {"chat": SERVERS}), "gateway\tunit\tactive\tenabled\tno\tabc"]
    ran = run(elsewhere, lines)
    assert [each["verb"] for each in ran.documents if each["verb"].startswith("gateway.")] == ["gateway.remove"]


def test_no_key_is_in_the_plan_or_in_what_is_shown(wanted: Plan) -> None:
    told = [wanted.model_dump_json(), show_plan(wanted), inspect_text(wanted), str(read_keys(gateway_of(wanted)))]
    _, reasons, _ = changes_of(wanted, converged(wanted, {**HELD, "ann": "another key", "box.chat": "b"}))
    held = "\n".join([*told, *reasons])
    assert not [key for key in (*KEYS.values(), SERVERS) if key in held]


def test_keys_go_to_the_host_as_hashes_alone(wanted: Plan) -> None:
    _, _, given = changes_of(wanted, VIRGIN)
    texts = "\n".join(each.text.text for each in given.files)
    assert read_keys(gateway_of(wanted)).users["tom"] in texts
    assert not [key for key in KEYS.values() if key in dump(given)]
    assert SERVERS in texts
    assert SERVERS not in repr(given)


def test_two_users_with_one_key_are_refused_without_showing_it(wanted: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANN_KEY", KEYS["tom"])
    with pytest.raises(UserError, match="users `tom` and `ann` have the same key") as refused:
        read_keys(gateway_of(wanted))
    assert KEYS["tom"] not in str(refused.value)


def test_a_port_that_is_somebody_elses_is_refused(wanted: Plan) -> None:
    found = refusals(wanted, parse_state([*VIRGIN, "listens\t1F40"]), {})
    assert "port 8000 of the gateway is taken by something else" in [each.message for each in found]
    assert not refusals(wanted, parse_state(converged(wanted, HELD)), {})


def test_the_plan_says_who_may_use_what(wanted: Plan) -> None:
    shown = show_plan(wanted)
    assert "gateway    http on 127.0.0.1:8000, 8 wait for each model, up to 240 s" in shown
    assert "coder: box.chat (127.0.0.1:8080, 1 at once), else small" in shown
    assert "user ann: 4 at once, coder" in shown


def test_a_run_for_an_instance_alone_brings_no_gateway(rig: Rig) -> None:
    only = Only(instances=("chat",))
    alone = pipeline_plan(locked_facts(rig, Lock()), Lock(), ROLES, {"box": rig}, only=only, fleet=fleet_of(FLEET))
    assert alone.only
    assert alone.only.needs
    assert "haproxy" not in alone.only.needs.packages
    assert "llamaherd-gateway" not in alone.only.needs.accounts
