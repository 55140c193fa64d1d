"""How large the buffers are that an engine computes in.

A model of what its allocator comes to, not a copy of it: what is alive at the same time counts, plus one large block
that goes on top. Checked against the engine's own figures; docs/memory.md has the errors.

Facts: llama.cpp b11434, llama-context.cpp:640-760 (sched_reserve), llama-graph.cpp:29-46 (the mask),
ggml/src/ggml-backend.cpp:920-960 (weights copied to a GPU), ggml/src/ggml-cuda/fattn.cu:722-756 (a cache that is not
f16 is turned into it).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from llamaherd.gguf.header import Header, tensor_bytes
from llamaherd.memory.laid import Laid
from llamaherd.memory.layers import Layer
from llamaherd.memory.placement import HOST, Placement

_F32 = 4
_F16 = 2

_COPIES = 4
"""Copies of inputs where GPUs work on several batches at once (GGML_SCHED_MAX_COPIES)."""

_OFFLOADED = 32
"""From so many tokens on, a GPU computes with weights that lie in RAM, and copies them (ggml-cuda.cu, offload_op)."""

_EMBEDDINGS, _PIPED_EMBEDDINGS, _FIRST = 4, 10, 9
"""Rows of embeddings per token among the host's inputs, with and without several batches at once, and those that the
first of several GPUs has more than the others then: measured, docs/gpus.md."""


def compute(laid: Laid) -> dict[int, int]:
    """Bytes of the compute buffer on each GPU, and on the host."""
    return _buffers(laid, laid.placement, laid.trunk)


def draft_compute(laid: Laid) -> dict[int, int]:
    """Bytes of the buffers of the context that drafts (speculative.cpp:2599-2650); nothing without a draft."""
    placement = laid.placement
    if not placement.mtp or not laid.heads:
        return {}
    types = replace(placement, type_k=placement.draft_type_k, type_v=placement.draft_type_v)
    return _buffers(laid, replace(types, outputs=placement.parallel), laid.heads)


def _buffers(laid: Laid, placement: Placement, which: tuple[Layer, ...]) -> dict[int, int]:
    header, places = laid.header, laid.places
    masks = _masks(placement, which)
    embedding = header.number("embedding_length") * placement.tokens * _F32
    of_layers = header.number("embedding_length_per_layer_input") * header.layers * placement.tokens * _F32
    piped = placement.pipelined and placement.offloads_all(header.layers)
    copies = _COPIES if piped else 1
    moved, every = _moved(laid, which), {layer.kind: layer for layer in which}.values()
    first = placement.main_device if placement.split == "none" else 0
    buffers: dict[int, int] = {
        HOST: masks * copies + _embeddings(placement, piped) * embedding if placement.devices else masks
    }
    for device in (*range(placement.devices), HOST):
        own = {layer.kind: layer for layer in which if places[layer.index] == device}.values()
        peaks = [_peak(header, placement, layer, device) for layer in own]
        if placement.does.reserves_all_logits and device != HOST:
            fetched = _output_in_ram(laid) if device == first else 0
            fetches = bool(moved) and device == first
            last = bool(fetched) or places[-1] == device
            if size := fetched + _of_ik(header, placement, masks, own, last=last, fetches=fetches):
                buffers[device] = size
            continue
        if places[-1] == device:
            peaks.append(_output(header, placement, masks))
        if device == first and moved:
            peaks += [_fetching(header, placement, layer, moved) for layer in every]
            peaks += [moved + _converting(header, placement, layer) for layer in own if layer.keys]
        if not peaks:
            continue
        inputs = (masks + embedding) * copies + of_layers if device != HOST else 0
        if piped and not device:
            inputs += _FIRST * embedding
        buffers[device] = buffers.get(device, 0) + inputs + max(peaks)
    return buffers


def _embeddings(placement: Placement, piped: bool) -> int:
    """Rows of embeddings per token among the host's inputs."""
    if placement.does.reserves_all_logits:
        return 1
    return _PIPED_EMBEDDINGS if piped else _EMBEDDINGS


def _output_in_ram(laid: Laid) -> int:
    """Bytes of an output matrix in RAM, which ik_llama.cpp copies to the first GPU for large batches."""
    if laid.places[-1] != HOST or not laid.placement.devices or laid.placement.tokens < _OFFLOADED:
        return 0
    outside = {group.name: tensor_bytes(group.type, group.shape) for group in laid.header.tensors if not group.layers}
    return outside.get("output.weight", outside.get("token_embd.weight", 0))


def _of_ik(header: Header, placement: Placement, masks: int, own: Iterable[Layer], *, last: bool, fetches: bool) -> int:
    """Bytes of a GPU's buffer in ik_llama.cpp: it makes room for the logits of every token of a batch.

    Measured: docs/gpus.md. Matrices are turned into other types in CUDA's own memory.
    """
    embedding, used = header.number("embedding_length"), header.number("expert_used_count")
    row = placement.tokens * _F32
    peaks = [0]
    for layer in own:
        width = used * (embedding + header.number("expert_feed_forward_length")) + embedding if used else layer.wide
        peaks.append(masks + (2 * embedding + width) * row + (2 * embedding * row if fetches else 0))
    if last:
        peaks.append((header.vocabulary + 2 * embedding) * row)
    return max(peaks)


def _masks(placement: Placement, which: tuple[Layer, ...]) -> int:
    """Bytes of the masks of which token sees which cell, one for each kind of window."""
    size = _F16 if placement.flash_attention else _F32
    windows = {layer.window for layer in which if layer.keys}
    return sum(placement.window_cells(window) * placement.tokens * size for window in windows)


def _output(header: Header, placement: Placement, masks: int) -> int:
    """Bytes at the end of a graph. Logits that are not larger lie where the masks were."""
    logits = header.vocabulary * placement.rows * _F32
    return 6 * header.number("embedding_length") * placement.tokens * _F32 + (logits if logits > masks else 0)


def _peak(header: Header, placement: Placement, layer: Layer, device: int) -> int:
    """The most bytes that are alive at once while a layer is computed.

    Without flash attention all scores are; with it, on a GPU, an f16 copy of a cache of another type.
    """
    working = _working(header, placement, layer, gpu=device != HOST)
    if not layer.keys:
        return working
    cells = placement.window_cells(layer.window)
    if not placement.flash_attention:
        scores = layer.heads * cells * placement.tokens * _F32
        return max(working, _attending(header, layer) * placement.tokens * _F32 + scores)
    return working if device == HOST else working + _converted(placement, layer)


def _converted(placement: Placement, layer: Layer) -> int:
    """Bytes of the f16 copy that flash attention makes of a cache of another type, on a GPU."""
    if not placement.flash_attention:
        return 0
    numbers = (layer.keys if placement.type_k != "f16" else 0) + (layer.values if placement.type_v != "f16" else 0)
    return numbers * placement.window_cells(layer.window) * placement.streams * _F16


def _converting(header: Header, placement: Placement, layer: Layer) -> int:
    """Bytes alive while that copy is made: queries, and a gate or what comes out, beside the layer's own numbers."""
    query = 2 * layer.heads * header.number("attention.key_length", _head(header))
    numbers = 3 * header.number("embedding_length") + query
    return numbers * placement.tokens * _F32 + _converted(placement, layer)


def _fetching(header: Header, placement: Placement, layer: Layer, moved: int) -> int:
    """The most bytes that are alive while a layer is computed with weights that are copied from RAM, `moved` at a time.

    Of experts there are two copies at a time. What comes out of them lies where a third was, if it is not larger.
    """
    embedding, used = header.number("embedding_length"), header.number("expert_used_count")
    if not used:
        return _working(header, placement, layer, gpu=True) + 2 * moved + 2 * embedding * placement.tokens * _F32
    width = used * header.number("expert_feed_forward_length")
    kept, out = 3 * embedding + width, used * embedding
    if (kept + width + out) * placement.tokens * _F32 > moved:
        kept += out
    return 2 * moved + kept * placement.tokens * _F32


def _working(header: Header, placement: Placement, layer: Layer, *, gpu: bool) -> int:
    """Bytes alive at once in the hungriest part of a layer, without attention's own block.

    How many rows of each width are alive was read off the engine's figures (docs/memory.md), and they are others on a
    `card` than in RAM.
    """
    embedding = header.number("embedding_length")
    used = header.number("expert_used_count")
    if used:
        # What comes out of experts that have a scale each is there twice (Gemma 4).
        out = embedding * (2 if any(group.name == "ffn_down_exps.scale" for group in header.tensors) else 1)
        forward = 3 * embedding + used * (out + (3 if gpu else 2) * header.number("expert_feed_forward_length"))
    else:
        forward = (3 if gpu else 5) * embedding + 3 * layer.wide
    mixing = _recurring(header, gpu=gpu) if layer.state else _attending(header, layer)
    # A layer writes each slot's states, one for each drafted token too, before they go where they are kept.
    states = layer.state * (placement.parallel * (1 + placement.mtp) - 1)
    return (max(mixing, forward) * placement.tokens + states) * _F32


def _recurring(header: Header, *, gpu: bool) -> int:
    """Numbers per token in a recurrent layer: the convolution's inputs and outputs, and the state's."""
    inner = header.number("ssm.inner_size")
    convolution = inner + 2 * header.number("ssm.group_count") * header.number("ssm.state_size")
    return (9 if gpu else 3) * header.number("embedding_length") + 3 * convolution + 2 * inner


def _attending(header: Header, layer: Layer) -> int:
    """Numbers per token in attention: queries before and after they are turned, and what comes out; a gate, if any."""
    queries = 4 if header.architecture in ("qwen3next", "qwen35", "qwen35moe") else 3
    query = layer.heads * header.number("attention.key_length", _head(header))
    return 3 * header.number("embedding_length") + layer.keys + layer.values + queries * query


def _head(header: Header) -> int:
    """Numbers of one head where the header does not say."""
    return header.number("embedding_length") // max((1, *header.per_layer("attention.head_count")))


def _moved(laid: Laid, which: tuple[Layer, ...]) -> int:
    """Bytes of the largest weight of these layers that is in RAM and is copied to the first GPU for a large batch."""
    placement, head = laid.placement, any(layer.head for layer in which)
    if not placement.devices or not placement.op_offload or placement.tokens < _OFFLOADED:
        return 0
    each = (tensor for tensor in laid.tensors if tensor.moved and tensor.device == HOST and tensor.head == head)
    return max((tensor.size for tensor in each), default=0)
