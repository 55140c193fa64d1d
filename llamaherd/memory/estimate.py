"""The bytes that each GPU and the host hold for a model and a placement: weights, KV cache, state and buffers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.gguf.header import ROLLBACK, Header, Layer, layer_doubts
from llamaherd.memory.compute import compute_bytes, draft_compute_bytes
from llamaherd.memory.placement import HOST, KV_TYPES, Layout, Placement, lay_out, row_bytes, shared_bytes


@dataclass(frozen=True)
class DraftUse:
    """What speculation by a model's own head adds, in bytes.

    `state` is the copies of the recurrent state beyond one per slot: the engine keeps one for each drafted token, so
    that it can go back.
    """

    weights: int = 0
    kv: int = 0
    state: int = 0
    compute: int = 0

    @property
    def total(self) -> int:
        """All parts."""
        return self.weights + self.kv + self.state + self.compute


@dataclass(frozen=True)
class Use:
    """What one GPU, or the host's RAM, holds, in bytes."""

    weights: int = 0
    kv: int = 0
    state: int = 0
    compute: int = 0
    draft: DraftUse = DraftUse()

    @property
    def total(self) -> int:
        """All parts, the draft's included."""
        return self.weights + self.context + self.compute + self.draft.weights + self.draft.kv + self.draft.compute

    @property
    def context(self) -> int:
        """The engine's `context`: KV and every copy of the state, without the draft's own KV."""
        return self.kv + self.state + self.draft.state


@dataclass(frozen=True)
class Memory:
    """What each GPU and the host hold. `doubts` are sentences on what could not be known."""

    devices: tuple[Use, ...]
    host: Use
    doubts: tuple[str, ...] = ()

    @property
    def everywhere(self) -> Use:
        """All GPUs and the host together."""
        total = self.host
        for use in self.devices:
            total = add_memory(total, use)
        return total


def add_memory(one: Use, other: Use) -> Use:
    """Return the sum, part by part."""
    return Use(
        weights=one.weights + other.weights,
        kv=one.kv + other.kv,
        state=one.state + other.state,
        compute=one.compute + other.compute,
        draft=DraftUse(
            weights=one.draft.weights + other.draft.weights,
            kv=one.draft.kv + other.draft.kv,
            state=one.draft.state + other.draft.state,
            compute=one.draft.compute + other.draft.compute,
        ),
    )


_F32 = 4


def kv_bytes(layout: Layout) -> Counter[int]:
    """Return the bytes of the KV cache on each device."""
    return _kv(layout, layout.trunk, (layout.placement.type_k, layout.placement.type_v))


def draft_kv_bytes(layout: Layout) -> Counter[int]:
    """Return the bytes of the prediction heads' KV: a separate context with its own types (speculative.cpp:2599-2650).

    ik_llama.cpp keeps their KV in the model's context too (llama.cpp:737, 853).
    """
    placement = layout.placement
    if not placement.mtp:
        return Counter()
    size = _kv(layout, layout.heads, (placement.draft_type_k, placement.draft_type_v))
    if placement.does.heads_also_in_cache:
        size += _kv(layout, layout.heads, (placement.type_k, placement.type_v))
    return size


def state_bytes(layout: Layout) -> tuple[Counter[int], Counter[int]]:
    """Return the bytes of the recurrent state on each device: a copy for each slot, and the copies that a draft needs.

    llama-memory-recurrent.cpp:101-103.
    """
    placement = layout.placement
    own: Counter[int] = Counter()
    for layer in layout.trunk:
        if layer.state:
            device = HOST if placement.no_kv_offload else layout.places[layer.index]
            for part, size in shared_bytes(device, layer.state * _F32 * placement.parallel, placement):
                own[part] += size
    keeps = placement.does.copies_state_to_draft and layout.header.architecture in ROLLBACK
    more = Counter({part: size * placement.mtp for part, size in own.items()} if keeps else {})
    return own, more


def _kv(layout: Layout, which: tuple[Layer, ...], types: tuple[str, str]) -> Counter[int]:
    placement = layout.placement
    size: Counter[int] = Counter()
    kept = [layer for layer in which if layer.keys and (layer.cached or placement.does.caches_encoders)]
    # Without flash attention V lies across, and all layers get the widest (llama-kv-cache.cpp:158, 210).
    widest = max((layer.values for layer in kept), default=0)
    for layer in kept:
        device = HOST if placement.no_kv_offload else layout.places[layer.index]
        values = layer.values if placement.flash_attention else widest
        for part, bytes_ in shared_bytes(
            device, placement.cache_bytes(layer.keys, values, layer.window, types), placement
        ):
            size[part] += bytes_
    return size


_MOST_LAYERS = 512
"""LLAMA_MAX_LAYERS (llama-hparams.h)."""

_MOST = 2**31
"""No size in a header is as large: engines read 32 bits."""

_SIZES = (
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.key_length_swa",
    "attention.shared_kv_layers",
    "attention.value_length",
    "attention.value_length_swa",
    "block_count",
    "embedding_length",
    "embedding_length_per_layer_input",
    "expert_count",
    "expert_feed_forward_length",
    "expert_used_count",
    "feed_forward_length",
    "nextn_predict_layers",
    "shortconv.l_cache",
    "ssm.conv_kernel",
    "ssm.group_count",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.time_step_rank",
)
"""What the arithmetic reads of a header."""


def estimate(header: Header, placement: Placement) -> Memory:
    """Return what each GPU and the host will hold, in bytes.

    Raises ValueError, with a sentence, for what no engine takes: an override that is no regular expression or to a
    GPU that is not there, a type of cache that is not known, nothing as a context or batch, too many layers, sizes in
    the header below 0 or beyond 32 bits.
    """
    _check(header, placement)
    layout = lay_out(header, placement)
    model, heads = Counter[int](), Counter[int]()
    for tensor in layout.tensors:
        for part, size in shared_bytes(tensor.device, tensor.size, placement):
            (heads if tensor.head else model)[part] += size * tensor.count
    caches, drafts = kv_bytes(layout), draft_kv_bytes(layout)
    states, copies = state_bytes(layout)
    computing, drafting = compute_bytes(layout), draft_compute_bytes(layout)

    def use(device: int) -> Use:
        return Use(
            weights=model[device],
            kv=caches[device],
            state=states[device],
            compute=computing.get(device, 0),
            draft=DraftUse(
                weights=heads[device], kv=drafts[device], state=copies[device], compute=drafting.get(device, 0)
            ),
        )

    return Memory(
        devices=tuple(use(device) for device in range(placement.devices)),
        host=use(HOST),
        doubts=tuple(_doubts(header, placement)),
    )


def _check_header(header: Header) -> None:
    for key in _SIZES:
        value = header.parameters.get(key, 0)
        each = value if isinstance(value, tuple) else (value,)
        if wrong := next((size for size in each if isinstance(size, int | float) and not 0 <= size < _MOST), None):
            raise ValueError(f"the header contains {wrong:.3g} for `{key}`, which no engine takes")
    if header.number("attention.shared_kv_layers") > header.layers:
        raise ValueError(f"by the header, more than its {header.layers} layers read the cache of others")


def _check(header: Header, placement: Placement) -> None:
    _check_header(header)
    if header.layers > _MOST_LAYERS or header.heads > header.layers:
        raise ValueError(f"the header contains {header.layers} layers with {header.heads} prediction heads among them")
    for name in ("context", "parallel", "batch", "ubatch"):
        if getattr(placement, name) < 1:
            raise ValueError(f"{name} is {getattr(placement, name)}, and must be 1 at least")
    # None of its slots may be without a cell.
    most = placement.does.most_slots or placement.context
    if placement.parallel > most:
        raise ValueError(f"parallel is {placement.parallel}, and {placement.engine} ends with more than {most} slots")
    for override, target in placement.patterns:
        named = f"the override `{override.pattern}`"
        if override.fault:
            raise ValueError(f"{named} is no regular expression: {override.fault}")
        if override.regex is None:
            raise ValueError(f"{named} repeats so much that trying it may take for ever")
        if isinstance(target, int) and not HOST <= target < max(placement.devices, 1):
            raise ValueError(f"{named} is to GPU {target} of {placement.devices}")
    if not all(0 <= part < math.inf for part in placement.tensor_split or ()):
        raise ValueError("a part of the tensor split is below 0, or no number")
    if placement.devices and not 0 <= placement.main_device < placement.devices:
        raise ValueError(f"the main GPU is {placement.main_device} of {placement.devices}")
    for type_ in {placement.type_k, placement.type_v, placement.draft_type_k, placement.draft_type_v}:
        if type_ not in KV_TYPES:
            raise ValueError(f"`{type_}` is no type of a cache; there are {', '.join(KV_TYPES)}")


def _doubts(header: Header, placement: Placement) -> Iterator[str]:
    yield from layer_doubts(header)
    if placement.devices and placement.split in ("row", "tensor", "graph"):
        yield f"split `{placement.split}` cuts matrices through; they are taken to be shared in proportion"
    if (
        placement.devices > 1
        and placement.split != "none"
        and not (any(placement.tensor_split or ()) or placement.free)
    ):
        yield "no split and no free memory are known; the GPUs are taken to have the same free"
    for argument in placement.uncounted:
        yield f"what {argument} takes is not counted"
    if placement.mtp and not header.heads:
        yield "the model has no prediction heads of its own to draft with"
    if placement.mtp and not placement.does.copies_state_to_draft and header.architecture in ROLLBACK:
        yield f"{placement.engine} keeps checkpoints of the recurrent state while drafting; they are not counted"
    widths = {width for layer in header.each_layer for width in (layer.keys, layer.values)}
    for type_ in {placement.type_k, placement.type_v}:
        if any(width and row_bytes(type_, width) * 32 != row_bytes(type_, width * 32) for width in widths):
            yield f"heads are no whole blocks of `{type_}`; the engine will refuse it"
