"""What is wrong with a host, and the fix, from one inspection."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.host.protocol import UnexpectedLineError
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.doctor import DiskSpace, DoctorFacts
from llamaherd.onhost.document import dump
from llamaherd.onhost.status import ReleaseStatus
from llamaherd.pipeline.doctor import (
    LEAST_FREE,
    VERB,
    Diagnosis,
    Examined,
    clock_diagnosis,
    diagnosis_lines,
    doctor_request,
    examine_facts,
    examine_host,
)
from llamaherd.plan import Plan
from roles import ROLES
from tests.support.host_lines import inspected
from tests.support.rigs import KEY, converged, cpu_rig, planned

NOW = (1000.0, 1001.0)
RELEASE = {"at": "2026-11-24T10:00:00+00:00", "origin": {"user": "ann", "machine": "laptop"}, "changes": []}
SOUND = DoctorFacts(
    clock=1000.5,
    python="3.13.5",
    disks=(DiskSpace("/", 1 << 40),),
    release=ReleaseStatus(3, json.dumps(RELEASE)),
)
FAILED = replace(SOUND, release=ReleaseStatus(3, json.dumps({**RELEASE, "failed": ["it broke", "and more"]})))


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setenv("CHAT_KEY", KEY)
    return planned(cpu_rig())


def rig() -> Rig:
    return Rig.model_validate(cpu_rig(), context={"folder": Path("/")})


def examined(plan: Plan, world: list[str], facts: DoctorFacts = SOUND) -> Examined:
    """Return the diagnoses of a host in this state, as they come from the host."""
    found = inspected(world)
    result = json.loads(dump(replace(found, parts={**found.parts, VERB: facts})))
    return examine_host(rig(), plan, ROLES, result, NOW)


def of(found: Examined, what: str) -> list[Diagnosis]:
    return [each for each in found.diagnoses if each.what == what]


def test_nothing_is_wrong_with_a_host_that_matches_its_plan(plan: Plan) -> None:
    found = examined(plan, converged(plan, {"chat": KEY}))
    assert {each.verdict for each in found.diagnoses} == {"ok"}
    assert found.ok
    assert of(found, "plan") == [Diagnosis("plan", "ok", "the host matches it")]


def test_changes_to_apply_are_a_note_and_obstacles_are_wrong(plan: Plan) -> None:
    world = converged(plan, {"chat": KEY})
    missing = next(line for line in world if line.startswith("package\t"))
    found = examined(plan, [line for line in world if line != missing])
    (pending,) = of(found, "plan")
    assert (pending.verdict, pending.found) == ("note", "1 change to apply")
    assert found.ok
    found = examined(plan, [line for line in world if not line.startswith("systemd\t")])
    assert not found.ok
    assert all(each.fix for each in found.diagnoses if each.verdict == "wrong")


@pytest.mark.parametrize(
    ("facts", "what", "verdict", "found", "fix"),
    [
        (replace(SOUND, clock=900.0), "clock", "wrong", "100 s behind", "timedatectl"),
        (replace(SOUND, clock=90000.0), "clock", "wrong", "25 hours ahead", "timedatectl"),
        (replace(SOUND, disks=(DiskSpace("/srv", LEAST_FREE - 1),)), "disk", "wrong", "/srv", "herd prune attic"),
        (replace(SOUND, failed=None), "units", "wrong", "does not respond", "systemctl status"),
        (
            replace(SOUND, failed=("llama-a.service",)),
            "units",
            "wrong",
            "llama-a.service failed",
            "journalctl -u llama-a",
        ),
        (replace(SOUND, failed=("smartd.service",)), "units", "note", "smartd.service", "systemctl --failed"),
        (replace(SOUND, holder="tom"), "lock", "note", "by tom", "herd unlock attic"),
        (replace(SOUND, holder="tom", interrupted=True), "lock", "note", "by tom", "herd unlock attic"),
        (replace(SOUND, interrupted=True), "lock", "wrong", "was interrupted", "herd up attic"),
        (replace(SOUND, release=None), "last run", "note", "none is recorded", "herd up attic"),
        (FAILED, "last run", "wrong", "failed: it broke (and 1 more)", "herd up attic"),
    ],
)
def test_what_is_wrong_has_a_fix(facts: DoctorFacts, what: str, verdict: str, found: str, fix: str) -> None:
    diagnoses = list(examine_facts("attic", facts, NOW))
    (each,) = [each for each in diagnoses if each.what == what]
    assert each.verdict == verdict
    assert found in each.found
    assert fix in each.fix
    assert {other.verdict for other in diagnoses if other.what != what} == {"ok"}


@pytest.mark.parametrize(("clock", "ok"), [(990.0, True), (989.0, False), (1011.0, True), (1012.0, False)])
def test_clocks_may_differ_by_some_seconds(clock: float, ok: bool) -> None:
    assert (clock_diagnosis(clock, NOW, "set it").verdict == "ok") is ok


def test_a_result_without_its_facts_is_refused(plan: Plan) -> None:
    with pytest.raises(UnexpectedLineError):
        examine_host(rig(), plan, ROLES, json.loads(dump(inspected(converged(plan, {"chat": KEY})))), NOW)


def test_the_inspection_is_that_of_a_run_and_one_more_part(plan: Plan) -> None:
    parts = json.loads(doctor_request(plan, ROLES))["input"]["parts"]
    assert parts[VERB] == {"folders": ["/", "/var/lib/llamaherd/models", "/var/lib/docker"]}
    assert "base.inspect" in parts


def test_a_line_has_a_mark_and_the_fix_and_no_control_characters() -> None:
    found = Examined(
        "attic", (Diagnosis("units", "wrong", "it\x1b[31m broke", "mend it"), Diagnosis("disk", "ok", "fine"))
    )
    assert list(diagnosis_lines(found, unicode=True)) == [
        ("wrong", "  ✗ units  it\\x1b[31m broke: mend it"),
        ("ok", "  ✓ disk   fine"),
    ]
    assert [line for _, line in diagnosis_lines(found, unicode=False)][1] == "  ok disk   fine"
