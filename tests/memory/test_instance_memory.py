"""One memory of an instance: what checks, plan and verify are told of it is worked out once."""

from __future__ import annotations

import gc

from llamaherd.engines.command_line import IdentityKey, _command_line, overridden_command_line
from llamaherd.inventory.schema import Rig
from llamaherd.memory.instances import _held, _placement, instance_memory, placement, sized
from tests.support.headers import gemma3
from tests.support.ours import plan
from tests.support.rigs import ROOT, gpu_rig, hub_lock


def rig() -> Rig:
    data = gpu_rig()
    data["instances"]["reasoner"]["extra_args"] = ["--no-warmup"]
    return Rig.model_validate(data, context={"folder": ROOT})


def test_what_is_asked_twice_is_worked_out_once() -> None:
    declared, header = rig(), gemma3()
    headers = dict.fromkeys(declared.models, header)
    first = sized(declared, headers)
    counts = [each.cache_info().misses for each in (_held, _placement, _command_line)]
    assert first
    again = sized(declared, headers)
    for name, instance in declared.instances.items():
        if name in first:
            assert instance_memory(declared, instance, headers, {}) is not None
            assert placement(declared, instance, header) is again[name].placement
    assert [each.cache_info().misses for each in (_held, _placement, _command_line)] == counts


def test_the_plan_takes_what_the_checks_worked_out() -> None:
    declared, header = rig(), gemma3()
    lock = hub_lock().model_copy(
        update={"models": tuple(each.model_copy(update={"header": header}) for each in hub_lock().models)}
    )
    sized(declared, {name: header for name in declared.models if lock.header(declared.models[name])})
    before = _held.cache_info().misses
    assert any(each.memory for each in plan(declared, lock).instances)
    assert _held.cache_info().misses == before


def test_what_differs_is_worked_out_anew() -> None:
    declared, header = rig(), gemma3()
    instance = declared.instances["reasoner"]
    more = instance.model_copy(update={"context": instance.context * 2})
    assert placement(declared, more, header).context == 2 * placement(declared, instance, header).context
    said = instance.model_copy(update={"extra_args": ("--ubatch-size", "64")})
    assert placement(declared, said, header).ubatch == 64
    assert overridden_command_line(declared, said) is not overridden_command_line(declared, instance)


def test_a_value_is_the_same_as_itself_alone() -> None:
    one, other = (1, [2]), (1, [2])
    assert IdentityKey(one) == IdentityKey(one)
    assert IdentityKey(one) != IdentityKey(other)
    seen = {IdentityKey((number,)) for number in range(1000)}
    gc.collect()
    # Each key keeps its value, so that none takes another's place.
    assert len(seen) == 1000
