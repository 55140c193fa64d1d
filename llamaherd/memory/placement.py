"""`Placement`: a server's arguments that decide on memory, and which layer lands on which GPU.

Facts: llama.cpp b11434; ik_llama.cpp 67268c8fd where it differs.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal

from llamaherd.engines import SIZED, USUAL, Arithmetic
from llamaherd.engines.flags.overrides import Override
from llamaherd.gguf.header import BLOCKS

Split = Literal["layer", "none", "row", "tensor", "graph"]

Layout = Literal["amx", "vector"]
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
    layouts: tuple[Layout, ...] = ()
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
