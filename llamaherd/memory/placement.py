"""`Placement`: a server's arguments that decide on memory, and the device of each layer, expert and tensor.

Facts: llama.cpp b11434; ik_llama.cpp 67268c8fd where it differs."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import floor
from typing import Literal

from llamaherd.engines import SIZED, USUAL, Arithmetic
from llamaherd.engines.flags.overrides import Override
from llamaherd.gguf.header import BLOCKS, WITHOUT_OUTPUT, Header, Layer, spread, tensor_bytes

Split = Literal["layer", "none", "row", "tensor", "graph"]

MatrixLayout = Literal["amx", "vector"]
"""Instructions of a processor that need matrices in a layout of their own."""

HOST = -1
"""The device number of the RAM."""

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "q6_0")
"""Types of a cache; q6_0 is ik_llama.cpp's own."""

_CELLS = 256
"""Contexts are padded to this many cells (llama-context.cpp:291, llama-kv-cache-iswa.cpp:71)."""


CACHE_RAM, CHECKPOINTS = 8192 << 20, 32
"""The defaults of both engines: bytes of saved prompts, and checkpoints of each slot (llama.cpp b11434,
common/common.h:635-638; ik_llama.cpp 67268c8fd, common/common.h:452-455)."""


@dataclass(frozen=True)
class Placement:
    """One server's arguments, as far as they decide on memory.

    `devices` is the number of its GPUs; 0 is a server on the CPU. `free` are their free bytes: engines split by them if
    `tensor_split` is absent; without both, the GPUs are assumed to be equal. `overrides` are regular expressions of C++
    on tensor names, with a GPU's number or `CPU`; the first match counts. `draft_…` belong to the model that drafts.
    `uncounted` are arguments whose memory is unknown. `cache_ram` is the most bytes of prompts that are saved in RAM,
    None for no limit; `checkpoints` is the number of checkpoints of each slot. The CPU's matrices are copied to each of
    `layouts`. `mtp` is the number of tokens that the model's own head drafts, 0 for none. `outputs` is the number of
    reserved rows of logits; None is that of a server. With `embeddings`, each token of a batch is an output.
    """

    engine: str = USUAL
    context: int = 4096
    parallel: int = 1
    kv_unified: bool = False
    type_k: str = "f16"
    type_v: str = "f16"
    batch: int = 2048
    ubatch: int = 512
    flash_attention: bool = True
    gpu_layers: int | None = None
    devices: int = 1
    free: tuple[int, ...] = ()
    tensor_split: tuple[float, ...] | None = None
    split: Split = "layer"
    main_device: int = 0
    overrides: tuple[tuple[str, str | int], ...] = ()
    mtp: int = 0
    draft_type_k: str = "f16"
    draft_type_v: str = "f16"
    draft_gpu_layers: int | None = None
    draft_overrides: tuple[tuple[str, str | int], ...] = ()
    projector_in_ram: bool = False
    uncounted: tuple[str, ...] = ()
    cache_ram: int | None = CACHE_RAM
    checkpoints: int = CHECKPOINTS
    no_kv_offload: bool = False
    op_offload: bool = True
    mmap: bool = True
    layouts: tuple[MatrixLayout, ...] = ()
    swa_full: bool = False
    outputs: int | None = None
    embeddings: bool = False

    @property
    def does(self) -> Arithmetic:
        """The behaviour of its engine on which memory depends."""
        return SIZED[self.engine]

    @property
    def streams(self) -> int:
        """The number of sequences with cells of their own (llama-kv-cache.cpp:84). In ik_llama.cpp all share them."""
        return 1 if self.kv_unified or self.does.slots_share_cells else self.parallel

    @property
    def cells(self) -> int:
        """Cells of one stream, for layers that attend to the whole context (llama-context.cpp:291-308)."""
        return pad(pad(self.context) // self.streams)

    def window_cells(self, window: int) -> int:
        """Return the cells of one stream of layers with this window (llama-kv-cache-iswa.cpp:71); ik keeps all."""
        if not window or self.swa_full or not self.does.windows_cut_cache:
            return self.cells
        sequences = self.parallel if self.kv_unified else 1
        return pad(min(self.cells, window * sequences + self.tokens))

    def cache_bytes(self, keys: int, values: int, window: int, types: tuple[str, str]) -> int:
        """Return the bytes of one layer's keys and values, numbers per token both, over all cells and sequences."""
        row = row_bytes(types[0], keys) + row_bytes(types[1], values)
        return row * self.window_cells(window) * self.streams

    @property
    def tokens(self) -> int:
        """The most tokens that one graph computes (llama-context.cpp:248-250)."""
        return min(self.ubatch, self.batch, self.cells * self.streams)

    @property
    def rows(self) -> int:
        """Rows of logits that one graph computes: of a server, one and one for each drafted token, per slot.

        server-context.cpp:1115, speculative.cpp:2666-2675.
        """
        if self.embeddings:  # n_outputs_max is the batch (server-context.cpp:42-46)
            return self.tokens
        wanted = self.outputs if self.outputs is not None else self.parallel * (1 + self.mtp)
        return min(self.tokens, wanted)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The share of the layers that each GPU gets; the sum is 1."""
        if not self.devices:
            return ()
        if self.split == "none":
            return tuple(1.0 if device == self.main_device else 0.0 for device in range(self.devices))
        parts = self.tensor_split or ()
        if not any(parts):
            parts = self.free if any(self.free) else (1,) * self.devices
        parts = (*parts, *(0,) * self.devices)[: self.devices]
        whole = sum(parts)
        return tuple(part / whole for part in parts)

    @property
    def first_gpu(self) -> int:
        """The GPU that computes with what is in RAM, for large batches."""
        return self.main_device if self.split == "none" else 0

    @property
    def pipelined(self) -> bool:
        """Return whether GPUs work on several batches at once, which multiplies buffers (llama-context.cpp:432-463).

        This requires that all layers are on GPUs: see `offloads_all`.
        """
        several = self.devices > 1 and self.split == "layer" and not self.no_kv_offload and not self.overrides
        return several and self.does.pipelines

    def offloads_all(self, layers: int) -> bool:
        """Return whether the output and all of a model's `layers` (prediction heads included) are on GPUs."""
        return self.devices > 0 and (self.gpu_layers is None or self.gpu_layers > layers)

    def layer_devices(self, layers: int) -> tuple[int, ...]:
        """Return the device of every layer, the output layer being the last (llama-model.cpp:1558-1616).

        `gpu_layers` counts the output layer, which goes first. The rest are cut by the cumulative shares, in 32-bit
        arithmetic as the engine does it.
        """
        slots = layers + 1
        wanted = slots if self.gpu_layers is None else max(0, min(self.gpu_layers, slots))
        if not self.devices or not wanted:
            return (HOST,) * slots
        edges = [single(edge) for edge in accumulate(self.shares)]
        edges = [single(edge / edges[-1]) for edge in edges]
        on_gpus = [
            min(bisect_right(edges, single(index / wanted)), self.devices - 1) if self.split != "none" else None
            for index in range(wanted)
        ]
        return (HOST,) * (slots - wanted) + tuple(self.main_device if gpu is None else gpu for gpu in on_gpus)

    def override(self, tensor: str) -> int | None:
        """Return the device to which the overrides move a tensor; None if no override matches."""
        for override, target in self.patterns:
            if (matcher := override.regex) and matcher.search(tensor):
                return HOST if isinstance(target, str) else target
        return None

    @cached_property
    def patterns(self) -> tuple[tuple[Override, str | int], ...]:
        """The overrides with compiled patterns."""
        return tuple((Override(pattern, "CPU"), target) for pattern, target in self.overrides)


def pad(cells: int) -> int:
    """Return the cells rounded up as the engines do."""
    return -(-cells // _CELLS) * _CELLS


def row_bytes(type_: str, elements: int) -> int:
    """Return the bytes of a row of the cache. Raises KeyError for an unknown type."""
    size, block = BLOCKS[type_.upper()]
    return -(-elements // block) * size


def single(number: float) -> float:
    """Return the nearest number of 32 bits, with which engines compute."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def expert_layers_on_cpu(header: Header, share: str | int) -> tuple[int, ...]:
    """Return the layers whose experts go to the CPU: the first ones, as `--n-cpu-moe` takes them (common/arg.cpp).

    `share` is a number of layers or a part of the model's layers with experts, `75%`, rounded to whole layers.
    Raises ValueError, with a sentence.
    """
    known = header.expert_layers
    if not known:
        raise ValueError("the model has no routed experts")
    match = re.fullmatch(r"\s*(\d{1,4}(?:\.\d{1,4})?)\s*(%?)\s*", str(share), re.ASCII)
    if not match or (not match[2] and "." in match[1]):
        raise ValueError(f"`{share}` is neither a number of layers nor a part like 75%")
    wanted = len(known) * float(match[1]) / 100 if match[2] else int(match[1])
    if wanted > len(known):
        raise ValueError(f"`{share}` is more than the {len(known)} layers with experts that the model has")
    return known[: int(wanted + 0.5)]


def experts_pattern(header: Header, layers: Iterable[int]) -> str:
    r"""Return the pattern that matches the names of these layers' experts only.

    Like `blk\.(?:[0-9]|1[0-7])\.ffn_(?:down|gate|up)_exps\.weight`. The engine searches each tensor's name with it
    (ECMAScript, llama-model-loader.cpp:1237) and cuts its arguments at `,`, so that there is none.
    Raises ValueError if a layer has no experts, or if a tensor is missed or hit by mistake.
    """
    wanted = sorted(set(layers))
    experts = {tensor.name: tensor.layer for tensor in header.each if tensor.is_expert}
    bare = [layer for layer in wanted if layer not in experts.values()]
    if bare or not wanted:
        raise ValueError(f"layer {bare[0]} has no routed experts" if bare else "no layers are named")
    names = {name.split(".", 2)[2] for name, layer in experts.items() if layer in wanted}
    found = rf"blk\.(?:{_numbers(wanted)})\.{_names(names)}"
    hit = {tensor.name for tensor in header.each if re.search(found, tensor.name)}
    meant = {name for name, layer in experts.items() if layer in wanted}
    if hit != meant:
        raise ValueError(f"`{found}` does not match exactly the experts meant: {', '.join(sorted(hit ^ meant)[:3])}")
    return found


def _names(names: Iterable[str]) -> str:
    r"""Return a pattern for tensors' names within their layer: `ffn_(?:down|gate|up)_exps\.weight`."""
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        kind, found, rest = name.removeprefix("ffn_").partition(
            next(end for end in ("_exps", "_chexps") if end in name)
        )
        parts[found + rest].append(kind)
    return _either([rf"ffn_{_either(kinds)}{re.escape(rest)}" for rest, kinds in parts.items()])


def _either(ways: list[str]) -> str:
    """Return a pattern for one of several, or for the only one."""
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _numbers(numbers: Sequence[int]) -> str:
    """Return numbers as alternatives, tens with the same last digits together: `[0-9]|[12][0-9]|3[0-5]`."""
    units: defaultdict[str, list[int]] = defaultdict(list)
    for number in numbers:
        units[str(number)[:-1]].append(number % 10)
    tens: defaultdict[str, list[str]] = defaultdict(list)
    for front, digits in units.items():
        tens[_digits(digits)].append(front)
    found = []
    for last, fronts in tens.items():
        single = [int(front) for front in fronts if len(front) == 1]
        found += [front + last for front in fronts if len(front) != 1]
        found += [_digits(single) + last] if single else []
    return "|".join(found)


def _digits(digits: list[int]) -> str:
    """Return digits as a class: `[0-5]`, `[137]`, or one alone."""
    runs: list[list[int]] = []
    for digit in sorted(digits):
        if runs and digit == runs[-1][1] + 1:
            runs[-1][1] = digit
        else:
            runs.append([digit, digit])
    inside = "".join(
        str(first) if first == last else f"{first}{last}" if last == first + 1 else f"{first}-{last}"
        for first, last in runs
    )
    return inside if len(inside) == 1 else f"[{inside}]"


INPUT = ("token_embd.", "position_embd.", "token_types.", "per_layer_token_embd.")
"""The beginnings of the names of lookup tables, which stay in RAM."""

_FIRST_LAYER = ("per_layer_model_proj.", "per_layer_proj_norm.")
"""Tensors outside of layers that are where the first layer is (gemma4.cpp:60)."""

_OUTPUT_FIRST = {"gemma3n", "gemma4"}
"""They make the output's copy before the embeddings, so that it is never recognized as a copy (gemma4.cpp:53)."""

LayerPlaces = tuple[int, ...]
"""The device of every layer, the output layer being the last."""


@dataclass(frozen=True, slots=True)
class PlacedTensors:
    """Equal tensors of `count` layers on a device, of `size` bytes each; or one tensor outside of the layers.

    `head`: only a draft needs them; `moved`: large batches may copy them to a GPU. `name` is their name in a layer.
    """

    device: int
    size: int
    head: bool = False
    moved: bool = False
    name: str = ""
    count: int = 1


def placed_tensors(header: Header, placement: Placement, places: LayerPlaces) -> Iterator[PlacedTensors]:
    """Yield all tensors that are loaded; a prediction head's only for a draft (src/models/qwen35moe.cpp:41-45).

    Raises KeyError for a type of tensor that is not known.
    """
    usual_counts: dict[str, Counter[tuple[int, bool]]] = {}
    for group in header.tensors:
        size = tensor_bytes(group.type, group.shape)
        matrix = len(group.shape) > 1
        if group.layers is None:
            head = group.name.startswith("nextn.")
            usual = HOST if group.name.startswith(INPUT) else places[-1]
            usual = places[0] if group.name.startswith(_FIRST_LAYER) else usual
            if placement.mtp or not head:
                yield PlacedTensors(_device(placement, group.name, usual), size, head)
            continue
        # Without overrides, all groups of the same layers are on the same devices.
        if placement.overrides or group.layers not in usual_counts:
            usual_counts[group.layers] = Counter(_devices(header, placement, places, group.name, group.layers))
        for (device, head), count in usual_counts[group.layers].items():
            yield PlacedTensors(device, size, head, matrix, group.name, count)
    yield _second_embedding(header, placement, places)


def _devices(
    header: Header, placement: Placement, places: LayerPlaces, name: str, layers: str
) -> Iterator[tuple[int, bool]]:
    """Yield the device of each loaded tensor of this name, and whether it belongs to a prediction head."""
    for layer in spread(layers):
        head = layer >= header.trunk
        if placement.mtp or not head:
            usual = places[layer] if layer < len(places) else HOST
            yield _device(placement, f"blk.{layer}.{name}", usual), head


def shared_bytes(device: int, size: int, placement: Placement) -> Iterator[tuple[int, int]]:
    """Yield the bytes as the GPUs share them: whole on one, or in parts if matrices are cut through."""
    if device == HOST or placement.split in ("layer", "none"):
        yield device, size
        return
    for gpu, share in enumerate(placement.shares):
        yield gpu, round(size * share)


def _device(placement: Placement, name: str, usual: int) -> int:
    """Return the device of a tensor: an override's, else the usual one."""
    device = placement.override(name) if placement.overrides else None
    if device is None:
        return usual
    return device if placement.devices else HOST


def _second_embedding(header: Header, placement: Placement, places: LayerPlaces) -> PlacedTensors:
    """Return the embeddings' copy that replaces an output matrix that the file lacks.

    In RAM the two are one tensor (TENSOR_DUPLICATED, llama-model-loader.cpp:1353), or two views of one mapped file; on
    a GPU to which an override sends both, llama.cpp has one tensor too, ik_llama.cpp two.
    """
    outside = {group.name: group for group in header.tensors if group.layers is None}
    lacks = header.architecture in WITHOUT_OUTPUT
    if lacks or "output.weight" in outside or "token_embd.weight" not in outside:
        return PlacedTensors(places[-1], 0)
    device = _device(placement, "token_embd.weight", places[-1])
    both, one = placement.override("token_embd.weight") is not None, header.architecture not in _OUTPUT_FIRST
    same = (placement.mmap or one) if device == HOST else (both and one and placement.does.shares_tied_embeddings)
    embedding = outside["token_embd.weight"]
    return PlacedTensors(device, 0 if same else tensor_bytes(embedding.type, embedding.shape))


_F32 = 4
_MARGIN = 1024 * 1024**2
"""Bytes of each GPU that are not counted as free (k_default_mem_margin)."""


def ik_layer_devices(header: Header, placement: Placement) -> tuple[int, ...]:
    """Return the device of every layer, the output layer being the last."""
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


def spread_ik_experts(header: Header, placement: Placement, count: int) -> tuple[int, ...]:
    """Return the layers whose experts `--n-cpu-moe` moves to the CPU (src/llama-load-tensors.cpp:233-309).

    They are the first layers, or with several GPUs the last layers of each GPU, by its part of all layers.
    """
    if placement.split != "layer" or count >= header.layers or placement.devices < 2:
        return tuple(range(min(count, header.layers)))
    gpus = [placement.devices - 1 if gpu == HOST else gpu for gpu in ik_layer_devices(header, placement)[:-1]]
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
    """Return the GPUs' shares: as declared, or by free memory, without compute if it is short."""
    if placement.tensor_split or not placement.free:
        return placement.shares
    free = [max(0, each - _MARGIN) for each in placement.free]
    if required > sum(max(0.0, each - compute) for each in free):
        free = [max(0, round(each - compute)) for each in free]
    whole = sum(free)
    return tuple(each / whole for each in free) if whole else placement.shares


def _sizes(header: Header, placement: Placement) -> tuple[list[float], float]:
    """Return the bytes of each layer with its cache, the output's last; and the most bytes to compute one layer."""
    every = [layer for layer in header.each_layer if placement.mtp or not layer.head]
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


@dataclass(frozen=True)
class Layout:
    """What the parts of an estimate are computed from. `trunk` are the layers that every token passes."""

    header: Header
    placement: Placement
    places: LayerPlaces
    trunk: tuple[Layer, ...]
    heads: tuple[Layer, ...]
    tensors: tuple[PlacedTensors, ...]


def lay_out(header: Header, placement: Placement) -> Layout:
    """Return the model as the engine lays it out. Raises KeyError as `placed_tensors` does."""
    places = places_of(header, placement)
    every = header.each_layer
    return Layout(
        header,
        placement,
        places,
        trunk=tuple(layer for layer in every if not layer.head),
        heads=tuple(layer for layer in every if layer.head),
        tensors=tuple(placed_tensors(header, placement, places)),
    )


def places_of(header: Header, placement: Placement) -> LayerPlaces:
    """Return the device of every layer, the output layer being the last."""
    if placement.does.cuts_by_bytes:
        return ik_layer_devices(header, placement)
    return placement.layer_devices(header.layers)
