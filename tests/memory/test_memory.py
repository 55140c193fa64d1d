"""Where layers, tensors and caches land, and what they take: by hand-made headers whose sums are plain."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.gguf.header import Header, ParameterValue, TensorGroup
from llamaherd.memory import Memory, Placement, estimate
from llamaherd.memory.placement import HOST, pad, row_bytes
from llamaherd.pipeline.engine_estimate import MIB

EMBEDDING, TOKENS, LAYER = 1024, 1000, 1024 * 1024 * 2
CAPTURED = Path(__file__).parents[1] / "data" / "memory_engine.json"


def dense(layers: int = 8, architecture: str = "llama", output: bool = True, **parameters: ParameterValue) -> Header:
    """A model with one matrix of 2 MiB in each layer, and heads of 64 numbers: 4 of keys and 4 of values."""
    ends = ["token_embd.weight", *(["output.weight"] if output else [])]
    return Header(
        architecture=architecture,
        vocabulary=TOKENS,
        parameters={
            "block_count": layers,
            "embedding_length": EMBEDDING,
            "attention.head_count": 16,
            "attention.head_count_kv": 4,
            "feed_forward_length": 2048,
            **{key.replace("__", "."): value for key, value in parameters.items()},
        },
        tensors=(
            *(TensorGroup(name=name, type="F16", shape=(EMBEDDING, TOKENS)) for name in ends),
            TensorGroup(name="attn_q.weight", type="F16", shape=(EMBEDDING, 1024), layers=f"0-{layers - 1}"),
        ),
    )


@cache
def real(name: str) -> Header:
    return Header.model_validate(json.loads(CAPTURED.read_text(encoding="utf-8"))["models"][name])


def weights(memory: Memory) -> list[int]:
    return [use.weights for use in memory.devices]


# --- weights -------------------------------------------------------------------------------------------------


def test_the_embeddings_stay_in_ram_and_the_output_goes_first() -> None:
    ends = EMBEDDING * TOKENS * 2
    one = estimate(dense(), Placement(gpu_layers=1))
    assert (one.devices[0].weights, one.host.weights) == (ends, ends + 8 * LAYER)
    two = estimate(dense(), Placement(gpu_layers=2))
    assert (two.devices[0].weights, two.host.weights) == (ends + LAYER, ends + 7 * LAYER)


def test_a_model_without_an_output_has_its_embeddings_twice_on_a_card() -> None:
    tied, whole = estimate(dense(output=False), Placement()), estimate(dense(), Placement())
    assert weights(tied) == weights(whole)
    assert estimate(dense(output=False), Placement(devices=0)).host.weights == EMBEDDING * TOKENS * 2 + 8 * LAYER


@pytest.mark.parametrize(
    ("layers", "split", "expected"),
    [
        (48, None, [9, 8, 8, 8, 8, 8]),
        # An owner of six 3090s lists what each GPU holds of a model of 48 layers: the third GPU the most.
        (48, (0.9, 1, 1, 1, 1, 1), [8, 8, 9, 8, 8, 8]),
        (48, (1, 0, 0, 0, 0, 1), [25, 0, 0, 0, 0, 24]),
        (7, (1, 1, 1, 1, 0, 0), [2, 2, 2, 2, 0, 0]),
    ],
)
def test_layers_are_cut_by_cumulative_shares(layers: int, split: tuple[float, ...] | None, expected: list[int]) -> None:
    places = Placement(devices=6, tensor_split=split).layer_devices(layers)
    assert [places.count(card) for card in range(6)] == expected
    assert list(places) == sorted(places)


def test_without_a_split_free_memory_decides() -> None:
    memory = estimate(dense(), Placement(devices=2, free=(20 * 10**9, 10 * 10**9)))
    assert weights(memory) == [6 * LAYER, 2 * LAYER + EMBEDDING * TOKENS * 2]
    assert memory.doubts == ()
    assert "taken to have the same free" in estimate(dense(), Placement(devices=2)).doubts[0]


def test_split_none_uses_the_main_card() -> None:
    memory = estimate(dense(), Placement(devices=2, split="none", main_device=1))
    assert weights(memory) == [0, 8 * LAYER + EMBEDDING * TOKENS * 2]
    assert memory.devices[0].total == 0


def test_the_first_override_that_matches_counts() -> None:
    overrides = ((r"blk\.3\.", 1), (r"blk\.[0-3]\.", "CPU"), (r"token_embd", 0))
    memory = estimate(dense(), Placement(devices=2, tensor_split=(1, 0), overrides=overrides))
    ends = EMBEDDING * TOKENS * 2
    assert weights(memory) == [4 * LAYER + 2 * ends, LAYER]
    assert memory.host.weights == 3 * LAYER


def test_matrices_that_are_cut_are_shared_in_proportion() -> None:
    memory = estimate(dense(), Placement(devices=2, split="tensor", tensor_split=(3, 1)))
    assert weights(memory)[0] == 3 * weights(memory)[1]
    assert any("cuts matrices through" in doubt for doubt in memory.doubts)


# --- caches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cache_", "bytes_"), [("f16", 2.0), ("q8_0", 34 / 32), ("q4_0", 18 / 32), ("q6_0", 26 / 32)])
def test_the_cache_is_rows_of_its_type(cache_: str, bytes_: float) -> None:
    memory = estimate(dense(), Placement(context=4096, type_k=cache_, type_v=cache_))
    assert memory.devices[0].kv == 8 * 4096 * (256 + 256) * bytes_


@pytest.mark.parametrize(
    ("placement", "cells"),
    [
        (Placement(context=1000), 1024),
        (Placement(context=4096, parallel=4), 4096),
        (Placement(context=4096, parallel=3), 3 * pad(4096 // 3)),
        (Placement(context=4096, parallel=3, kv_unified=True), 4096),
        (Placement(context=4096, parallel=3, engine="ik_llama.cpp"), 4096),
    ],
)
def test_cells_are_padded_per_sequence(placement: Placement, cells: int) -> None:
    assert estimate(dense(), placement).devices[0].kv == 8 * cells * 512 * 2


def test_layers_that_see_a_window_keep_a_window() -> None:
    header = dense(12, "gemma3", attention__sliding_window=512)
    placement = Placement(context=32768, ubatch=512)
    row = 512 * 2
    assert estimate(header, placement).devices[0].kv == row * (2 * 32768 + 10 * 1024)
    several = replace(placement, parallel=4)
    assert estimate(header, several).devices[0].kv == 4 * row * (2 * 8192 + 10 * 1024)
    unified = replace(several, kv_unified=True)
    assert estimate(header, unified).devices[0].kv == row * (2 * 32768 + 10 * (4 * 512 + 512))
    for whole in (replace(placement, swa_full=True), replace(placement, engine="ik_llama.cpp")):
        assert estimate(header, whole).devices[0].kv == row * 12 * 32768


def test_layers_that_read_the_cache_of_others_have_none() -> None:
    pattern = (1, 1, 1, 0) * 2
    header = dense(8, "gemma4", attention__sliding_window_pattern=pattern, attention__sliding_window=512)
    shares = header.model_copy(update={"parameters": {**header.parameters, "attention.shared_kv_layers": 4}})
    assert estimate(shares, Placement()).devices[0].kv * 2 == estimate(header, Placement()).devices[0].kv


def test_compressed_keys_stand_for_values_too() -> None:
    header = dense(
        8,
        "deepseek2",
        attention__head_count_kv=1,
        attention__key_length=576,
        attention__value_length=512,
        attention__key_length_mla=192,
        attention__value_length_mla=128,
    )
    assert estimate(header, Placement()).devices[0].kv == 8 * 4096 * 576 * 2


def test_without_flash_attention_values_are_as_wide_as_the_widest() -> None:
    header = dense(2, attention__head_count_kv=(4, 2))
    assert estimate(header, Placement()).devices[0].kv == 4096 * (512 + 256) * 2
    assert estimate(header, Placement(flash_attention=False)).devices[0].kv == 4096 * (512 + 128 + 256) * 2


def test_the_cache_follows_its_layer_or_stays_in_ram() -> None:
    half = estimate(dense(), Placement(gpu_layers=5))
    assert half.devices[0].kv == half.host.kv == 4 * 4096 * 512 * 2
    none = estimate(dense(), Placement(no_kv_offload=True))
    assert (none.devices[0].kv, none.host.kv) == (0, 8 * 4096 * 512 * 2)


# --- state and drafts ----------------------------------------------------------------------------------------


def test_a_draft_takes_weights_a_cache_and_copies_of_the_state() -> None:
    """Figures that a server printed for this shape: docs/measurements/memory.md."""
    header = real("35B-A3B Q4_K")
    without = estimate(header, Placement(context=65536)).devices[0]
    drafting = estimate(header, Placement(context=65536, mtp=2)).devices[0]
    assert without.draft.total == 0
    assert without.state == pytest.approx(62.81 * MIB, abs=MIB / 100)
    assert drafting.state + drafting.draft.state == pytest.approx(188.44 * MIB, abs=MIB / 100)
    assert drafting.draft.kv == 128 * MIB
    head = sum(tensor.bytes for tensor in header.each if tensor.layer == 40)
    assert drafting.draft.weights == head
    assert drafting.weights == without.weights
    assert drafting.total == without.total + drafting.draft.total + (drafting.compute - without.compute)


def test_a_drafts_cache_has_a_type_of_its_own() -> None:
    header = real("35B-A3B Q4_K")
    small = estimate(header, Placement(mtp=1, type_k="q4_0", type_v="q4_0")).devices[0]
    assert small.draft.kv == estimate(header, Placement(mtp=1)).devices[0].draft.kv
    both = Placement(mtp=1, draft_type_k="q8_0", draft_type_v="q8_0")
    assert estimate(header, both).devices[0].draft.kv == small.draft.kv * 34 // 64


def test_a_state_that_cannot_go_back_has_no_copies() -> None:
    header = real("Qwen3-Next 80B-A3B")
    assert estimate(header, Placement(mtp=3)).devices[0].draft.state == 0
    ik = Placement(mtp=3, engine="ik_llama.cpp")
    assert estimate(real("35B-A3B Q4_K"), ik).devices[0].draft.state == 0


def test_slots_have_a_state_each() -> None:
    header = real("35B-A3B Q4_K")
    four = estimate(header, Placement(context=65536, parallel=4, mtp=2)).devices[0]
    assert four.state + four.draft.state == pytest.approx(753.75 * MIB, abs=MIB / 100)


# --- compute -------------------------------------------------------------------------------------------------


def test_weights_in_ram_are_copied_to_a_card_for_large_batches_only() -> None:
    header = real("35B-A3B Q4_K")
    experts = Placement(overrides=((r"_exps\.", "CPU"),))
    large, small = estimate(header, experts), estimate(header, replace(experts, ubatch=16))
    largest = max(tensor.bytes for tensor in header.each if tensor.is_expert)
    assert large.devices[0].compute > largest
    assert small.devices[0].compute < largest
    assert estimate(header, replace(experts, op_offload=False)).devices[0].compute < largest


def test_cards_that_work_on_several_batches_have_inputs_several_times() -> None:
    header = real("Llama 3.1 8B")
    two = Placement(context=131072, devices=2, tensor_split=(1, 1))
    mask = 131072 * 512 * 2
    overridden = replace(two, overrides=((r"blk\.0\.ffn_up\.", 0),))
    more = estimate(header, two).devices[0].compute - estimate(header, overridden).devices[0].compute
    assert more >= 3 * mask


# --- ik_llama.cpp --------------------------------------------------------------------------------------------


def test_ik_cuts_by_bytes_where_llama_cpp_counts_layers() -> None:
    header = dense(8)
    heavy = TensorGroup(name="ffn_up.weight", type="F16", shape=(EMBEDDING, 8192), layers="0-1")
    header = header.model_copy(update={"tensors": (*header.tensors, heavy)})
    two = Placement(devices=2, tensor_split=(1, 1), ubatch=32)
    by_layers = estimate(header, two)
    by_bytes = estimate(header, replace(two, engine="ik_llama.cpp"))
    assert abs(weights(by_bytes)[0] - weights(by_bytes)[1]) < abs(weights(by_layers)[0] - weights(by_layers)[1])
    assert sum(weights(by_bytes)) == sum(weights(by_layers))


# --- what is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        (Placement(overrides=(("blk.(", "CPU"),)), "is no regular expression"),
        (Placement(type_k="q3_0"), "is no type of a cache"),
        (Placement(context=0), "context is 0"),
        (Placement(parallel=-1), "parallel is -1"),
        (Placement(overrides=(("x", 1),)), "is to GPU 1 of 1"),
        (Placement(devices=2, main_device=2), "main GPU is 2 of 2"),
    ],
)
def test_what_cannot_be_is_said(placement: Placement, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        estimate(dense(), placement)


@pytest.mark.parametrize(
    ("header", "placement", "said"),
    [
        (dense(architecture="novel"), Placement(), "architecture `novel` is not known"),
        (dense(), Placement(mtp=2), "no prediction heads"),
        (dense(attention__key_length=80), Placement(type_k="q8_0"), None),
        (dense(attention__key_length=72, attention__head_count_kv=1), Placement(type_k="q8_0"), "no whole blocks"),
        (Header(architecture="llama"), Placement(), "has no number of layers"),
    ],
)
def test_doubts_are_said(header: Header, placement: Placement, said: str | None) -> None:
    doubts = estimate(header, placement).doubts
    assert any(said in doubt for doubt in doubts) if said else doubts == ()


def test_a_row_is_whole_blocks() -> None:
    assert [row_bytes(type_, 256) for type_ in ("f32", "f16", "q8_0", "q4_0", "iq4_nl")] == [1024, 512, 272, 144, 144]


def test_the_host_is_no_card() -> None:
    assert HOST not in range(100)
    cpu = estimate(dense(), Placement(devices=0))
    assert cpu.devices == ()
    assert cpu.host == cpu.everywhere


NUMBERS = st.one_of(
    st.integers(-2, 600), st.tuples(st.integers(-2, 9), st.integers(-2, 9)), st.floats(-1, 1e6), st.text(max_size=3)
)
PLACEMENTS = st.builds(
    Placement,
    engine=st.sampled_from(["llama.cpp", "ik_llama.cpp"]),
    context=st.integers(-1, 10**7),
    parallel=st.integers(-1, 64),
    kv_unified=st.booleans(),
    type_k=st.sampled_from(["f16", "q8_0", "q4_0", "none"]),
    ubatch=st.integers(-1, 4096),
    flash_attention=st.booleans(),
    gpu_layers=st.none() | st.integers(-1, 1000),
    devices=st.integers(0, 4),
    free=st.lists(st.integers(0, 10**11), max_size=4).map(tuple),
    tensor_split=st.none() | st.lists(st.floats(0, 100), max_size=6).map(tuple),
    split=st.sampled_from(["layer", "none", "row", "tensor", "graph"]),
    main_device=st.integers(-1, 4),
    overrides=st.lists(st.tuples(st.text(max_size=5), st.sampled_from(["CPU", 0, 3])), max_size=2).map(tuple),
    mtp=st.integers(0, 9),
    no_kv_offload=st.booleans(),
)


@given(
    parameters=st.dictionaries(st.sampled_from(sorted(real("35B-A3B Q4_K").parameters)), NUMBERS, max_size=4),
    architecture=st.sampled_from(["qwen35moe", "gemma3", "gemma4", "deepseek2", "jamba", "nemotron_h", "novel"]),
    placement=PLACEMENTS,
)
def test_any_header_and_placement_give_figures_or_a_sentence(
    parameters: dict[str, ParameterValue], architecture: str, placement: Placement
) -> None:
    header = real("35B-A3B, 8 experts")
    odd = header.model_copy(update={"architecture": architecture, "parameters": {**header.parameters, **parameters}})
    try:
        memory = estimate(odd, placement)
    except ValueError:
        return
    assert len(memory.devices) == placement.devices
    assert memory.everywhere.weights > 0
