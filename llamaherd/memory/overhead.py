"""What a server takes besides the buffers that its engine allocates: of each GPU, and of the RAM.

Measured on H100s with llama.cpp b11434 and ik_llama.cpp 67268c8fd, and on an H200: docs/gpus.md has the figures. What
is not of a model's kind or a batch's size did not depend on the model, the context or the length of a prompt, but for
what `scratch_memory` says.
"""

from __future__ import annotations

from functools import lru_cache

from llamaherd.gguf.header import Header, spread, tensor_bytes
from llamaherd.memory.laid import lay_out, places_of
from llamaherd.memory.layers import layers
from llamaherd.memory.placement import HOST, Placement
from llamaherd.memory.repacked import repacked
from llamaherd.memory.working import head_width

MIB = 1 << 20
_F16 = 2

_PER_MULTIPROCESSOR = 4
"""MiB of a context of CUDA for each multiprocessor of its GPU."""

_DRAFT = 116
"""MiB that a draft's own cuBLAS and scratch memory take."""

_OUTPUT_ALONE = 60
"""MiB on a GPU that has the output and no layer: no kernels of attention or experts are loaded there."""

_UNQUANTIZED = {"F32", "F16", "BF16"}

_SERVER_RAM, _GPU_RAM, _IK_GPU_RAM, _NCCL_RAM = 330, 105, 225, 300
"""MiB of RAM of any server with CUDA's libraries, of each further GPU that it sees, and of NCCL."""

_VOCABULARY = 512
"""Bytes of RAM that each token of a vocabulary takes in the server's tables."""


_CPU_SERVER_RAM, _CPU_VOCABULARY = 32, 300
"""MiB of RAM of a server without a GPU, and bytes of each token there: measured, docs/gpus.md."""


def cuda_on_gpus(multiprocessors: tuple[int, ...], header: Header, placement: Placement, *, drafts: bool) -> list[int]:
    """Bytes that CUDA takes of each GPU: context, kernels, cuBLAS, scratch memory, and NCCL's buffers with ik."""
    own = (_of_ik if placement.does.scratch_in_cuda else _of_llama)(header, placement) + (_DRAFT if drafts else 0)
    between = _nccl(len(multiprocessors)) if placement.does.makes_communicators else [0] * len(multiprocessors)
    scratch, alone = scratch_memory(header, placement, placement.cells), _output_alone(header, placement)
    taken = []
    for gpu, (each, shared) in enumerate(zip(multiprocessors, between, strict=True)):
        few = gpu == alone and not drafts and not placement.does.scratch_in_cuda
        usual = (_OUTPUT_ALONE if few else own) + shared
        taken.append((each * _PER_MULTIPROCESSOR + usual) * MIB + (0 if few else scratch))
    return taken


@lru_cache(maxsize=1024)
def _output_alone(header: Header, placement: Placement) -> int | None:
    """The GPU that has the output and no layer, if there is one; the first one computes with what is in RAM, too."""
    *places, output = places_of(header, placement)
    return output if output != placement.first_gpu and output not in places[: header.trunk] else None


@lru_cache(maxsize=1024)
def scratch_memory(header: Header, placement: Placement, cells: int) -> int:
    """Bytes of CUDA's own memory that grow with the cells in use, until so many are, on each GPU with layers.

    Without flash attention, scores in 16 bits, for cuBLAS. With it, in ik_llama.cpp, a layer's cache that is not f16,
    in f16 (ggml-cuda/fattn-mma-f16.cuh:1321); llama.cpp has that copy in its buffers. Measured: docs/gpus.md.
    """
    if placement.flash_attention and not placement.does.scratch_in_cuda:
        return 0
    keys, values, most = placement.type_k != "f16", placement.type_v != "f16", 0
    for layer in {layer.kind: layer for layer in layers(header) if layer.keys}.values():
        numbers = layer.keys * keys + layer.values * values
        if not placement.flash_attention:
            numbers = layer.heads * placement.tokens
        most = max(most, numbers * min(cells, placement.window_cells(layer.window)) * _F16)
    return most


def _is_plain(header: Header) -> bool:
    """Whether it is dense, with attention in every layer: then the kernels that mix experts or states stay away."""
    return not header.number("expert_used_count") and not _recurs(header)


def _recurs(header: Header) -> bool:
    return any(layer.state for layer in layers(header))


def _of_llama(header: Header, placement: Placement) -> int:
    """72 to 82 MiB for a dense model, 170 to 188 for others; 20 to 50 more with a batch of 2,048.

    Matrices that are not quantized are multiplied by cuBLAS, which routers of experts need, and a dense model that has
    some (Gemma 4 E4B).
    """
    own = 80 if _is_plain(header) and not _has_unquantized_matrices(header) else 188
    return own + 32 * min(placement.tokens, 4096) // 2048


def _has_unquantized_matrices(header: Header) -> bool:
    return any(group.type in _UNQUANTIZED and len(group.shape) > 1 for group in header.tensors)


def _of_ik(header: Header, placement: Placement) -> int:
    """What it computes gate and up into is in CUDA's own memory: 10 bytes for each number of a dense layer."""
    if not _is_plain(header):
        base = 300 if _recurs(header) else 240
        return base + (450 - base) * max(0, placement.tokens - 512) // 1536
    widest = max((layer.wide for layer in layers(header)), default=0)
    return max(130 if head_width(header) <= 128 else 200, 60 + 10 * widest * placement.tokens // MIB)


def _nccl(gpus: int) -> list[int]:
    """MiB of NCCL's buffers on each GPU: ik_llama.cpp makes communicators of all and of pairs as it starts.

    Of an odd number, the first GPU is in two pairs (ggml-cuda.cu:257-290).
    """
    if gpus < 2:
        return [0] * gpus
    return [130 + 200 * (gpus - 1) + (195 if gpus % 2 and not index else 0) for index in range(gpus)]


def in_ram(header: Header, placement: Placement) -> int:
    """Bytes of RAM that a server holds for itself: its libraries, what they keep for each GPU, its vocabulary; and what
    its matrices take more in another layout."""
    if not placement.devices:
        layouts = repacked(header, placement)
        return _CPU_SERVER_RAM * MIB + header.vocabulary * _CPU_VOCABULARY + layouts.copies - layouts.originals
    each = _IK_GPU_RAM if placement.does.makes_communicators else _GPU_RAM
    nccl = _NCCL_RAM if placement.does.makes_communicators and placement.devices > 1 else 0
    own = _SERVER_RAM + each * (placement.devices - 1) + nccl
    return own * MIB + header.vocabulary * _VOCABULARY


def mapped_between(header: Header, placement: Placement) -> int:
    """Bytes of a mapped file that are resident, not needed: they lie between those which the CPU computes with, or it
    computes with a copy of them.

    llama.cpp keeps all from the first to the last byte that it needs (llama-model-loader.cpp, mmaps_used); files are
    taken to have the embeddings and the output first, then layer after layer. The system can take these pages back.
    """
    if not (placement.mmap and placement.does.maps_ranges):
        return 0
    if not placement.devices:
        return repacked(header, placement).originals
    laid = lay_out(header, placement)
    here = sum(tensor.size for tensor in laid.tensors if tensor.device == HOST)
    last = max(_layers_in_ram(header, placement, laid.places), default=-1)
    if last < 0:
        return 0
    span = 0
    for group in header.tensors:
        count = sum(layer <= last for layer in spread(group.layers)) if group.layers is not None else 1
        span += count * tensor_bytes(group.type, group.shape)
    return max(0, span - here)


def _layers_in_ram(header: Header, placement: Placement, places: tuple[int, ...]) -> set[int]:
    """Layers of which at least one tensor is in RAM."""
    found = {layer for layer in range(header.trunk) if layer < len(places) and places[layer] == HOST}
    if placement.overrides:
        found |= {
            tensor.layer
            for tensor in header.each
            if tensor.layer is not None and tensor.layer < header.trunk and placement.override(tensor.name) == HOST
        }
    return found
