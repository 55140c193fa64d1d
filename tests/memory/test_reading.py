"""How long the chunks are that a cache is judged on: by the context of a request, and by what GPUs and RAM hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from llamaherd.inventory.schema import Instance
from llamaherd.measure.tune.candidate import Candidate, with_keys
from llamaherd.measure.tune.search import SearchedInstance, space_of
from llamaherd.memory.divergence import MOST_TOKENS, Reading, readings
from llamaherd.memory.facts import rig_facts
from llamaherd.memory.fit import fit_in
from tests.tune.test_axes import known


def packed(of: SearchedInstance) -> Candidate:
    space, start = space_of(of, judged=True)
    found = space.pack(start.with_keys({"kv": "q4_0"}))
    assert found is not None
    return found


def changed(of: SearchedInstance, *, ram: int | None = None, **keys: Any) -> SearchedInstance:
    """The same with other keys, or other RAM in bytes."""
    instance = Instance.model_validate(of.instance.model_dump(exclude_none=True) | keys)
    host = of.rig.host.model_copy(update={"ram": ram or of.rig.host.ram})
    rig = of.rig.model_copy(update={"instances": {**of.rig.instances, of.name: instance}, "host": host})
    return replace(of, rig=rig)


def ways(of: SearchedInstance, candidate: Candidate) -> list[Reading]:
    return list(readings(of.facts, of.name, with_keys(of.instance, candidate)))


def found(of: SearchedInstance) -> list[Reading]:
    return ways(of, packed(of))


def test_the_longest_that_fits_comes_first() -> None:
    all_ = found(known("duo", "worker"))
    assert (all_[0].context, all_[0].chunks) == (8192, 2)
    assert [each.context for each in all_] == sorted((each.context for each in all_), reverse=True)
    assert all(each.batch in (128, 256, 512) for each in all_)


def test_no_reading_is_longer_than_the_text() -> None:
    assert all(max(2, each.chunks) * each.context <= MOST_TOKENS for each in found(known("duo", "worker")))


@pytest.mark.parametrize(("keys", "most"), [({"context": 4096}, 4096), ({"context": 16_384, "parallel": 4}, 4096)])
def test_it_is_no_longer_than_a_request_may_be(keys: dict[str, int], most: int) -> None:
    assert found(changed(known("duo", "worker"), **keys))[0].context == most


def test_with_less_ram_it_is_shorter() -> None:
    of = known("duo", "worker")
    candidate = packed(of)
    sizes = range(of.rig.host.ram, 0, -(2 * 10**9))
    contexts = [next((each.context for each in ways(changed(of, ram=ram), candidate)), 0) for ram in sizes]
    assert contexts[0] == 8192
    assert contexts == sorted(contexts, reverse=True)
    assert contexts[-1] == 0
    assert len(set(contexts)) > 3


@pytest.mark.parametrize(("rig", "name"), [("duo", "worker"), ("duo", "reasoner"), ("budget", "chat"), ("one", "chat")])
def test_gpus_hold_the_cache_of_f16_with_all_logits_of_a_batch(rig: str, name: str) -> None:
    of = known(rig, name)
    for each in found(of):
        read = packed(of).with_keys({"kv": "f16", "batch": each.batch, "ubatch": each.batch})
        longest = {"context": each.context, "parallel": 1, "draft": None}
        instance = with_keys(of.instance, read).model_copy(update=longest)
        whole = of.rig.model_copy(update={"instances": {**of.rig.instances, name: instance}})
        one = rig_facts(whole, of.headers).sized[name]
        assert fit_in(one.header, replace(one.placement, outputs=each.batch), one.room).fits


def test_of_a_model_whose_vocabulary_nobody_knows_there_is_none() -> None:
    of = known("duo", "worker")
    header = of.header
    assert header
    unknown = replace(of, headers={**of.headers, of.instance.model: header.model_copy(update={"vocabulary": 0})})
    assert ways(unknown, packed(of)) == []
    assert ways(replace(of, headers={}), Candidate()) == []


def test_a_vocabulary_that_makes_too_many_numbers_has_shorter_chunks() -> None:
    of = known("duo", "worker")
    header = of.header
    assert header
    large = header.model_copy(update={"vocabulary": 262_144})
    wide = replace(of, headers={**of.headers, of.instance.model: large})
    assert ways(wide, packed(of))[0].context == 4096
