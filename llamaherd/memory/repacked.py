"""Matrices that llama.cpp holds in another layout for the CPU, beside the mapped file that they came from.

A server without a GPU asks, matrix by matrix, which of its processor's buffers takes it: AMX's first, then that of
other vector instructions (src/llama-model.cpp:1080, make_cpu_buft_list). What a buffer takes is copied into it; the
file stays mapped from the first to the last tensor that is used as it is, which is nearly all of it. With a GPU,
CUDA's host buffer is asked before them, and takes all.

Facts: llama.cpp b11434, ggml/src/ggml-cpu: amx/amx.cpp:151-197 and amx/mmq.cpp:246-287, repack.cpp:4925-5220.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from llamaherd.engines import SIZED, is_on
from llamaherd.gguf.header import BLOCKS, Header, TensorGroup, spread, tensor_bytes
from llamaherd.inventory.schema import Cpu, Engine
from llamaherd.memory.placement import Layout, Placement
from llamaherd.memory.weights import INPUT

_AMX_ADDS = {"Q4_0": 0, "Q4_1": 0, "Q8_0": 4, "Q4_K": 4, "Q5_K": 4, "Q6_K": 0, "IQ4_XS": 2, "F16": 0}
"""Bytes that a block is longer in AMX's layout. F16 is copied as it is."""

_AMX_ROWS, _AMX_COLUMNS = 32, {"F16": 16}
"""What rows, and their length where it is no whole block, must be a multiple of."""

_VECTOR_TYPES, _VECTOR_ROWS = {"Q4_0", "Q4_K", "Q2_K", "IQ4_NL", "MXFP4"}, 8
"""What AVX2 computes with in another layout; Q2_K wants AVX-512, and is taken to have it."""

_EXPERTS = "_exps."


@dataclass(frozen=True)
class Repacked:
    """Bytes of all copies in another layout, and those of what they are copies of."""

    copies: int
    originals: int


def layouts_of(engine: Engine, cpu: Cpu) -> tuple[Layout, ...]:
    """The layouts that a build for this processor copies matrices to; an image has all that there are."""
    if engine.kind not in SIZED or not SIZED[engine.kind].repacks:
        return ()
    options = engine.options
    native = is_on(options.get("GGML_NATIVE", True)) or is_on(options.get("GGML_CPU_ALL_VARIANTS", False))
    amx = cpu.amx and (native or is_on(options.get("GGML_AMX_INT8", False)))
    vector = is_on(options.get("GGML_CPU_REPACK", True))
    return (*(("amx",) if amx else ()), *(("vector",) if vector else ()))


def repacked(header: Header, placement: Placement) -> Repacked:
    """What a server of this model holds in other layouts; nothing where it has a GPU or is told to leave them."""
    if not placement.layouts or placement.devices:
        return Repacked(0, 0)
    copies = originals = 0
    for group, count in _matrices(header, placement.mtp > 0):
        if size := _copy(group, placement):
            copies += count * size
            originals += count * tensor_bytes(group.type, group.shape)
    return Repacked(copies + _tied(header, placement), originals)


@lru_cache(maxsize=256)
def _matrices(header: Header, drafts: bool) -> tuple[tuple[TensorGroup, int], ...]:
    """Return what is multiplied by, and in how many layers; matrices of prediction heads only where these draft."""
    return tuple(_each_matrix(header, drafts))


def _each_matrix(header: Header, drafts: bool) -> Iterator[tuple[TensorGroup, int]]:
    trunk = header.trunk
    for group in header.tensors:
        if len(group.shape) < 2 or group.name.startswith(INPUT) or "embed_tokens" in group.name:
            continue
        if group.layers is None:
            yield group, int(drafts or not group.name.startswith("nextn."))
        else:
            yield group, sum(drafts or layer < trunk for layer in spread(group.layers))


def _tied(header: Header, placement: Placement) -> int:
    """The copy of embeddings that are the output, too: looked up in the file, multiplied by in a layout."""
    outside = {group.name: group for group in header.tensors if group.layers is None}
    if "output.weight" in outside or "token_embd.weight" not in outside:
        return 0
    return _copy(outside["token_embd.weight"], placement)


def _copy(group: TensorGroup, placement: Placement) -> int:
    """Return the bytes of a matrix in the first layout that takes it; 0 if no layout takes it, or if it is a vector."""
    if len(group.shape) < 2:
        return 0
    columns, rows = group.shape[0], group.shape[1]
    size = tensor_bytes(group.type, group.shape)
    experts = _EXPERTS in group.name
    if "amx" in placement.layouts and not experts and group.type in _AMX_ADDS and not rows % _AMX_ROWS:
        block = BLOCKS[group.type]
        if not columns % _AMX_COLUMNS.get(group.type, block[1]):
            return size // block[0] * (block[0] + _AMX_ADDS[group.type])
    flat = len(group.shape) == 2 or experts
    if "vector" in placement.layouts and flat and group.type in _VECTOR_TYPES and not rows % _VECTOR_ROWS:
        return size
    return 0
