"""The files of a model: read their headers on this machine, join them, and write files without weights."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from llamaherd.gguf.header import Header, ParameterValue, TensorGroup, ranges
from llamaherd.gguf.parse import GgufError, Meta, Parsed, TensorInfo, bytes_to_fetch, parse_header

# Hyperparameters without the architecture in front (src/llama-arch.cpp:195-353 at b11434). Left out are those that
# change numbers and not sizes: epsilons, scales, soft caps, frequencies.
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
"""The keys of a tokenizer that must be the same for a draft model (llama.cpp b11434,
common/speculative.cpp:112-135).
"""
# Numbers of layers have four digits at most, so that ranges of them, edited by hand, stay small when spread.
_LAYER = re.compile(r"blk\.(0|[1-9]\d{0,3})\.(.+)")


def join_headers(shards: Sequence[Parsed]) -> Header:
    """Join the headers of a model's files, in order. Raise GgufError if they are not one model."""
    _refuse_mixture(shards)
    first = shards[0]
    if first.architecture is None:
        raise GgufError("it does not contain its architecture (general.architecture)")
    tensors = [tensor for shard in shards for tensor in shard.tensors]
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise GgufError("its shards hold a tensor of the same name twice")
    listed = first.number("split.tensors.count", len(tensors))
    if len(shards) > 1 and listed != len(tensors):
        raise GgufError(f"its shards hold {len(tensors)} tensors; the first one lists {listed}")
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
        raise GgufError(f"one of its values is not a text or number of a model: {where[:100]}") from None


def _refuse_mixture(shards: Sequence[Parsed]) -> None:
    """Check a set like llama.cpp (src/llama-model-loader.cpp:592-671 at b11434), and that all are of one set."""
    if len(shards) != shards[0].shards:
        raise GgufError(f"by its header it is one of {shards[0].shards} shards, and there are {len(shards)}")
    for index, shard in enumerate(shards):
        if shard.shard != index or shard.shards != len(shards):
            raise GgufError(
                f"file {index + 1} of {len(shards)} is shard {shard.shard + 1} of {shard.shards} by its header"
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
    """Return a value in the form of the lock; None if it is not a number, text or array of whole numbers."""
    if isinstance(value, tuple):
        whole = tuple(int(entry) for entry in value if isinstance(entry, int))
        return whole if len(whole) == len(value) else None
    if isinstance(value, str):
        return _readable(value)
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _readable(text: str) -> str:
    """Return a text on one line that a terminal and a lock can show."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def _groups(tensors: Sequence[TensorInfo]) -> tuple[TensorGroup, ...]:
    """Group tensors: those outside of the layers first; by name, then by where a type or shape first appears."""
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


FIRST = 8 << 20
"""Bytes of the first try: most headers are whole then, and each try begins anew."""

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf")


def read_header(path: Path) -> Parsed:
    """Return the header of one file, and check that the file is as large as its tensors need. Raise GgufError."""
    try:
        # Reading a pipe would wait, and a device has no end.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise GgufError("it is no file")
        with path.open("rb") as stream:
            size = path.stat().st_size
            data, wanted = bytearray(), FIRST
            while True:
                # No more than the file has: a header may claim to be as large as memory.
                data += stream.read(min(wanted, size) - len(data))
                header = parse_header(data)
                if isinstance(header, Parsed):
                    break
                if len(data) < wanted:
                    where = f"it ends inside its header, at byte {len(data)}"
                    raise GgufError(where if data else "the file is empty")
                wanted = bytes_to_fetch(len(data), header.needed)
    except OSError as error:
        raise GgufError(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None
    except GgufError as error:
        raise GgufError(f"{path}: {error}") from None
    if size < header.size:
        raise GgufError(f"{path} has {size} bytes of {header.size}: it was not copied or fetched to its end")
    return header


def read_headers(path: Path) -> tuple[Parsed, ...]:
    """Return the headers of all shards of a model; `path` is its only file, or the first shard. Raise GgufError."""
    first = read_header(path)
    if first.shard != 0:
        raise GgufError(f"{path} is shard {first.shard + 1} of {first.shards}: name the first one, as for an engine")
    return (first, *(read_header(sibling) for sibling in _siblings(path, first.shards)))


def _siblings(path: Path, shards: int) -> list[Path]:
    """Return the other shards, by the names that engines expect (`llama_split_path`, src/llama.cpp:552 at b11434)."""
    if shards == 1:
        return []
    name = _SHARD.fullmatch(path.name)
    if name is None or (int(name["number"]), int(name["total"])) != (1, shards):
        raise GgufError(
            f"{path} is shard 1 of {shards} by its header, so its name must end in -00001-of-{shards:05}.gguf"
        )
    paths = [path.with_name(f"{name['stem']}-{number:05}-of-{name['total']}.gguf") for number in range(2, shards + 1)]
    absent = [sibling.name for sibling in paths if not sibling.is_file()]
    if absent:
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise GgufError(f"{path.parent} lacks {len(absent)} of {shards} shards: {', '.join(absent[:3])}{more}")
    return paths
