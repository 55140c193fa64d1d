"""Rigs with all their instances running: what fits, what does not, and what the ways out are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from benchmarks.gpu_memory import again
from benchmarks.gpu_rigs_rows import Row
from benchmarks.gpu_rigs_rows import again as measured_again
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.memory.estimate import estimate
from llamaherd.memory.facts import Sized, rig_facts
from llamaherd.memory.fit import fit_in
from llamaherd.memory.instances import (
    capacity,
    cuda_bytes,
    draft_placement,
    placement,
    usable_bytes,
)
from llamaherd.memory.placement import Placement
from llamaherd.memory.suggestions import suggest_changes
from tests.support.examples import fleet, locked
from tests.support.headers import gemma3, qwen_35b, qwen_122b
from tests.support.ours import plan
from tests.support.rigs import ROOT, Declared, changed

MIB = 1 << 20


def example(name: str) -> Declared:
    declared: Declared = yaml.safe_load((ROOT / "inventory" / "examples" / f"{name}.yaml").read_text(encoding="utf-8"))
    return declared


def rig(declared: Declared, changes: Mapping[str, Any] | None = None) -> Rig:
    for instance in declared["instances"].values():
        if True in instance:  # `on`, as YAML 1.1 reads it
            instance["on"] = instance.pop(True)
    return Rig.model_validate(changed(declared, changes or {}))


def alone(declared: Declared, name: str, header: Header, changes: Mapping[str, Any] | None = None) -> Sized:
    """One instance of a rig, with the header of its model."""
    made = rig(declared, changes)
    return rig_facts(made, {made.instances[name].model: header}).sized[name]


def without_ram(each: Sized) -> Sized:
    """The same with as much RAM as it needs."""
    return replace(each, room=replace(each.room, ram=None))


def fits(each: Sized) -> bool:
    return without_ram(each).fit.fits


def test_one_takes_q3_k_xl_at_its_full_context_and_not_q4_k_xl() -> None:
    """Rig 5 of its owner: 17.2 GB run at 262,144 tokens with three drafted, 22 GB run out of memory."""
    assert fits(alone(example("one"), "chat", qwen_35b("Q3_K")))
    larger = alone(example("one"), "chat", qwen_35b("Q4_K", "Q5_K"))
    assert not fits(larger)
    made = rig(example("one"))
    assert "experts_on_cpu: 3" in suggest_changes(rig_facts(made, {}), without_ram(larger))


@pytest.mark.parametrize(("layers", "right"), [(16, True), (17, True), (18, False), (19, False)])
def test_budget_takes_17_layers_of_q3_k_m_and_not_18(layers: int, right: bool) -> None:
    """Rig 4 of its owner, on a GPU of which a desktop has a share: with the engine's own batch. In shape; 17.7 GB."""
    plain = {f"instances/chat/{key}": None for key in ("batch", "ubatch")}
    changes = {**plain, "instances/chat/gpu_layers": layers, "instances/chat/kv": "f16"}
    assert fits(alone(example("budget"), "chat", qwen_35b("Q3_K", "Q4_K", mtp=False), changes)) is right


def test_budget_takes_27_layers_of_iq2_xxs() -> None:
    assert fits(alone(example("budget"), "chat", qwen_35b("IQ2_XXS", mtp=False)))


def test_six_takes_the_model_at_its_full_context_by_either_split() -> None:
    """Rig 3: 0.9 on the first GPU is not what the model asks for; docs/rigs/six.md says more."""
    model = qwen_122b(mtp=False)
    for split in ([0.9, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]):
        each = alone(example("six"), "coder", model, {"instances/coder/tensor_split": split})
        assert fits(each)
    fullest = max(range(6), key=lambda card: each.memory.devices[card].total)
    assert fullest == 0


def test_duo_fits_with_all_its_instances() -> None:
    headers = {"122b": qwen_122b("IQ3_S"), "35b": qwen_35b("Q4_K", "Q5_K"), "heretic": qwen_35b("Q8_0", mtp=False)}
    found = rig_facts(rig(example("duo")), headers).sized
    assert set(found) == {"worker", "reasoner", "dialectic"}
    assert all(each.fit.fits for each in found.values())


def test_experts_of_three_quarters_of_the_layers() -> None:
    each = alone(example("duo"), "worker", qwen_122b("IQ3_S"))
    ((pattern, where),) = each.placement.overrides
    assert where == "CPU"
    assert pattern == r"blk\.(?:[0-9]|[12][0-9]|3[0-5])\.ffn_(?:down|gate|up)_exps\.weight"


def test_every_way_out_that_is_named_makes_it_fit() -> None:
    declared = example("one")
    each = without_ram(alone(declared, "chat", qwen_35b("Q4_K", "Q5_K")))
    ways = suggest_changes(rig_facts(rig(declared), {}), each)
    assert len(ways) >= 3
    for way in ways:
        change: dict[str, Any] = {"draft": None} if way == "no draft" else yaml.safe_load(way)
        changes = {f"instances/chat/{key}": value for key, value in change.items()}
        assert fits(alone(declared, "chat", qwen_35b("Q4_K", "Q5_K"), changes)), way


DRAFTED = {"instances/chat/draft": {"model": "s", "max": 4}, "models/s": {"hf": "a/s"}}


def test_a_model_that_drafts_is_held_beside_the_one_that_is_served() -> None:
    headers = {"35b": qwen_35b("Q3_K", mtp=False), "s": gemma3()}
    plain = rig_facts(rig(example("one"), {"instances/chat/draft": None}), headers).sized["chat"]
    made = rig(example("one"), DRAFTED)
    each = rig_facts(made, headers).sized["chat"]
    alone_ = Placement(context=262144, parallel=1, batch=512, ubatch=512, free=each.placement.free)
    small = estimate(gemma3(), alone_)
    (card,), (before,) = each.memory.devices, plain.memory.devices
    assert card.total - before.total == small.devices[0].total
    assert card.draft.total == small.devices[0].total > sum(tensor.bytes for tensor in gemma3().each) // 2
    assert each.memory.host.total - plain.memory.host.total == small.host.total
    (cuda,) = cuda_bytes(made, each.instance, each.header, each.placement)
    assert each.room.cards == (usable_bytes(made, "card") - cuda - small.devices[0].total,)


def test_ik_gives_a_model_that_drafts_one_slot_and_the_same_types() -> None:
    changes = {
        **DRAFTED,
        "engines/main/kind": "ik_llama.cpp",
        "instances/chat/parallel": 4,
        "instances/chat/kv": "q8_0",
    }
    each = rig_facts(rig(example("one"), changes), {"35b": qwen_35b("Q3_K"), "s": gemma3()}).sized["chat"]
    laid = draft_placement(each.placement)
    assert (laid.context, laid.parallel, laid.type_k, laid.overrides, laid.mtp) == (65536, 1, "q8_0", (), 0)


def test_a_projector_lies_on_the_first_card_or_in_ram() -> None:
    headers = {"35b": qwen_35b("Q3_K"), "122b": qwen_122b(mtp=False)}
    plain, seeing = (
        rig_facts(rig(example("six")), headers, sizes).sized["coder"] for sizes in ({}, {"122b": 900 * MIB})
    )
    more = [one.total - two.total for one, two in zip(seeing.memory.devices, plain.memory.devices, strict=True)]
    assert more == [900 * MIB, 0, 0, 0, 0, 0]
    assert any("vision projector" in doubt for doubt in seeing.memory.doubts)
    on_cpu = {"instances/chat": {"engine": "main", "model": "35b", "context": 4096, "port": 8080}}
    plain, seeing = (
        rig_facts(rig(example("one"), on_cpu), headers, sizes).sized["chat"] for sizes in ({}, {"35b": 900 * MIB})
    )
    assert seeing.memory.host.total - plain.memory.host.total == 900 * MIB
    assert plain.room.ram is not None
    assert seeing.room.ram == plain.room.ram - 900 * MIB


def test_a_card_can_be_too_full_for_the_model_that_drafts() -> None:
    """Q3_K with a head of 1.1 GB fits; with itself as the model that drafts, nothing does."""
    each = rig_facts(rig(example("one"), {"instances/chat/draft": {"model": "35b"}}), {"35b": qwen_35b("Q3_K")}).sized[
        "chat"
    ]
    assert not fits(each)


def test_what_is_not_known_of_a_model_that_drafts_is_a_doubt() -> None:
    made = rig(example("one"), DRAFTED)
    each = rig_facts(made, {"35b": qwen_35b("Q3_K")}).sized["chat"]
    assert "what `s` takes to draft is not known: it is not in the lock" in each.memory.doubts
    head = rig(example("one"), {**DRAFTED, "instances/chat/draft": {"mtp": 2, "model": "s"}})
    weights = sum(tensor.bytes for tensor in gemma3().each)
    found = rig_facts(head, {"35b": qwen_35b("Q3_K", mtp=False), "s": gemma3()}).sized["chat"].memory
    assert found.devices[0].draft.weights == weights
    assert any("cache and buffers are not counted" in doubt for doubt in found.doubts)
    assert not any("no prediction heads of its own" in doubt for doubt in found.doubts)


def test_two_on_one_card_have_less_room_each() -> None:
    declared = example("one")
    model = qwen_35b("Q3_K")
    lonely = alone(declared, "chat", model)
    second = {**declared["instances"]["chat"], "port": 9999, "context": 4096}
    made = rig(changed(declared, {"instances/second": second}))
    both = rig_facts(made, {"35b": model}).sized
    (cuda,) = cuda_bytes(made, made.instances["second"], model, both["second"].placement)
    assert both["chat"].room.cards[0] == lonely.room.cards[0] - both["second"].memory.devices[0].total - cuda
    assert not both["chat"].fit.fits


def test_a_card_of_unknown_memory_is_not_sized() -> None:
    declared = changed(example("one"), {"gpus/cards/card": {"model": "Odd", "architecture": "120"}})
    made = rig(declared)
    assert capacity(made, "card") is None
    assert rig_facts(made, {"35b": qwen_35b("Q3_K")}).sized == {}


def test_what_is_reserved_of_a_card_is_not_given_away() -> None:
    whole, less = (rig(changed(example("one"), {"gpus/cards/card/reserved": size})) for size in (None, "2GiB"))
    assert usable_bytes(whole, "card") - usable_bytes(less, "card") == 2 << 30


def test_a_placement_says_what_the_instance_says() -> None:
    made = rig(example("wsl"))
    placed = placement(made, made.instances["chat"], qwen_35b("Q4_K"))
    assert (placed.context, placed.parallel, placed.mtp, placed.devices) == (131072, 2, 2, 1)
    assert fit_in(qwen_35b("Q4_K"), placed, rig_facts(made, {"35b": qwen_35b("Q4_K")}).sized["chat"].room).fits


def test_a_plan_is_near_what_servers_took_of_a_real_card() -> None:
    """16 servers on an H200, as nvidia-smi showed them (docs/gpus.md): within 3 % or 300 MiB, whichever is more."""
    rows = again(ROOT / "tests" / "data" / "gpu_memory_h200.jsonl")
    assert len(rows) == 16
    assert [row.case for row in rows if not row.near] == []


@pytest.mark.parametrize("share", ["0%", "0.0%", "1%", 0])
def test_a_share_that_is_no_whole_layer_moves_nothing(share: str | int) -> None:
    one = fleet().rigs["one"]
    chat = one.instances["chat"].model_copy(update={"experts_on_cpu": share})
    (instance,) = plan(one.model_copy(update={"instances": {"chat": chat}}), locked()).instances
    assert "--override-tensor" not in instance.server.arguments


FEW_LAYERS = {"drawn-l-8", "drawn-l-12"}
"""Servers with `gpu_layers` of which nearly all layers are in RAM: up to 110 MiB too much are planned for a GPU."""


@pytest.fixture(scope="module", params=["h100", "h200"])
def measured(request: pytest.FixtureRequest) -> list[Row]:
    """Servers of both engines on one to four GPUs, as nvidia-smi and /proc showed them (docs/gpus.md)."""
    return measured_again(ROOT / "tests" / "data" / f"gpu_rigs_{request.param}.jsonl")


def test_a_plan_is_near_what_servers_took_of_every_card(measured: list[Row]) -> None:
    """At most 1 % too small and 3 % too large, on each GPU."""
    assert len(measured) in (65, 90)
    off = {(row.name, card): round(each, 4) for row in measured for card, each in enumerate(row.off)}
    few = {where: each for where, each in off.items() if where[0] in FEW_LAYERS}
    assert {where: each for where, each in off.items() if where not in few and not -0.01 <= each <= 0.03} == {}
    assert {where: each for where, each in few.items() if not -0.01 <= each <= 0.065} == {}


def test_a_plan_is_near_what_servers_took_of_the_ram(measured: list[Row]) -> None:
    """Within 5 % or 200 MiB of what they hold when they have started, mapped pages included."""
    off = {row.name: round(row.planned_ram - row.ram) for row in measured}
    bounds = {row.name: max(200, 0.05 * row.ram) for row in measured}
    assert {name: size for name, size in off.items() if abs(size) > bounds[name]} == {}


def test_what_grows_with_the_cells_in_use_is_planned_for_all_of_them(measured: list[Row]) -> None:
    """MiB of a GPU that servers have yet to take which had read 40,000 tokens."""
    filled = {
        row.name: [round(full - now) for full, now in zip(row.full, row.planned, strict=True)] for row in measured
    }
    assert {name: still for name, still in filled.items() if name.startswith("filled-")} in (
        {},
        {
            "filled-ik-qwen35": [178],
            "filled-ik-llama8": [355],
            "filled-ik-llama8-f16": [0],
            "filled-llama8": [0],
            "filled-next80-2-off": [36, 36],
        },
    )
