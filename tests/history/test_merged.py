"""What a release keeps of a run that was for a part alone: nothing of the rest is claimed that nobody has done."""

from __future__ import annotations

from llamaherd.inventory.schema import Connect, Rig
from llamaherd.pipeline import plan as planning
from llamaherd.pipeline.diff import find_causes
from llamaherd.pipeline.fleet_files import locked_facts
from llamaherd.pipeline.history import Past, keyless, merged_plan, missing_on_host, release_plan
from llamaherd.pipeline.plan import choose_parts
from llamaherd.pipeline.preview import preview_changes
from llamaherd.plan import Only, Plan
from roles import ROLES
from tests.support.ours import parse_state
from tests.support.rigs import GONE, KEY, Declared, changed, converged, cpu_rig, hub_lock, planned

THEN = planned(cpu_rig())
MOVED = changed(cpu_rig(), {"instances/chat/context": 1024, "instances/drafter/context": 1024})
NOWHERE: dict[str, str] = {}


def part(declared: Declared, *names: str) -> Plan:
    rig = Rig.model_validate(declared)
    only = choose_parts(names, {rig.rig: rig}, ROLES)[rig.rig]
    return planning.plan(locked_facts(rig, hub_lock()), hub_lock(), ROLES, only=only)


def specs(plan: Plan) -> dict[str, str]:
    return {each.name: each.spec for each in plan.instances}


def test_a_run_for_all_is_what_it_planned() -> None:
    assert merged_plan(Past({}, {1: THEN}), planned(MOVED), NOWHERE) == planned(MOVED)


def test_the_rest_is_as_it_was_planned_before() -> None:
    kept = merged_plan(Past({}, {1: THEN}), part(MOVED, "chat"), NOWHERE)
    assert specs(kept) == {"chat": specs(planned(MOVED))["chat"], "drafter": specs(THEN)["drafter"]}
    assert kept.only is None
    assert (kept.builds, kept.models, kept.images, kept.packages) == (
        THEN.builds,
        THEN.models,
        THEN.images,
        THEN.packages,
    )


def test_the_same_part_again_is_the_same_plan() -> None:
    once = merged_plan(Past({}, {1: THEN}), part(MOVED, "chat"), NOWHERE)
    assert merged_plan(Past({}, {2: once}), part(MOVED, "chat"), NOWHERE) == once


def test_one_that_is_declared_no_more_is_there_still() -> None:
    kept = merged_plan(Past({}, {1: THEN}), part(changed(MOVED, {"instances/drafter": GONE}), "chat"), NOWHERE)
    assert specs(kept)["drafter"] == specs(THEN)["drafter"]
    assert {each.build for each in kept.images} == {THEN.builds[0].id}


def test_what_a_failed_run_has_left_is_told_by_what_runs() -> None:
    """The last run was for all, and its drafter was taken back: that one still runs as in the release before."""
    failed = planned(MOVED)
    again = part(changed(MOVED, {"instances/chat/context": 512}), "chat")
    runs = {"llama-drafter": specs(THEN)["drafter"], "llama-chat": "whatever"}
    assert specs(merged_plan(Past({}, {1: THEN, 2: failed}), again, runs)) == {
        "chat": specs(planned(changed(MOVED, {"instances/chat/context": 512})))["chat"],
        "drafter": specs(THEN)["drafter"],
    }
    assert specs(merged_plan(Past({}, {1: THEN, 2: failed}), again, NOWHERE))["drafter"] == specs(failed)["drafter"]


def test_a_role_keeps_its_own_fields_alone() -> None:
    kept = merged_plan(Past({}, {1: THEN}), part(changed(MOVED, {"store/path": "/srv/models"}), "models"), NOWHERE)
    assert kept.store.path == "/srv/models"
    assert specs(kept) == specs(THEN)
    kept = merged_plan(Past({}, {1: THEN}), part(MOVED, "serve"), NOWHERE)
    assert specs(kept) == specs(planned(MOVED))


def test_where_nothing_is_remembered_it_is_the_part_and_says_so() -> None:
    kept = merged_plan(Past({}, {}), part(MOVED, "chat"), NOWHERE)
    assert kept.only == Only(instances=("chat",))
    assert list(specs(kept)) == ["chat"]
    both = merged_plan(Past({}, {1: kept}), part(MOVED, "drafter"), NOWHERE)
    assert both.only == Only(instances=("chat", "drafter"))
    assert specs(both) == specs(planned(MOVED))
    assert merged_plan(Past({}, {1: both}), planned(MOVED), NOWHERE).only is None


def test_going_back_to_a_part_leaves_the_rest_alone() -> None:
    """Of a release that knows of `chat` alone, nothing follows for `drafter`."""
    kept = merged_plan(Past({}, {}), part(MOVED, "chat"), NOWHERE)
    plan = release_plan(Past({}, {1: kept}), 1, None)
    state = parse_state(converged(THEN, {"chat": KEY}))
    assert list(missing_on_host(plan, state)) == []
    found = preview_changes(plan, ROLES, state, Connect(host="box"), {})
    assert [f"{change.action} {change.name}" for change in found.changes] == ["restart llama-chat"]


def test_going_back_with_one_instance_leaves_the_rest_alone() -> None:
    now = planned(MOVED)
    plan = release_plan(Past({}, {1: THEN, 2: now}), 1, "chat")
    drifted = [line for line in converged(now, {"chat": KEY}) if "llama-drafter\trunning" not in line]
    found = preview_changes(plan, ROLES, parse_state(drifted), Connect(host="box"), {})
    assert [f"{change.action} {change.name}" for change in found.changes] == ["restart llama-chat"]


def test_what_is_left_to_do_is_no_drift() -> None:
    """Nobody has changed the host: it is the inventory that has moved on."""
    kept = merged_plan(Past({}, {1: THEN}), part(MOVED, "chat"), NOWHERE)
    state = parse_state(converged(kept, {"chat": KEY}))
    connect = Connect(host="box")
    found = preview_changes(keyless(planned(MOVED)), ROLES, state, connect, {})
    (why,) = find_causes(found, preview_changes(keyless(kept), ROLES, state, connect, {}), {})
    assert (found.changes[0].name, why.drift) == ("llama-drafter", ())
