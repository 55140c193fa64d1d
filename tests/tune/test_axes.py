"""Axes of the example rigs, and the edge of memory that arithmetic puts their candidates at."""

from __future__ import annotations

import pytest
import yaml

from llamaherd.inventory.schema import Gate, Instance, Tune
from llamaherd.inventory.schema.keys import EXAMPLES
from llamaherd.measure.tune.candidate import KV, MODEL, Candidate, settings_of, with_keys
from llamaherd.measure.tune.search import (
    BATCH,
    EXPERTS,
    HEAD,
    LAYERS,
    SHARES,
    SPLIT,
    SURE,
    THREADS,
    UBATCH,
    SearchedInstance,
    Space,
    space_of,
)
from llamaherd.memory.facts import rig_facts
from tests.support.examples import fleet, shape
from tests.support.headers import qwen_35b


def known(rig: str, name: str) -> SearchedInstance:
    declared = fleet().rigs[rig]
    return SearchedInstance(declared, name, {key: shape(model) for key, model in declared.models.items() if model.hf})


def space(rig: str, name: str, *, judged: bool = True) -> tuple[Space, Candidate, SearchedInstance]:
    of = known(rig, name)
    return (*space_of(of, judged=judged), of)


def fits(of: SearchedInstance, instance: Instance) -> bool:
    rig = of.rig.model_copy(update={"instances": {**of.rig.instances, of.name: instance}})
    return rig_facts(rig, of.headers).sized[of.name].fit.fits


def keys(of: Space) -> list[str]:
    return [axis.key for axis in of.axes]


def test_what_takes_memory_comes_first_and_drafting_last() -> None:
    found, _, _ = space("duo", "worker")
    assert keys(found) == [THREADS, UBATCH, KV, HEAD, SURE]
    assert found.packed == (EXPERTS, LAYERS, BATCH)


def test_one_whose_whole_model_is_on_its_gpu_has_no_threads_to_try() -> None:
    found, _, _ = space("one", "chat")
    assert THREADS not in keys(found)


def test_several_gpus_can_share_otherwise() -> None:
    found, _, of = space("six", "coder")
    assert len(of.instance.on) > 1
    assert SPLIT in keys(found)
    assert "none" not in found.axis(SPLIT).values


def on_both(of: SearchedInstance) -> SearchedInstance:
    """The instance of a rig on both of its GPUs, which nobody else has."""
    instance = of.instance.model_copy(update={"on": ("ti", "std")})
    return SearchedInstance(of.rig.model_copy(update={"instances": {of.name: instance}}), of.name, of.headers)


def test_gpus_that_are_not_alike_can_have_other_shares() -> None:
    alike, _, _ = space("six", "coder")
    assert SHARES not in keys(alike)
    of = on_both(known("duo", "reasoner"))
    found, start = space_of(of, judged=True)
    shares = found.axis(SHARES).values
    assert (start[SHARES], shares[0]) == (None, None)
    assert shares[1:] == ((56, 44), (60, 40), (67, 33), (44, 56), (40, 60), (33, 67))
    other = start.with_keys({SHARES: shares[1]})
    assert with_keys(of.instance, other).tensor_split == (56, 44)
    (setting,) = settings_of(other, start)
    assert (setting.value, str(setting)) == ([56, 44], "tensor_split=[56, 44]")
    packed = found.pack(other)
    assert packed
    assert fits(of, with_keys(of.instance, packed))


def test_threads_are_cores_and_never_their_siblings() -> None:
    found, start, _ = space("budget", "chat")
    assert found.axis(THREADS).values == (2, 4, 6, 7, 8)
    assert start[THREADS] == 8


def test_threads_stay_on_the_processors_that_it_may_use() -> None:
    found, _, of = space("duo", "worker")
    assert of.instance.cpus == "0-5"
    assert max(int(str(each)) for each in found.axis(THREADS).values) == 6


def test_without_a_judge_nothing_is_tried_that_loses_quality() -> None:
    precise, _, _ = space("duo", "worker", judged=False)
    assert precise.axis(KV).values == ("f16", "q8_0")
    assert space("duo", "worker")[0].axis(KV).values == ("f16", "q8_0", "q4_0")


@pytest.mark.parametrize(("rig", "name"), [("duo", "worker"), ("duo", "reasoner"), ("budget", "chat"), ("one", "chat")])
def test_it_is_packed_up_to_the_edge_and_not_beyond(rig: str, name: str) -> None:
    found, start, of = space(rig, name)
    packed = found.pack(start)
    assert packed is not None
    assert fits(of, with_keys(of.instance, packed))
    away = packed[EXPERTS]
    assert isinstance(away, int)
    if away:
        assert not fits(of, with_keys(of.instance, packed.with_keys({EXPERTS: away - 1})))
    assert found.unpack(packed) == packed.with_keys({EXPERTS: away + 1})


def test_a_larger_ubatch_moves_the_edge_and_is_queued_whole() -> None:
    found, start, _ = space("duo", "worker")
    small, large = (found.pack(start.with_keys({UBATCH: size, KV: "f16"})) for size in (512, 4096))
    assert small
    assert large
    assert int(str(large[EXPERTS])) > int(str(small[EXPERTS]))
    assert (small[BATCH], large[BATCH]) == (None, 4096)


def test_the_declared_one_is_said_by_no_setting() -> None:
    _, start, of = space("duo", "worker")
    assert settings_of(start, start) == ()
    same = with_keys(of.instance, start)
    assert same.model_copy(update={EXPERTS: of.instance.experts_on_cpu, UBATCH: None, KV: of.instance.kv}) == (
        of.instance.model_copy(update={"gpu_layers": None})
    )


WRITTEN = {key.partition(".")[2]: value for key, value in EXAMPLES.items() if key.startswith("Instance.")}


@pytest.mark.parametrize("key", sorted(WRITTEN.keys() - {"on", "split", "tensor_split", "gpu_layers"}))
def test_what_a_candidate_does_not_change_stays_as_it_was_read(key: str) -> None:
    """`20m` is seconds once it is read, and `-3%` a share: nobody may write those."""
    said = {"engine": "main", "model": "small", "on": ["ti"], "context": 4096, "port": 8080, "threads": 8}
    more = {"serve": "embeddings"} if key == "pooling" else {}  # it needs that
    instance = Instance.model_validate(said | more | {key: yaml.safe_load(WRITTEN[key])})
    candidate = Candidate.of({THREADS: 4, UBATCH: 256})
    assert with_keys(instance, candidate) == instance.model_copy(update={THREADS: 4, UBATCH: 256})


def test_an_instance_that_says_how_it_is_tuned_is_packed_alike() -> None:
    found, start, of = space("duo", "worker")
    tune = Tune.model_validate(
        {"for": "decode", "budget": "20m", "quality": {"same_top": "98%"}, "power": {"max": 300}}
    )
    gate = Gate.model_validate({"decode": "-3%", "budget": "10m"})
    instance = of.instance.model_copy(update={"tune": tune, "gate": gate})
    rig = of.rig.model_copy(update={"instances": {**of.rig.instances, of.name: instance}})
    assert (
        space_of(SearchedInstance(rig, of.name, of.headers), judged=True)[0].pack(start)
        == found.pack(start)
        is not None
    )


def test_the_finest_weights_are_those_with_most_bytes() -> None:
    of = known("budget", "chat")
    tune = Tune.model_validate({"models": ["large", "unknown"], "quality": {}})
    instance = of.instance.model_copy(update={"tune": tune})
    rig = of.rig.model_copy(update={"instances": {of.name: instance}})
    headers = {instance.model: qwen_35b("Q3_K", "Q4_K", mtp=False), "large": qwen_35b("Q6_K", "Q6_K", mtp=False)}
    assert (SearchedInstance(rig, of.name, headers).finest, of.finest) == ("large", "")
    found, start = space_of(SearchedInstance(rig, of.name, headers), judged=True)
    assert found.axis(MODEL).values == (instance.model, "large", "unknown")
    assert start[MODEL] == instance.model
    assert MODEL not in keys(space_of(SearchedInstance(rig, of.name, headers), judged=False)[0])


def test_settings_say_the_same_as_the_keys() -> None:
    _, start, of = space("duo", "worker")
    off = start.with_keys({HEAD: None, SURE: None, THREADS: 4})
    assert [str(each) for each in settings_of(off, start)] == ["threads=4", "draft=null"]
    assert with_keys(of.instance, off).draft is None
    surer = start.with_keys({SURE: 0.75})
    assert [str(each) for each in settings_of(surer, start)] == ["draft.p_min=0.75"]
    draft = with_keys(of.instance, surer).draft
    assert draft
    assert (draft.mtp, draft.p_min) == (2, 0.75)


def test_what_fits_nowhere_is_no_candidate() -> None:
    of = known("budget", "chat")
    huge = of.rig.model_copy(
        update={"instances": {"chat": of.instance.model_copy(update={"context": 64 << 20, "gpu_layers": None})}}
    )
    found, start = space_of(SearchedInstance(huge, "chat", of.headers), judged=True)
    assert found.pack(start) is None


def test_what_the_ram_alone_cannot_hold_is_packed_where_both_together_can() -> None:
    """The larger quant of its owner: 15.3 GB of experts, 16 GB of RAM of which the system has a share."""
    of = SearchedInstance(fleet().rigs["budget"], "chat", {"35b": qwen_35b("Q3_K", "Q4_K", mtp=False)})
    found, start = space_of(of, judged=False)
    assert not fits(of, with_keys(of.instance, start.with_keys({EXPERTS: 40, LAYERS: None})))
    packed = found.pack(start)
    assert packed
    assert fits(of, with_keys(of.instance, packed))
    less = int(str(packed[EXPERTS])) - 1
    assert not fits(of, with_keys(of.instance, packed.with_keys({EXPERTS: less})))
