"""Whether it fits and what would make it fit; experts on the CPU; what is asked of the engine's own tool."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from llamaherd.gguf.header import Header
from llamaherd.inventory.schema.serving import Share
from llamaherd.memory import Placement, estimate
from llamaherd.memory.fit import RESERVE, Room, best_fit, changes, fit_in
from llamaherd.memory.placement import HOST, expert_layers_on_cpu, experts_pattern
from llamaherd.pipeline.engine_estimate import (
    MIB,
    NoFigureError,
    parse_figures,
    parse_server_log,
    tool_arguments,
    with_draft_memory,
    without_draft,
)

CAPTURED = Path(__file__).parents[1] / "data" / "memory_engine.json"
GIB = 1024**3
MOE = ["35B-A3B Q4_K", "Gemma 4 26B-A4B", "gpt-oss 20B", "DeepSeek V2 Lite", "GLM 4.5 Air", "Qwen3-Next 80B-A3B"]


@cache
def real(name: str) -> Header:
    return Header.model_validate(json.loads(CAPTURED.read_text(encoding="utf-8"))["models"][name])


# --- experts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "count"), [("75%", 36), (36, 36), ("0%", 0), ("100 %", 48), (48, 48), ("1%", 0), ("12.5%", 6), (0, 0)]
)
def test_shares_are_of_the_layers_with_experts_first_ones_first(share: str | int, count: int) -> None:
    assert expert_layers_on_cpu(real("122B-A10B Q6_K"), share) == tuple(range(count))


def test_dense_layers_and_prediction_heads_do_not_count() -> None:
    assert real("GLM 4.5 Air").expert_layers == tuple(range(1, 46))
    assert expert_layers_on_cpu(real("GLM 4.5 Air"), 2) == (1, 2)


@pytest.mark.parametrize("share", ["most", "-1", "7.5", 49, "101%", ""])
def test_shares_that_are_none_are_refused(share: str | int) -> None:
    with pytest.raises(ValueError, match=r"`.*` is"):
        expert_layers_on_cpu(real("122B-A10B Q6_K"), share)


@given(st.from_regex(r"\A(100|[0-9]{1,3})(\.(0{1,6}|[0-9]{1,6}))?%\Z"))
def test_each_share_that_the_inventory_takes_is_read(text: str) -> None:
    try:
        share: str | int = TypeAdapter[str | int](Share).validate_python(text)
    except ValidationError:
        return
    assert set(expert_layers_on_cpu(real("122B-A10B Q6_K"), share)) <= set(range(48))


def test_a_model_without_experts_has_none_to_move() -> None:
    with pytest.raises(ValueError, match="no routed experts"):
        expert_layers_on_cpu(real("Llama 3.1 8B"), "75%")
    with pytest.raises(ValueError, match="layer 0 has no routed experts"):
        experts_pattern(real("Llama 3.1 8B"), [0])
    with pytest.raises(ValueError, match="no layers"):
        experts_pattern(real("35B-A3B Q4_K"), [])


def test_the_pattern_is_short() -> None:
    header = real("122B-A10B Q6_K")
    expected = r"blk\.(?:[0-9]|[12][0-9]|3[0-5])\.ffn_(?:down|gate|up)_exps\.weight"
    assert experts_pattern(header, expert_layers_on_cpu(header, "75%")) == expected


@given(name=st.sampled_from(MOE), data=st.data())
def test_the_pattern_matches_the_experts_and_nothing_else(name: str, data: st.DataObject) -> None:
    header = real(name)
    chosen = data.draw(st.sets(st.sampled_from(header.expert_layers), min_size=1))
    found = experts_pattern(header, chosen)
    assert not set(found) & set(",; ")
    hit = {tensor.name for tensor in header.each if re.search(found, tensor.name)}
    assert hit == {tensor.name for tensor in header.each if tensor.is_expert and tensor.layer in chosen}
    assert any("exps" in name for name in hit)


# --- fit -----------------------------------------------------------------------------------------------------


def test_what_is_left_is_what_a_card_has_less_the_reserve() -> None:
    header, placement = real("Llama 3.1 8B"), Placement(context=8192)
    found = fit_in(header, placement, Room((8 * GIB,), 16 * GIB))
    assert found.fits
    assert found.spare == (8 * GIB - RESERVE - found.memory.devices[0].total,)
    assert found.spare_ram == 16 * GIB - found.memory.host.total
    tight = fit_in(header, placement, Room((4 * GIB,), GIB // 4))
    assert [device for device, _ in tight.short] == [0, HOST]
    assert dict(tight.short)[0] == -tight.spare[0]


def test_cards_must_be_as_many_as_are_placed_on() -> None:
    with pytest.raises(ValueError, match="2 GPUs"):
        fit_in(real("Llama 3.1 8B"), Placement(devices=2), Room((GIB,)))


def test_what_fits_needs_no_change() -> None:
    assert changes(real("Llama 3.1 8B"), Placement(), Room((24 * GIB,))) == ()


def test_every_change_offered_fits_and_none_is_larger_than_needed() -> None:
    header = real("35B-A3B Q4_K")
    placement = Placement(context=262_144, parallel=2, mtp=3, ubatch=1024)
    room = Room((24 * GIB,), 64 * GIB)
    offered = {change.kind: change for change in changes(header, placement, room)}
    assert {"kv", "experts", "gpu_layers", "context"} <= set(offered)
    for change in offered.values():
        assert fit_in(header, change.placement, room).fits, change.text
    more = replace(offered["context"].placement, context=offered["context"].placement.context + 1024)
    assert not fit_in(header, more, room).fits
    layers = offered["gpu_layers"].placement.gpu_layers
    assert layers is not None
    assert not fit_in(header, replace(placement, gpu_layers=layers + 1), room).fits
    ((expression, _),) = offered["experts"].placement.overrides
    moved = sum(re.search(expression, f"blk.{layer}.ffn_up_exps.weight") is not None for layer in range(40))
    assert offered["experts"].text.startswith(f"experts of {moved} layer")
    fewer = replace(placement, overrides=((experts_pattern(header, range(moved - 1)), "CPU"),))
    assert not fit_in(header, fewer, room).fits


def test_another_split_is_found_where_one_card_is_short() -> None:
    """The first of six GPUs has little left beside what else runs there: less of the model must go to it."""
    header = real("122B-A10B Q6_K")
    placement = Placement(context=262_144, type_k="q8_0", type_v="q8_0", devices=6, tensor_split=(1,) * 6)
    room = Room((19 * GIB, *[24 * GIB] * 5))
    assert [card for card, _ in fit_in(header, placement, room).short] == [0]
    first = changes(header, placement, room)[0]
    assert first.kind == "tensor_split"
    assert first.fit.fits
    assert (first.placement.tensor_split or ())[0] < 1


def test_layers_are_moved_one_by_one_where_no_simple_split_does() -> None:
    header = real("122B-A10B Q6_K")
    placement = Placement(devices=3, tensor_split=(1, 1, 1))
    room = Room((40 * GIB, 20 * GIB, 45 * GIB))
    (change,) = [each for each in changes(header, placement, room) if each.kind == "tensor_split"]
    assert change.fit.fits
    assert len(set(change.placement.tensor_split or ())) == 3


# --- answer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cards", "ram", "how"),
    [
        ("Llama 3.1 8B", (24,), None, "all on the GPUs"),
        ("35B-A3B Q4_K", (24,), 64, "all on the GPUs"),
        ("35B-A3B Q4_K", (8,), 64, "experts of"),
        ("Llama 3.1 8B", (6,), 64, "layers on GPUs"),
        ("Llama 3.1 8B", (), 16, "all in RAM"),
        ("122B-A10B Q6_K", (24, 24), 192, "experts of"),
    ],
)
def test_the_fastest_placement_that_fits(name: str, cards: tuple[int, ...], ram: int | None, how: str) -> None:
    room = Room(tuple(card * GIB for card in cards), ram and ram * GIB)
    found = best_fit(real(name), room)
    assert how in found.how
    assert found.fit.fits
    assert found.largest_context >= found.placement.context
    assert [row.name for row in found.rows] == [*(f"GPU {index}" for index in range(len(cards))), "RAM"]
    for row in found.rows[: len(cards)]:
        assert row.room == row.use.total + (row.spare or 0) + RESERVE


def test_what_fits_nowhere_is_answered_with_what_lacks_least() -> None:
    found = best_fit(real("122B-A10B Q6_K"), Room((8 * GIB,), 16 * GIB))
    assert not found.fit.fits
    assert found.fit.short
    assert found.largest_context == 0


# --- the engine's tool ---------------------------------------------------------------------------------------


def test_the_tool_is_given_what_it_shares_with_the_server() -> None:
    placement = Placement(
        context=65_536,
        parallel=2,
        type_k="q8_0",
        type_v="q4_0",
        devices=2,
        tensor_split=(0.9, 1),
        gpu_layers=30,
        overrides=((r"blk\.1\.", "CPU"), (r"blk\.2\.", 1)),
        mtp=3,
    )
    assert " ".join(tool_arguments(placement, "m.gguf")) == (
        "-m m.gguf -fitp on -c 65536 -np 2 -ctk q8_0 -ctv q4_0 -b 2048 -ub 512 -fa on --no-repack "
        r"-ngl 30 -sm layer -mg 0 -ts 0.9,1 -ot blk\.1\.=CPU,blk\.2\.=CUDA1"
    )


@pytest.mark.parametrize(
    "placement", [Placement(engine="ik_llama.cpp"), Placement(kv_unified=True, parallel=2)], ids=["ik", "unified"]
)
def test_what_the_tool_cannot_be_asked_is_refused(placement: Placement) -> None:
    with pytest.raises(ValueError, match="llama"):
        tool_arguments(placement, "m.gguf")


def test_figures_are_read_per_card() -> None:
    memory = parse_figures("CUDA0 14966 242 381 \nCUDA1 5 0 0 \nHost 243 0 48 \n")
    assert [use.weights for use in memory.devices] == [14966 * MIB, 5 * MIB]
    assert (memory.host.weights, memory.host.kv, memory.host.compute) == (243 * MIB, 0, 48 * MIB)


@pytest.mark.parametrize("text", ["", "error: no such file\n", "CUDA0 1 2 3\n"])
def test_no_figures_are_said(text: str) -> None:
    with pytest.raises(NoFigureError):
        parse_figures(text)


def test_a_log_is_read_per_device() -> None:
    log = """
    load_tensors:        CUDA0 model buffer size =  1024.00 MiB
    load_tensors:   CPU_Mapped model buffer size =   512.50 MiB
    llama_kv_cache:      CUDA0 KV buffer size =   640.00 MiB
    llama_memory_recurrent:      CUDA0 RS buffer size =   188.44 MiB
    llama_kv_cache:      CUDA0 KV buffer size =    64.00 MiB
    """
    memory = parse_server_log(log, 1)
    assert (memory.devices[0].weights, memory.devices[0].kv) == (1024 * MIB, 704 * MIB)
    assert memory.devices[0].state == round(188.44 * MIB)
    assert memory.host.weights == 512.5 * MIB
    with pytest.raises(NoFigureError):
        parse_server_log("nothing", 1)


def test_the_draft_is_added_to_the_engines_figures() -> None:
    header, placement = real("35B-A3B Q4_K"), Placement(mtp=2)
    engine = parse_figures("CUDA0 19000 142 1000\nHost 398 0 20")
    whole = with_draft_memory(engine, header, placement)
    assert whole.devices[0].draft == estimate(header, placement).devices[0].draft
    ours, asked = estimate(header, placement).devices[0], estimate(header, without_draft(placement)).devices[0]
    served = whole.devices[0]
    assert (served.weights, served.context - served.draft.state) == (19000 * MIB, 142 * MIB)
    assert served.compute == 1000 * MIB - (asked.compute - ours.compute) < 1000 * MIB
    with pytest.raises(ValueError, match="printed 1 GPUs, but the instance is on 2"):
        with_draft_memory(engine, header, replace(placement, devices=2))
