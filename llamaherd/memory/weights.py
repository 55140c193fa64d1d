"""Where each tensor of a model is put.

Facts: llama.cpp b11434, llama-model-loader.cpp:1116-1370 (create_tensor), llama-arch.cpp:748-1046 (input and output
tensors).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.gguf.header import Header, spread, tensor_bytes
from llamaherd.memory.encoders import WITHOUT_OUTPUT
from llamaherd.memory.placement import HOST, Placement

INPUT = ("token_embd.", "position_embd.", "token_types.", "per_layer_token_embd.")
"""How tensors are called that are looked up in, and stay in RAM."""

_FIRST_LAYER = ("per_layer_model_proj.", "per_layer_proj_norm.")
"""Tensors outside of layers that are where the first layer is (gemma4.cpp:60)."""

_OUTPUT_FIRST = {"gemma3n", "gemma4"}
"""They make the output's copy before the embeddings, so that it is never seen to be one (gemma4.cpp:53)."""

LayerPlaces = tuple[int, ...]
"""The device of every layer, the output layer being the last."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor's bytes on a device. `head`: only a draft needs it; `moved`: large batches may copy it to a GPU.

    `name` is what it is called in its layer.
    """

    device: int
    size: int
    head: bool = False
    moved: bool = False
    name: str = ""


def placed_tensors(header: Header, placement: Placement, places: LayerPlaces) -> Iterator[Placed]:
    """Every tensor that is loaded; a prediction head's only for a draft (src/models/qwen35moe.cpp:41-45).

    Raises KeyError for a type of tensor that is not known.
    """
    trunk = header.trunk
    for group in header.tensors:
        size = tensor_bytes(group.type, group.shape)
        matrix = len(group.shape) > 1
        if group.layers is None:
            head = group.name.startswith("nextn.")
            usual = HOST if group.name.startswith(INPUT) else places[-1]
            usual = places[0] if group.name.startswith(_FIRST_LAYER) else usual
            if placement.mtp or not head:
                yield Placed(_device(placement, group.name, usual), size, head)
            continue
        for layer in spread(group.layers):
            head = layer >= trunk
            if head and not placement.mtp:
                continue
            usual = places[layer] if layer < len(places) else HOST
            name = f"blk.{layer}.{group.name}" if placement.overrides else ""
            yield Placed(_device(placement, name, usual), size, head, matrix, group.name)
    yield _second_embedding(header, placement, places)


def shared(device: int, size: int, placement: Placement) -> Iterator[tuple[int, int]]:
    """The bytes as the GPUs share them: whole on one, or in parts where matrices are cut through."""
    if device == HOST or placement.split in ("layer", "none"):
        yield device, size
        return
    for gpu, share in enumerate(placement.shares):
        yield gpu, round(size * share)


def _device(placement: Placement, name: str, usual: int) -> int:
    """The device of a tensor: an override's, else the usual one."""
    device = placement.override(name) if placement.overrides else None
    if device is None:
        return usual
    return device if placement.devices else HOST


def _second_embedding(header: Header, placement: Placement, places: LayerPlaces) -> Placed:
    """The embeddings' copy that stands in for an output matrix that the file lacks.

    In RAM the two are one tensor (TENSOR_DUPLICATED, llama-model-loader.cpp:1353), or two views of one mapped file; on
    a GPU to which an override sends both, llama.cpp has one tensor too, ik_llama.cpp two.
    """
    outside = {group.name: group for group in header.tensors if group.layers is None}
    lacks = header.architecture in WITHOUT_OUTPUT
    if lacks or "output.weight" in outside or "token_embd.weight" not in outside:
        return Placed(places[-1], 0)
    device = _device(placement, "token_embd.weight", places[-1])
    both, one = placement.override("token_embd.weight") is not None, header.architecture not in _OUTPUT_FIRST
    same = (placement.mmap or one) if device == HOST else (both and one and placement.does.shares_tied_embeddings)
    embedding = outside["token_embd.weight"]
    return Placed(device, 0 if same else tensor_bytes(embedding.type, embedding.shape))
