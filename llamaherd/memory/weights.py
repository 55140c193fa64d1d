"""Where each tensor of a model is put.

Facts: llama.cpp b11434, llama-model-loader.cpp:1116-1370 (create_tensor), llama-arch.cpp:748-1046 (input and output
tensors).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from llamaherd.gguf.header import Header, Tensor
from llamaherd.memory.placement import HOST, Placement

_INPUT = ("token_embd.", "position_embd.", "token_types.", "per_layer_token_embd.")

Places = tuple[int, ...]
"""The device of every layer, the output layer being the last."""


def weights(header: Header, placement: Placement, places: Places) -> tuple[Counter[int], Counter[int]]:
    """Bytes on each device: of the model, and of the prediction heads that only a draft loads.

    Raises KeyError for a type of tensor that is not known, re.error for an override that is no regular expression.
    """
    model: Counter[int] = Counter()
    heads: Counter[int] = Counter()
    for tensor in header.each:
        head = is_head(header, tensor)
        if head and not placement.mtp:
            continue
        device = place_of(tensor, placement, places)
        for part, size in shared(device, tensor.bytes, placement):
            (heads if head else model)[part] += size
    for part, size in shared(places[-1], _second_embedding(header, placement, places), placement):
        model[part] += size
    return model, heads


def is_head(header: Header, tensor: Tensor) -> bool:
    """Whether only a draft needs it (src/models/qwen35moe.cpp:41-45)."""
    return (tensor.layer is not None and tensor.layer >= header.trunk) or tensor.name.startswith("nextn.")


def shared(device: int, size: int, placement: Placement) -> Iterator[tuple[int, int]]:
    """The bytes as the cards share them: whole on one, or in parts where matrices are cut through."""
    if device == HOST or placement.split in ("layer", "none"):
        yield device, size
        return
    for card, share in enumerate(placement.shares):
        yield card, round(size * share)


def place_of(tensor: Tensor, placement: Placement, places: Places) -> int:
    """The device of a tensor: an override's, else its layer's; the input stays in RAM."""
    device = placement.override(tensor.name)
    if device is not None:
        return device if placement.devices else HOST
    if tensor.layer is not None:
        return places[tensor.layer] if tensor.layer < len(places) else HOST
    return HOST if tensor.name.startswith(_INPUT) else places[-1]


def _second_embedding(header: Header, placement: Placement, places: Places) -> int:
    """Bytes of the embedding's copy that stands in for an output matrix that the file lacks.

    In RAM the two are one tensor (TENSOR_DUPLICATED, llama-model-loader.cpp:1353).
    """
    names = {tensor.name: tensor for tensor in header.each if tensor.layer is None}
    if "output.weight" in names or "token_embd.weight" not in names or places[-1] == HOST or not placement.devices:
        return 0
    return names["token_embd.weight"].bytes
