"""What an instance reads beside its model, and what that takes: a vision projector, a model that drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Instance
from llamaherd.memory.estimate import estimate
from llamaherd.memory.placement import Placement
from llamaherd.memory.use import DraftUse, Memory, Use, add


def beside(
    instance: Instance, placed: Placement, headers: Mapping[str, Header], projectors: Mapping[str, int]
) -> Memory:
    """What is held for an instance besides its model. `projectors` are bytes by name of model."""
    held = _nothing(placed)
    if size := projectors.get(instance.model, 0):
        doubt = "what the vision projector takes while it reads an image is not counted"
        held = summed(held, _on_first(placed, Use(weights=size), doubt, in_ram=placed.projector_in_ram))
    if instance.draft and instance.draft.model:
        name = instance.draft.model
        held = summed(held, _drafting(name, headers.get(name), placed, head=instance.draft.mtp is not None))
    return held


def drafting_header(instance: Instance, headers: Mapping[str, Header]) -> Header | None:
    """The header of the model that drafts for an instance, as far as it is known."""
    return headers.get(instance.draft.model) if instance.draft and instance.draft.model else None


def summed(one: Memory, other: Memory) -> Memory:
    """What both hold, GPU by GPU."""
    devices = tuple(add(*each) for each in zip(one.devices, other.devices, strict=True))
    return Memory(devices, add(one.host, other.host), (*one.doubts, *other.doubts))


def _nothing(placed: Placement) -> Memory:
    return Memory((Use(),) * placed.devices, Use())


def _on_first(placed: Placement, use: Use, doubt: str, *, in_ram: bool = False) -> Memory:
    """Held by the first GPU, and by the RAM where there is none or it is to be there."""
    if in_ram:
        return replace(_nothing(placed), host=use, doubts=(doubt,))
    devices = tuple(use if device == 0 else Use() for device in range(placed.devices))
    return Memory(devices, Use() if devices else use, (doubt,))


def _drafting(name: str, header: Header | None, placed: Placement, *, head: bool) -> Memory:
    if header is None:
        return replace(_nothing(placed), doubts=(f"what `{name}` takes to draft is not known: it is not in the lock",))
    if head:
        weights = Use(draft=DraftUse(weights=sum(tensor.bytes for tensor in header.each)))
        return _on_first(placed, weights, f"of the prediction head `{name}`, cache and buffers are not counted")
    try:
        memory = estimate(header, draft_placement(placed))
    except ValueError as error:
        return replace(_nothing(placed), doubts=(f"what `{name}` takes to draft is not known: {error}",))
    doubts = tuple(f"`{name}`, which drafts: {doubt}" for doubt in memory.doubts)
    return Memory(tuple(map(_as_draft, memory.devices)), _as_draft(memory.host), doubts)


def draft_placement(placed: Placement) -> Placement:
    """How an engine lays out a model that drafts for the one that is placed so: all of it on the same GPUs.

    llama.cpp gives it a cache of f16 (common/speculative.cpp:2527-2563 of b11434), ik_llama.cpp one of the same types
    and for one slot (examples/server/server-context.cpp:117-139 of 67268c8fd).
    """
    whole = replace(placed, gpu_layers=placed.draft_gpu_layers, overrides=placed.draft_overrides, mtp=0)
    if placed.does.drafts_for_one_slot:
        return replace(whole, context=placed.context // placed.parallel, parallel=1, no_kv_offload=False)
    return replace(whole, type_k=placed.draft_type_k, type_v=placed.draft_type_v)


def _as_draft(use: Use) -> Use:
    """All that a model holds, as what drafting adds."""
    return Use(draft=DraftUse(weights=use.weights, kv=use.kv, state=use.state, compute=use.compute))
