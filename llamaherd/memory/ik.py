"""How ik_llama.cpp cuts a model into GPUs: by the bytes of its layers, where llama.cpp counts layers.

Facts: ik_llama.cpp 67268c8fd, src/llama.cpp:2059-2260 (get_layer_sizes), 2340-2470 (llm_load_tensors).
"""

from __future__ import annotations

from collections import defaultdict
from math import floor

from llamaherd.gguf.header import Header, spread, tensor_bytes
from llamaherd.memory.layers import Layer, layers
from llamaherd.memory.placement import HOST, Placement, single

_F32 = 4
_MARGIN = 1024 * 1024**2
"""Bytes of each GPU that are not counted as free (k_default_mem_margin)."""


def layer_devices(header: Header, placement: Placement) -> tuple[int, ...]:
    """The device of every layer, the output layer being the last."""
    slots = header.layers + 1
    wanted = slots if placement.gpu_layers is None else max(0, min(placement.gpu_layers, slots))
    if placement.devices < 2 or placement.split == "none":
        if not placement.devices or wanted == slots:
            return placement.layer_devices(header.layers)
        return (HOST,) * (header.layers - wanted) + (placement.main_device,) * wanted + (HOST,)
    start = max(0, header.layers - wanted)
    sizes, compute = _sizes(header, placement)
    shares = _shares(placement, sum(sizes), compute)
    last = slots if wanted == slots else header.layers
    whole = compute * placement.devices + sum(sizes[start:last])
    places = [placement.devices - 1] * slots
    loaded, layer = 0.0, start
    edge = 0.0
    for device, share in enumerate(shares):
        loaded += compute
        edge += share
        until = edge * whole
        while layer < last and loaded + sizes[layer] <= until:
            places[layer] = device
            loaded += sizes[layer]
            layer += 1
        if layer < last and loaded + sizes[layer] - until < until - loaded:
            places[layer] = device
            loaded += sizes[layer]
            layer += 1
    if last < slots:
        places[-1] = HOST
    return tuple(HOST if index < start else place for index, place in enumerate(places))


def spread_experts(header: Header, placement: Placement, count: int) -> tuple[int, ...]:
    """The layers whose experts `--n-cpu-moe` sends to the CPU: the first ones, or of several GPUs' layers the last
    ones of each GPU, as many as its part of all layers (src/llama-load-tensors.cpp:233-309)."""
    if placement.split != "layer" or count >= header.layers or placement.devices < 2:
        return tuple(range(min(count, header.layers)))
    gpus = [placement.devices - 1 if gpu == HOST else gpu for gpu in layer_devices(header, placement)[:-1]]
    counts = [gpus.count(gpu) for gpu in range(placement.devices)]
    wanted = [held * count / header.layers for held in counts]
    taken = [floor(single(single(held / header.layers) * count) + 0.5) for held in counts]
    while sum(taken) > count:
        gpu = max((each for each in range(len(taken)) if taken[each]), key=lambda each: taken[each] - wanted[each])
        taken[gpu] -= 1
    while sum(taken) < count:
        open_ = (each for each in range(len(taken)) if taken[each] < counts[each])
        gpu = min(open_, key=lambda each: taken[each] - wanted[each])
        taken[gpu] += 1
    places = [[layer for layer, here in enumerate(gpus) if here == gpu] for gpu in range(placement.devices)]
    return tuple(sorted(layer for own, number in zip(places, taken, strict=True) for layer in own[len(own) - number :]))


def _shares(placement: Placement, required: float, compute: float) -> tuple[float, ...]:
    """The GPUs' shares: as told, or by free memory, less compute where it is short."""
    if placement.tensor_split or not placement.free:
        return placement.shares
    free = [max(0, each - _MARGIN) for each in placement.free]
    if required > sum(max(0.0, each - compute) for each in free):
        free = [max(0, round(each - compute)) for each in free]
    whole = sum(free)
    return tuple(each / whole for each in free) if whole else placement.shares


def _sizes(header: Header, placement: Placement) -> tuple[list[float], float]:
    """Bytes of each layer with its cache, the output's last; and the most that computing one layer takes."""
    every = [layer for layer in layers(header) if placement.mtp or not layer.head]
    sizes: defaultdict[int, float] = defaultdict(float)
    rows: defaultdict[tuple[int, str], int] = defaultdict(int)
    used = header.number("expert_used_count", 1)
    outside = {group.name: tensor_bytes(group.type, group.shape) for group in header.tensors if group.layers is None}
    for group in header.tensors:
        size = tensor_bytes(group.type, group.shape)
        routed = "_exps." in group.name
        wide = group.name.startswith("ffn_") and len(group.shape) > 1 and "gate_inp" not in group.name
        kind = "routed" if routed else "shared" if "shexp" in group.name else "dense"
        for layer in spread(group.layers) if group.layers else ():
            sizes[layer] += size
            rows[layer, kind] += group.shape[1] * (used if routed else 1) if wide else 0
    tokens = placement.tokens * _F32
    compute = tokens * (max(rows.values(), default=0) + 2 * header.number("embedding_length"))
    loaded = {layer.index: sizes[layer.index] + _cache(layer, placement) for layer in every}
    output = outside.get("output.weight", outside.get("token_embd.weight", 0))
    loaded[header.layers] = output + max(0, header.vocabulary * tokens - compute)
    return [loaded.get(index, 0.0) for index in range(header.layers + 1)], compute


def _cache(layer: Layer, placement: Placement) -> int:
    if layer.state:
        return layer.state * _F32 * placement.parallel
    return placement.cache_bytes(layer.keys, layer.values, layer.window, (placement.type_k, placement.type_v))
