"""What a server keeps between tokens: keys and values, and recurrent state."""

from __future__ import annotations

from collections import Counter

from llamaherd.memory.laid import Laid
from llamaherd.memory.layers import ROLLBACK, Layer
from llamaherd.memory.placement import HOST
from llamaherd.memory.weights import shared

_F32 = 4


def kv(laid: Laid) -> Counter[int]:
    """Bytes of the KV cache on each device."""
    return _kv(laid, laid.trunk, (laid.placement.type_k, laid.placement.type_v))


def draft_kv(laid: Laid) -> Counter[int]:
    """Bytes of the prediction heads' KV: a context of its own (speculative.cpp:2599-2650), with types of its own.

    ik_llama.cpp keeps their KV in the model's context too (llama.cpp:737, 853).
    """
    placement = laid.placement
    if not placement.mtp:
        return Counter()
    size = _kv(laid, laid.heads, (placement.draft_type_k, placement.draft_type_v))
    if placement.does.heads_also_in_cache:
        size += _kv(laid, laid.heads, (placement.type_k, placement.type_v))
    return size


def state(laid: Laid) -> tuple[Counter[int], Counter[int]]:
    """Bytes of the recurrent state on each device: a copy for each slot, and the further copies that a draft needs.

    llama-memory-recurrent.cpp:101-103.
    """
    placement = laid.placement
    own: Counter[int] = Counter()
    for layer in laid.trunk:
        if layer.state:
            device = HOST if placement.no_kv_offload else laid.places[layer.index]
            for part, size in shared(device, layer.state * _F32 * placement.parallel, placement):
                own[part] += size
    keeps = placement.does.copies_state_to_draft and laid.header.architecture in ROLLBACK
    more = Counter({part: size * placement.mtp for part, size in own.items()} if keeps else {})
    return own, more


def _kv(laid: Laid, which: tuple[Layer, ...], types: tuple[str, str]) -> Counter[int]:
    placement = laid.placement
    size: Counter[int] = Counter()
    kept = [layer for layer in which if layer.keys and (layer.cached or placement.does.caches_encoders)]
    # Without flash attention V lies across, and all layers get the widest (llama-kv-cache.cpp:158, 210).
    widest = max((layer.values for layer in kept), default=0)
    for layer in kept:
        device = HOST if placement.no_kv_offload else laid.places[layer.index]
        values = layer.values if placement.flash_attention else widest
        for part, bytes_ in shared(device, placement.cache_bytes(layer.keys, values, layer.window, types), placement):
            size[part] += bytes_
    return size
