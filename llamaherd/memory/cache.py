"""What a server keeps between tokens: keys and values, and recurrent state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from llamaherd.gguf.header import Header
from llamaherd.memory.layers import ROLLBACK, Layer, layers
from llamaherd.memory.placement import HOST, Placement, row_bytes
from llamaherd.memory.weights import Places, shared

_F32 = 4


def kv(header: Header, placement: Placement, places: Places) -> Counter[int]:
    """Bytes of the KV cache on each device. Raises KeyError for a cache type that is not known."""
    trunk = [layer for layer in layers(header) if not layer.head]
    return _kv(trunk, placement, places, (placement.type_k, placement.type_v))


def draft_kv(header: Header, placement: Placement, places: Places) -> Counter[int]:
    """Bytes of the prediction heads' KV: a context of its own (speculative.cpp:2599-2650), with types of its own.

    ik_llama.cpp keeps their KV in the model's context too (llama.cpp:737, 853).
    """
    if not placement.mtp:
        return Counter()
    heads = [layer for layer in layers(header) if layer.head]
    size = _kv(heads, placement, places, (placement.draft_type_k, placement.draft_type_v))
    if placement.engine == "ik_llama.cpp":
        size += _kv(heads, placement, places, (placement.type_k, placement.type_v))
    return size


def state(header: Header, placement: Placement, places: Places) -> tuple[Counter[int], Counter[int]]:
    """Bytes of the recurrent state on each device: a copy for each slot, and the further copies that a draft needs.

    llama-memory-recurrent.cpp:101-103.
    """
    own: Counter[int] = Counter()
    for layer in layers(header):
        if layer.state:
            device = HOST if placement.no_kv_offload else places[layer.index]
            for part, size in shared(device, layer.state * _F32 * placement.parallel, placement):
                own[part] += size
    keeps = placement.engine == "llama.cpp" and header.architecture in ROLLBACK
    more = Counter({part: size * placement.mtp for part, size in own.items()} if keeps else {})
    return own, more


def layer_bytes(layer: Layer, placement: Placement, types: tuple[str, str], values: int) -> int:
    """Bytes of one layer's KV over all streams; `values` are the numbers per token in V."""
    row = row_bytes(types[0], layer.keys) + row_bytes(types[1], values)
    return row * placement.window_cells(layer.window) * placement.streams


def _kv(which: Iterable[Layer], placement: Placement, places: Places, types: tuple[str, str]) -> Counter[int]:
    size: Counter[int] = Counter()
    kept = [layer for layer in which if layer.keys]
    # Without flash attention V lies across, and all layers get the widest (llama-kv-cache.cpp:158, 210).
    widest = max((layer.values for layer in kept), default=0)
    for layer in kept:
        device = HOST if placement.no_kv_offload else places[layer.index]
        values = layer.values if placement.flash_attention else widest
        for part, bytes_ in shared(device, layer_bytes(layer, placement, types, values), placement):
            size[part] += bytes_
    return size
