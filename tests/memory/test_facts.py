"""The facts of a rig: derived once, complete where the rig is, and the same for checks and plan."""

from __future__ import annotations

from typing import Any

import pytest

from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock
from llamaherd.memory import instances
from llamaherd.memory.facts import rig_facts
from llamaherd.memory.instances import placement
from llamaherd.pipeline.fleet_files import locked_facts
from llamaherd.pipeline.plan import plan
from roles import ROLES
from tests.support.headers import gemma3
from tests.support.rigs import ROOT, gpu_rig, hub_lock


def rig(**keys: Any) -> Rig:
    data = gpu_rig()
    data["instances"]["reasoner"] |= {"extra_args": ["--no-warmup"], **keys}
    return Rig.model_validate(data, context={"folder": ROOT})


def lock() -> Lock:
    whole = hub_lock()
    return whole.model_copy(
        update={"models": tuple(each.model_copy(update={"header": gemma3()}) for each in whole.models)}
    )


def test_a_plan_derives_no_memory_again(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = locked_facts(rig(), lock())

    def refuse(*_: object) -> None:
        raise AssertionError("the memory of an instance was estimated again")

    monkeypatch.setattr(instances, "estimate", refuse)
    assert any(each.memory for each in plan(facts, lock(), ROLES).instances)


def test_other_keys_of_an_instance_have_facts_of_their_own() -> None:
    declared = rig()
    facts = rig_facts(declared, dict.fromkeys(declared.models, gemma3()))
    instance = declared.instances["reasoner"]
    one = facts.sized["reasoner"]
    assert facts.sized_as("reasoner", instance) == one
    more = facts.sized_as("reasoner", instance.model_copy(update={"context": instance.context * 2}))
    assert more
    assert more.placement.context == 2 * one.placement.context
    assert more.room.ram == one.room.ram
    said = facts.sized_as("reasoner", instance.model_copy(update={"extra_args": ("--ubatch-size", "64")}))
    assert said
    assert said.placement.ubatch == 64


def test_an_instance_has_the_facts_that_its_mistakes_allow() -> None:
    declared = rig(engine="none", model="none", on=["none"])
    each = rig_facts(declared, {}).instances["reasoner"]
    assert (each.flags, each.command, each.header, each.placement, each.memory, each.fault) == (None,) * 6
    assert each.threads > 0
    unsplit = rig(experts_on_cpu=3)
    headers = dict.fromkeys(unsplit.models, gemma3())
    each = rig_facts(unsplit, headers).instances["reasoner"]
    assert (each.placement, each.memory) == (None, None)
    assert str(each.fault) == "the model has no routed experts"
    with pytest.raises(ValueError, match="no routed experts"):
        placement(unsplit, unsplit.instances["reasoner"], gemma3())
