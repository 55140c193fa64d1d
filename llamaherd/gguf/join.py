"""From the headers of all shards to the one that is kept: everything about tensors, and what sizing and checks need."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from llamaherd.gguf.header import Header, ParameterValue, TensorGroup, ranges
from llamaherd.gguf.parsed import GgufError, Meta, Parsed, TensorInfo

# Hyperparameters without the architecture in front (src/llama-arch.cpp:195-353 at b11434). Left out is what changes
# numbers and not sizes: epsilons, scales, soft caps, frequencies.
_KEPT = re.compile(
    r"((leading_dense|decoder)_)?block_count|nextn_predict_layers|adapters\.count|context_length"
    r"|(embedding|feed_forward|features)_length\w*|vocab_size|full_attention_interval|num_loops"
    r"|expert_\w*(count|length|func)|experts_per_group|moe_\w+|interleave_moe_layer_step|n_deepstack_layers"
    r"|attention\.(?!.*(epsilon|scale|clamp|bias|freq))[\w.]+"
    r"|(ssm|wkv|shortconv|convnext|posnet)\.(?!.*(epsilon|rms))\w+|token_shift_count|time_\w+_dim"
    r"|rope\.(dimension_\w+|scaling\.(type|factor|original_context_length))"
    r"|hyper_connection\.(count|low_rank)|ple\.(layers|ngram_size|heads_per_ngram|conv_kernel)|hash_layer_count"
    r"|pooling_type"
)
_TEMPLATE = "tokenizer.chat_template"
_TOKENIZER = ("model", "bos_token_id", "add_bos_token")
"""Of a tokenizer, what must be the same for a model that drafts (llama.cpp b11434, common/speculative.cpp:112-135)."""
# Numbers of layers have four digits at most, so that ranges of them, edited by hand, stay small when spread.
_LAYER = re.compile(r"blk\.(0|[1-9]\d{0,3})\.(.+)")


def join(shards: Sequence[Parsed]) -> Header:
    """The header of a model from those of its files, in order. Raises GgufError where they are not one model."""
    _refuse_mixture(shards)
    first = shards[0]
    if first.architecture is None:
        raise GgufError("it does not say which architecture it has (general.architecture)")
    tensors = [tensor for shard in shards for tensor in shard.tensors]
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise GgufError("its shards hold a tensor of the same name twice")
    listed = first.number("split.tensors.count", len(tensors))
    if len(shards) > 1 and listed != len(tensors):
        raise GgufError(f"its shards hold {len(tensors)} tensors; the first one says {listed}")
    name = first.metadata.get("general.name")
    try:
        return Header(
            architecture=first.architecture,
            name=_readable(name) if isinstance(name, str) else None,
            quant=first.quant,
            vocabulary=first.vocabulary or first.number(f"{first.architecture}.vocab_size", 0),
            parameters=_parameters(first.metadata, first.architecture),
            tensors=_groups(tensors),
        )
    except ValidationError as error:
        wrong = error.errors()[0]
        where = _readable(".".join(map(str, wrong["loc"])))
        raise GgufError(f"what it says of itself is no text or number of a model: {where[:100]}") from None


def _refuse_mixture(shards: Sequence[Parsed]) -> None:
    """What llama.cpp checks of a set (src/llama-model-loader.cpp:592-671 at b11434), and that all are of one set."""
    if len(shards) != shards[0].shards:
        raise GgufError(f"its header says that it is one of {shards[0].shards} shards, and there are {len(shards)}")
    for index, shard in enumerate(shards):
        if shard.shard != index or shard.shards != len(shards):
            raise GgufError(
                f"file {index + 1} of {len(shards)} says that it is shard {shard.shard + 1} of {shard.shards}"
            )
        if shard.architecture not in (None, shards[0].architecture):
            raise GgufError(
                f"shard {index + 1} is of architecture {shard.architecture}, shard 1 of {shards[0].architecture}"
            )


def _parameters(metadata: Mapping[str, Meta], architecture: str) -> dict[str, ParameterValue]:
    kept: dict[str, ParameterValue] = {}
    for key, value in metadata.items():
        name = key.removeprefix(f"{architecture}.")
        if name != key and _KEPT.fullmatch(name) and (plain := _plain(value)) is not None:
            kept[name] = plain
    for name in _TOKENIZER:
        if (plain := _plain(metadata.get(f"tokenizer.ggml.{name}", ""))) not in (None, ""):
            kept[f"tokenizer_{name}"] = plain
    # Some models have one template for each purpose, by names behind the key.
    if any(key.startswith(_TEMPLATE) for key in metadata):
        kept["has_chat_template"] = True
    return dict(sorted(kept.items()))


def _plain(value: Meta) -> ParameterValue | None:
    """A value as the lock has it; None for one that is no number, text or array of whole numbers."""
    if isinstance(value, tuple):
        whole = tuple(int(entry) for entry in value if isinstance(entry, int))
        return whole if len(whole) == len(value) else None
    if isinstance(value, str):
        return _readable(value)
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _readable(text: str) -> str:
    """A text on one line that a terminal and a lock can show."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def _groups(tensors: Sequence[TensorInfo]) -> tuple[TensorGroup, ...]:
    """Tensors outside of the layers first; by name, then by where a type or shape first appears."""
    layers: dict[tuple[str, str, tuple[int, ...]], list[int]] = {}
    outside: list[TensorGroup] = []
    for tensor in tensors:
        if match := _LAYER.fullmatch(tensor.name):
            layers.setdefault((match[2], tensor.type, tensor.shape), []).append(int(match[1]))
        else:
            outside.append(TensorGroup(name=tensor.name, type=tensor.type, shape=tensor.shape))
    inside = [
        TensorGroup(name=name, type=type_, shape=shape, layers=ranges(numbers))
        for (name, type_, shape), numbers in sorted(layers.items(), key=lambda item: (item[0][0], min(item[1])))
    ]
    return (*sorted(outside, key=lambda group: group.name), *inside)
