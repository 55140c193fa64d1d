"""Memory that a server takes besides its buffers: CUDA, libraries, repacked matrices, saved prompts and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.engines import SIZED, is_on
from llamaherd.gguf.header import (
    BLOCKS,
    LOGITS_FOR_CHAT,
    WITHOUT_LOGITS,
    Header,
    Layer,
    TensorGroup,
    spread,
    tensor_bytes,
)
from llamaherd.inventory.schema import Cpu, Engine
from llamaherd.memory.compute import head_width
from llamaherd.memory.placement import HOST, INPUT, MatrixLayout, Placement, lay_out, places_of, row_bytes

_AMX_ADDS = {"Q4_0": 0, "Q4_1": 0, "Q8_0": 4, "Q4_K": 4, "Q5_K": 4, "Q6_K": 0, "IQ4_XS": 2, "F16": 0}
"""Bytes that a block is longer in AMX's layout. F16 is copied as it is."""

_AMX_ROWS, _AMX_COLUMNS = 32, {"F16": 16}
"""What rows, and their length where it is no whole block, must be a multiple of."""

_VECTOR_TYPES, _VECTOR_ROWS = {"Q4_0", "Q4_K", "Q2_K", "IQ4_NL", "MXFP4"}, 8
"""Types with which AVX2 computes in another layout; Q2_K needs AVX-512, which is assumed to be there."""

_EXPERTS = "_exps."


@dataclass(frozen=True)
class Repacked:
    """Bytes of all copies in another layout, and those of what they are copies of."""

    copies: int
    originals: int


def layouts_of(engine: Engine, cpu: Cpu) -> tuple[MatrixLayout, ...]:
    """Return the layouts to which a build for this processor copies matrices; an image has all of them."""
    if engine.kind not in SIZED or not SIZED[engine.kind].repacks:
        return ()
    options = engine.options
    native = is_on(options.get("GGML_NATIVE", True)) or is_on(options.get("GGML_CPU_ALL_VARIANTS", False))
    amx = cpu.amx and (native or is_on(options.get("GGML_AMX_INT8", False)))
    vector = is_on(options.get("GGML_CPU_REPACK", True))
    return (*(("amx",) if amx else ()), *(("vector",) if vector else ()))


def repacked_bytes(header: Header, placement: Placement) -> Repacked:
    """Return the memory of a server in other layouts; nothing if it has a GPU or the layouts are off."""
    if not placement.layouts or placement.devices:
        return Repacked(0, 0)
    copies = originals = 0
    for group, count in _matrices(header, drafts=placement.mtp > 0):
        if size := _copy(group, placement):
            copies += count * size
            originals += count * tensor_bytes(group.type, group.shape)
    return Repacked(copies + _tied(header, placement), originals)


def _matrices(header: Header, *, drafts: bool) -> Iterator[tuple[TensorGroup, int]]:
    """Yield each matrix and its number of layers; matrices of prediction heads only if they draft."""
    trunk = header.trunk
    for group in header.tensors:
        if len(group.shape) < 2 or group.name.startswith(INPUT) or "embed_tokens" in group.name:
            continue
        if group.layers is None:
            yield group, int(drafts or not group.name.startswith("nextn."))
        else:
            yield group, sum(drafts or layer < trunk for layer in spread(group.layers))


def _tied(header: Header, placement: Placement) -> int:
    """Return the bytes of the copy of embeddings that are also the output matrix."""
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


MIB = 1 << 20
_F16 = 2

_PER_MULTIPROCESSOR = 4
"""MiB of a context of CUDA for each multiprocessor of its GPU."""

_DRAFT = 116
"""MiB that a draft's own cuBLAS and scratch memory take."""

_MMQ, _CUBLAS, _BOTH = 80, 160, 188
"""MiB of kernels for quantized matrices, of cuBLAS with its workspace and kernels, and of both: docs/gpus.md."""

_OUTPUT_ALONE = 60
"""MiB on a GPU that has the output and no layer: no kernels of attention or experts are loaded there."""

_UNQUANTIZED = {"F32", "F16", "BF16"}

_SERVER_RAM, _GPU_RAM, _IK_GPU_RAM, _NCCL_RAM = 330, 105, 225, 300
"""MiB of RAM of any server with CUDA's libraries, of each further GPU that it uses, and of NCCL."""

_VOCABULARY = 512
"""Bytes of RAM that each token of a vocabulary takes in the server's tables."""


_CUBLAS_RAM = 90
"""MiB of RAM that cuBLAS takes for its kernels with the first full batch: 70 to 100, docs/gpus.md."""

_CPU_SERVER_RAM, _CPU_VOCABULARY = 32, 300
"""MiB of RAM of a server without a GPU, and bytes of each token there: measured, docs/gpus.md."""
_CPU_ENCODER_RAM, _CPU_ENCODER_VOCABULARY = 20, 150
"""The same of an encoder, which has no slots to save and writes no text (tests/data/ram_embeddings_cpu.jsonl)."""


def cuda_on_gpus(multiprocessors: tuple[int, ...], header: Header, placement: Placement, *, drafts: bool) -> list[int]:
    """Return the bytes that CUDA takes of each GPU: context, kernels, cuBLAS, scratch memory, and NCCL's buffers."""
    own = (_of_ik if placement.does.scratch_in_cuda else _of_llama)(header, placement) + (_DRAFT if drafts else 0)
    between = _nccl(len(multiprocessors)) if placement.does.makes_communicators else [0] * len(multiprocessors)
    scratch, alone = scratch_memory(header, placement, placement.cells), _output_alone(header, placement)
    taken = []
    for gpu, (each, shared) in enumerate(zip(multiprocessors, between, strict=True)):
        few = gpu == alone and not drafts and not placement.does.scratch_in_cuda
        usual = (_OUTPUT_ALONE if few else own) + shared
        taken.append((each * _PER_MULTIPROCESSOR + usual) * MIB + (0 if few else scratch))
    return taken


def _output_alone(header: Header, placement: Placement) -> int | None:
    """Return the GPU with the output and no layer, if any; the first GPU also computes with weights in RAM."""
    *places, output = places_of(header, placement)
    return output if output != placement.first_gpu and output not in places[: header.trunk] else None


def scratch_memory(header: Header, placement: Placement, cells: int) -> int:
    """Return the bytes of CUDA's own memory, which grow up to this many cells in use, on each GPU with layers.

    Without flash attention, scores in 16 bits, for cuBLAS. With it, in ik_llama.cpp, a layer's cache that is not f16,
    in f16 (ggml-cuda/fattn-mma-f16.cuh:1321); llama.cpp has that copy in its buffers. Measured: docs/gpus.md.
    """
    if placement.flash_attention and not placement.does.scratch_in_cuda:
        return 0
    keys, values, most = placement.type_k != "f16", placement.type_v != "f16", 0
    for layer in {layer.kind: layer for layer in header.each_layer if layer.keys}.values():
        numbers = layer.keys * keys + layer.values * values
        if not placement.flash_attention:
            numbers = layer.heads * placement.tokens
        most = max(most, numbers * min(cells, placement.window_cells(layer.window)) * _F16)
    return most


def _is_plain(header: Header) -> bool:
    """Return whether it is dense, with attention in every layer: kernels for experts or states are not loaded."""
    return not header.number("expert_used_count") and not _recurs(header)


def _recurs(header: Header) -> bool:
    return any(layer.state for layer in header.each_layer)


def _of_llama(header: Header, placement: Placement) -> int:
    """Return 72 to 82 MiB for a dense model, 170 to 188 for others; 20 to 50 more with a batch of 2,048.

    Matrices that are not quantized are multiplied by cuBLAS, which routers of experts need, and a dense model that has
    some (Gemma 4 E4B).
    """
    if placement.embeddings and _is_plain(header):
        return _of_embeddings(header, placement)
    matrices = [group for group in header.tensors if len(group.shape) > 1]
    usual = _is_plain(header) and not any(group.type in _UNQUANTIZED for group in matrices)
    return (_MMQ if usual else _BOTH) + 32 * min(placement.tokens, 4096) // 2048


def _of_embeddings(header: Header, placement: Placement) -> int:
    """Return the MiB of kernels, and of the largest copies that a product of a whole batch makes of its operands."""
    matrices = _multiplied(header)
    unquantized = {group.type in _UNQUANTIZED for group in matrices}
    own = _BOTH if len(unquantized) > 1 else _CUBLAS if True in unquantized else _MMQ
    return own + max((_copied(group) for group in matrices), default=0) * placement.tokens // MIB


def _uses_cublas(header: Header) -> bool:
    return any(group.type in _UNQUANTIZED for group in _multiplied(header))


def _copied(group: TensorGroup) -> int:
    """Return the bytes per token of the copies that a product with this matrix needs.

    cuBLAS reads f16 and writes f16, or reads bf16 and writes f32 (ggml_cuda_mul_mat_cublas_impl). Kernels for quantized
    matrices read blocks of 36 bytes for 32 numbers (ggml_cuda_mul_mat_q).
    """
    columns, rows = group.shape[0], group.shape[1]
    return {"F32": 0, "F16": _F16 * (columns + rows), "BF16": _F16 * columns}.get(group.type, columns * 36 // 32)


def _multiplied(header: Header) -> list[TensorGroup]:
    """Return the matrices that are multiplied with all tokens of a batch if each token is an output.

    A classification head computes one row for each input, without cuBLAS. The embeddings are also the output matrix of
    a model that computes logits and has no other.
    """
    matrices = [group for group in header.tensors if len(group.shape) > 1]
    found = [group for group in matrices if not group.name.startswith((*INPUT, "cls."))]
    if header.architecture in WITHOUT_LOGITS | LOGITS_FOR_CHAT:
        return [group for group in found if group.name != "output.weight"]
    tied = "output.weight" not in {group.name for group in found}
    return [*found, *(group for group in matrices if tied and group.name == "token_embd.weight")]


def _of_ik(header: Header, placement: Placement) -> int:
    """Return the MiB of CUDA's own memory, which holds gate and up: 10 bytes for each number of a dense layer."""
    if not _is_plain(header):
        base = 300 if _recurs(header) else 240
        return base + (450 - base) * max(0, placement.tokens - 512) // 1536
    widest = max((layer.wide for layer in header.each_layer), default=0)
    return max(130 if head_width(header) <= 128 else 200, 60 + 10 * widest * placement.tokens // MIB)


def _nccl(gpus: int) -> list[int]:
    """Return the MiB of NCCL's buffers on each GPU: ik_llama.cpp makes communicators of all and of pairs as it starts.

    Of an odd number, the first GPU is in two pairs (ggml-cuda.cu:257-290).
    """
    if gpus < 2:
        return [0] * gpus
    return [130 + 200 * (gpus - 1) + (195 if gpus % 2 and not index else 0) for index in range(gpus)]


def in_ram(header: Header, placement: Placement) -> int:
    """Return the bytes of RAM that a server holds for itself.

    They are those of its libraries, also by GPU, its vocabulary, and what its matrices take more in another layout.
    """
    if not placement.devices:
        layouts, encodes = repacked_bytes(header, placement), header.architecture in WITHOUT_LOGITS
        own = _CPU_ENCODER_RAM if encodes else _CPU_SERVER_RAM
        each = _CPU_ENCODER_VOCABULARY if encodes else _CPU_VOCABULARY
        return own * MIB + header.vocabulary * each + layouts.copies - layouts.originals
    each = _IK_GPU_RAM if placement.does.makes_communicators else _GPU_RAM
    nccl = _NCCL_RAM if placement.does.makes_communicators and placement.devices > 1 else 0
    cublas = _CUBLAS_RAM if placement.embeddings and _uses_cublas(header) else 0
    own = _SERVER_RAM + each * (placement.devices - 1) + nccl + cublas
    return own * MIB + header.vocabulary * _VOCABULARY


def mapped_between(header: Header, placement: Placement) -> int:
    """Return the bytes of a mapped file that are resident and not needed.

    They lie between those that the CPU computes with, or it computes with a copy of them.

    llama.cpp keeps all from the first to the last byte that it needs (llama-model-loader.cpp, mmaps_used); files are
    taken to have the embeddings and the output first, then layer after layer. The system can take these pages back.
    """
    if not (placement.mmap and placement.does.maps_ranges):
        return 0
    if not placement.devices:
        return repacked_bytes(header, placement).originals
    layout = lay_out(header, placement)
    here = sum(tensor.count * tensor.size for tensor in layout.tensors if tensor.device == HOST)
    last = max(_layers_in_ram(header, placement, layout.places), default=-1)
    if last < 0:
        return 0
    span = 0
    for group in header.tensors:
        count = sum(layer <= last for layer in spread(group.layers)) if group.layers is not None else 1
        span += count * tensor_bytes(group.type, group.shape)
    return max(0, span - here)


def _layers_in_ram(header: Header, placement: Placement, places: tuple[int, ...]) -> set[int]:
    """Return the layers with at least one tensor in RAM."""
    found = {layer for layer in range(header.trunk) if layer < len(places) and places[layer] == HOST}
    if placement.overrides:
        found |= {
            tensor.layer
            for tensor in header.each
            if tensor.layer is not None and tensor.layer < header.trunk and placement.override(tensor.name) == HOST
        }
    return found


_F32 = 4

Types = tuple[str, str]
"""Of keys and of values."""


@dataclass(frozen=True)
class Growth:
    """The most that comes to a server's RAM, in bytes; `prompts` is None where it saves them without a limit."""

    prompts: int | None = 0
    checkpoints: int = 0

    @property
    def total(self) -> int | None:
        """Both; None without a limit."""
        return None if self.prompts is None else self.prompts + self.checkpoints


def ram_growth(header: Header, placement: Placement, drafting: Header | None = None) -> Growth:
    """Return the most by which a server's RAM grows. `drafting` is the header of a model that drafts for it."""
    does = placement.does
    if not any(layer.state or (layer.keys and layer.cached) for layer in header.each_layer):
        return Growth()
    tokens = placement.context // placement.parallel if does.slots_share_cells else placement.cells
    prompts = placement.cache_ram
    if prompts and does.saves_one_at_least:
        prompts = max(prompts, saved_prompt_bytes(header, placement, tokens, drafting))
    each = checkpoint_bytes(header, placement, tokens, drafting)
    return Growth(prompts, placement.parallel * placement.checkpoints * each)


def saved_prompt_bytes(header: Header, placement: Placement, tokens: int, drafting: Header | None = None) -> int:
    """Return the bytes of a saved prompt of this many tokens: all that a slot holds of it, without checkpoints."""
    own = _whole(_trunk(header), placement, tokens, (placement.type_k, placement.type_v))
    return own + sum(_whole(which, placement, tokens, types) for which, types in _drafts(header, placement, drafting))


def checkpoint_bytes(header: Header, placement: Placement, tokens: int, drafting: Header | None = None) -> int:
    """Return the bytes of a checkpoint after this many tokens; 0 for a model without checkpoints.

    None are of attention to the whole context alone; ik_llama.cpp makes them of recurrent states only. llama.cpp keeps
    with each what the draft holds, and of a draft's attention that is its whole cache.
    """
    each = _kept(_trunk(header), placement, tokens, (placement.type_k, placement.type_v))
    if not each:
        return 0
    drafts = _drafts(header, placement, drafting)
    return each + sum(
        _kept(which, placement, tokens, types) or _whole(which, placement, tokens, types) for which, types in drafts
    )


def _trunk(header: Header) -> tuple[Layer, ...]:
    return tuple(layer for layer in header.each_layer if not layer.head)


def _drafts(
    header: Header, placement: Placement, drafting: Header | None
) -> tuple[tuple[tuple[Layer, ...], Types], ...]:
    """Return the layers that draft, and the types of their caches: in llama.cpp, a separate context."""
    if not placement.does.saves_drafts:
        return ()
    heads = tuple(layer for layer in header.each_layer if layer.head) if placement.mtp else ()
    other = _trunk(drafting) if drafting else ()
    types = (placement.draft_type_k, placement.draft_type_v)
    return tuple((which, types) for which in (heads, other) if which)


def _kept(which: tuple[Layer, ...], placement: Placement, tokens: int, types: Types) -> int:
    """Return the bytes that cannot be cut back: the recurrent state, or a window's tokens (…_FLAGS_PARTIAL_ONLY)."""
    states = sum(layer.state * _F32 for layer in which)
    if states or placement.swa_full or not placement.does.windows_cut_cache:
        return states
    return sum(_row(layer, types) * min(layer.window, tokens) for layer in which)


def _whole(which: tuple[Layer, ...], placement: Placement, tokens: int, types: Types) -> int:
    """Return the bytes that a slot holds of a prompt; ik_llama.cpp also keeps tokens outside of a window."""
    all_ = not placement.does.windows_cut_cache
    return sum(
        layer.state * _F32 + _row(layer, types) * (tokens if all_ or not layer.window else min(layer.window, tokens))
        for layer in which
    )


def _row(layer: Layer, types: Types) -> int:
    """Return the bytes of one token's keys and values."""
    return row_bytes(types[0], layer.keys) + row_bytes(types[1], layer.values)
