"""The joined headers of a model's shards: hyperparameters and tensors, for sizing and checks.

Tensors are stored by name, type and shape, in groups that a person can review in a lock.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, StringConstraints, model_validator

from llamaherd.text.quoting import Line

BERT = frozenset({"bert", "jina-bert-v2", "jina-bert-v3", "nomic-bert", "nomic-bert-moe"})
"""They share one graph (src/models/bert.cpp), which normalises after each part of a layer."""

ROTATED = frozenset({"jina-bert-v3", "modern-bert", "nomic-bert", "nomic-bert-moe"})
"""Encoders that rotate queries and keys by position, into new tensors."""

WITHOUT_OUTPUT = BERT | {"eurobert", "modern-bert", "neo-bert"}
"""They load no output matrix, and no copy of the embeddings in its place."""

WITHOUT_LOGITS = WITHOUT_OUTPUT | {"clef", "gemma-embedding", "llama-embed", "t5encoder"}
"""Their graphs end with the embeddings."""

LOGITS_FOR_CHAT = frozenset({"lfm2", "lfm2moe"})
"""Their graphs compute logits unless embeddings are on (src/models/lfm2.cpp:287)."""

WITHOUT_CACHE = WITHOUT_OUTPUT | {"clef", "dream", "gemma-embedding", "llada", "llada-moe", "rnd1"}
"""A token attends to the tokens of its own batch, and llama.cpp stores no keys and values of them."""

WINDOWS: dict[str, tuple[int | None, int, bool]] = {"gemma-embedding": (None, 6, False), "modern-bert": (None, 3, True)}
"""Architectures with sliding windows: default, period, and whether the first layer attends to all tokens."""


# Sliding windows: the default window in tokens (None: no window without a value in the header), the period of layers
# that attend to all tokens, and whether that layer is the first of a period instead of the last.
_WINDOWS: dict[str, tuple[int | None, int, bool]] = {
    **WINDOWS,
    "afmoe": (None, 4, False),
    "cohere2": (None, 4, False),
    "cohere2moe": (None, 4, True),
    "exaone-moe": (128, 4, False),
    "gemma2": (4096, 2, False),
    "gemma3": (None, 6, False),
    "gemma3n": (None, 5, False),
    "gemma4": (None, 0, False),
    "gpt-oss": (None, 2, False),
    "laguna": (None, 4, True),
    "llama4": (8192, 4, False),
    "mellum": (None, 4, False),
    "mimo2": (None, 0, False),
    "olmo2": (None, 4, False),
    "plamo3": (None, 8, False),
    "smallthinker": (None, 4, True),
    "step35": (None, 0, False),
}

# Layers with a recurrent state, every n-th one being attention (src/models/qwen35moe.cpp:22-30).
_DELTA_NET = {"qwen3next", "qwen35", "qwen35moe"}

# Layers without KV heads are recurrent.
_MIXED = {"jamba", "granitehybrid", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe"}

_MEASURED = {"granitehybrid", "nemotron_h", "nemotron_h_moe"}
"""Those whose caches and states servers logged (tests/data/compute_buffers_h200.jsonl)."""

ROLLBACK = {"qwen35", "qwen35moe", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe"}
"""Recurrent models that keep a copy of the state for each drafted token (llama-arch.cpp:1162-1179)."""

_PLAIN = {
    "command-r", "deepseek2", "dots1", "ernie4_5", "ernie4_5-moe", "glm4", "glm4moe", "granite", "granitemoe",
    "hunyuan-dense", "hunyuan-moe", "internlm2", "llama", "minimax-m2", "mistral3", "olmo", "olmoe", "phi2", "phi3",
    "phimoe", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "seed_oss", "smollm3",
    "stablelm", "starcoder2",
}  # fmt: skip
"""Every layer has KV of the whole context (the default branch of create_memory)."""


@dataclass(frozen=True)
class Layer:
    """One layer. `keys` and `values` are numbers per token; `state` are numbers per copy of the state.

    `window` is the number of tokens that it attends to, 0 for all. `heads` are those of the queries, and `wide` is its
    dense feed-forward part. A `head` predicts further tokens and is used by drafts alone.
    `source` is the layer whose keys and values it
    reads, where it keeps none. Without `cached`, keys and values are there for one batch and are not kept.
    """

    index: int
    keys: int = 0
    values: int = 0
    window: int = 0
    state: int = 0
    heads: int = 0
    wide: int = 0
    head: bool = False
    source: int | None = None
    cached: bool = True

    @property
    def kind(self) -> tuple[int, ...]:
        """The sizes that layers of one kind share."""
        return self.keys, self.values, self.window, self.state, self.heads, self.wide


def model_layers(header: Header) -> tuple[Layer, ...]:
    """Return every layer of a model, prediction heads included."""
    windows, recurrent, state, keeps = _windows(header), _recurrent(header), _state(header), _layers_with_kv(header)
    heads, wide, trunk = header.per_layer("attention.head_count"), header.per_layer("feed_forward_length"), header.trunk
    found = []
    for index, window in enumerate(windows):
        keys, values = (0, 0) if recurrent[index] or index >= keeps else _attention(header, index, window)
        found.append(
            Layer(
                index,
                keys,
                values,
                window,
                state=state if recurrent[index] else 0,
                heads=_at(heads, index),
                wide=_at(wide, index),
                head=index >= trunk,
                cached=header.architecture not in WITHOUT_CACHE,
                # llama-model.cpp (create_memory): the last layer of its kind that keeps some.
                source=keeps - (2 if window else 1) if keeps <= index < trunk and keeps > 1 else None,
            )
        )
    return tuple(found)


def layer_doubts(header: Header) -> Iterator[str]:
    """Yield the reasons why the layers may differ from the real ones, a sentence each."""
    name = header.architecture
    if name in _MIXED - _MEASURED:
        yield f"the layers of architecture `{name}` are read from its source, but not measured"
    elif name not in {*_PLAIN, *_MEASURED, *_DELTA_NET, *_WINDOWS, *WITHOUT_CACHE}:
        yield f"architecture `{name}` is not known: every layer is taken to keep keys and values of the whole context"
    if not header.layers:
        yield "the header has no number of layers"
    if header.layers and not header.number("embedding_length"):
        yield "the header has no embedding length"


def _attention(header: Header, index: int, window: int) -> tuple[int, int]:
    """Return the numbers per token in the keys and in the values of one layer (llama-hparams.cpp:114-140)."""
    heads = _at(header.per_layer("attention.head_count"), index)
    heads_kv = _at(header.per_layer("attention.head_count_kv", heads), index)
    width = header.number("embedding_length") // max(1, _at(header.per_layer("attention.head_count"), 0))
    key = header.number("attention.key_length", width)
    value = header.number("attention.value_length", width)
    if window:
        key = header.number("attention.key_length_swa", key)
        value = header.number("attention.value_length_swa", value)
    if header.number("attention.key_length_mla") and header.number("attention.value_length_mla"):
        value = 0  # one compressed row stands for both (llama-kv-cache.cpp:230)
    return heads_kv * key, heads_kv * value


def _windows(header: Header) -> tuple[int, ...]:
    """Return the number of tokens that each layer attends to, 0 for all."""
    everything = (0,) * header.layers
    if header.architecture not in _WINDOWS:
        return everything
    default, period, first = _WINDOWS[header.architecture]
    window = header.number("attention.sliding_window", default or 0)
    if header.architecture == "llama4" and window:
        window = 8192
    pattern = header.parameters.get("attention.sliding_window_pattern", period)
    if not window:
        return everything
    if isinstance(pattern, tuple):
        return tuple(window if index < len(pattern) and pattern[index] else 0 for index in range(header.layers))
    period = int(pattern) if isinstance(pattern, bool | int | float) else period
    return tuple(
        window if index < header.trunk and (not period or index % period != (0 if first else period - 1)) else 0
        for index in range(header.layers)
    )


def _recurrent(header: Header) -> tuple[bool, ...]:
    """Return for each layer whether it has a recurrent state instead of KV."""
    if header.architecture in _DELTA_NET:
        said = header.parameters.get("attention.recurrent_layers")
        if isinstance(said, tuple):
            return tuple(bool(_at(said, index)) for index in range(header.layers))
        interval = max(1, header.number("full_attention_interval", 4))
        return tuple(index < header.trunk and (index + 1) % interval != 0 for index in range(header.layers))
    if header.architecture in _MIXED:
        heads = header.per_layer("attention.head_count_kv", 1)
        wide = header.per_layer("feed_forward_length")
        alone = header.architecture.startswith("nemotron_h")  # there, a layer has one thing: attention, state or FFN
        return (
            tuple(_at(heads, index) == 0 and not (alone and _at(wide, index)) for index in range(header.trunk))
            + (False,) * header.heads
        )
    return (False,) * header.layers


def _layers_with_kv(header: Header) -> int:
    """Return how many layers from the start keep KV; the later layers read it (gemma4.cpp:8-11, gemma3n.cpp:7)."""
    if header.architecture == "gemma4":
        return header.layers - header.number("attention.shared_kv_layers")
    return 20 if header.architecture == "gemma3n" else header.layers


def _state(header: Header) -> int:
    """Return the numbers in one copy of a layer's state: the convolution's last inputs, and the state.

    llama-hparams.cpp:158.
    """
    if cache := header.number("shortconv.l_cache"):
        return header.number("embedding_length") * (cache - 1)
    inner, size = header.number("ssm.inner_size"), header.number("ssm.state_size")
    kernel = header.number("ssm.conv_kernel")
    convolution = max(0, kernel - 1) * (inner + 2 * header.number("ssm.group_count") * size)
    return convolution + size * inner


def _at(values: tuple[int, ...], index: int) -> int:
    """Return one layer's value; 0 where the array is too short."""
    return values[index] if index < len(values) else 0


ParameterValue = bool | int | FiniteFloat | Line | tuple[int, ...]
"""A hyperparameter. An array of numbers or truth values, one per layer, is a tuple; other arrays are left out."""

# enum ggml_type: mainline's (ggml/include/ggml.h:389-432 at b11434), then from Q6_0 on ik_llama.cpp's own (its
# ggml/include/ggml.h:431-486 at 67268c8fd); where both have a number, both mean the same blocks. Bytes and elements of
# one block: the structs of ggml/src/ggml-common.h, as the table type_traits of ggml/src/ggml.c uses them, of
# ik_llama.cpp its ggml/src/ggml.c:643-1948. What an engine makes of activations alone, such as Q8_K64, is in no file
# and left out.
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 4, 1),
    1: ("F16", 2, 1),
    2: ("Q4_0", 18, 32),
    3: ("Q4_1", 20, 32),
    6: ("Q5_0", 22, 32),
    7: ("Q5_1", 24, 32),
    8: ("Q8_0", 34, 32),
    9: ("Q8_1", 36, 32),
    10: ("Q2_K", 84, 256),
    11: ("Q3_K", 110, 256),
    12: ("Q4_K", 144, 256),
    13: ("Q5_K", 176, 256),
    14: ("Q6_K", 210, 256),
    15: ("Q8_K", 292, 256),
    16: ("IQ2_XXS", 66, 256),
    17: ("IQ2_XS", 74, 256),
    18: ("IQ3_XXS", 98, 256),
    19: ("IQ1_S", 50, 256),
    20: ("IQ4_NL", 18, 32),
    21: ("IQ3_S", 110, 256),
    22: ("IQ2_S", 82, 256),
    23: ("IQ4_XS", 136, 256),
    24: ("I8", 1, 1),
    25: ("I16", 2, 1),
    26: ("I32", 4, 1),
    27: ("I64", 8, 1),
    28: ("F64", 8, 1),
    29: ("IQ1_M", 56, 256),
    30: ("BF16", 2, 1),
    34: ("TQ1_0", 54, 256),
    35: ("TQ2_0", 66, 256),
    39: ("MXFP4", 17, 32),
    40: ("NVFP4", 36, 64),
    41: ("Q1_0", 18, 128),
    42: ("Q2_0", 18, 64),
    133: ("Q6_0", 26, 32),
    134: ("IQ1_BN", 13, 64),
    135: ("IQ2_BN", 16, 64),
    137: ("IQ2_K", 76, 256),
    138: ("IQ3_K", 110, 256),
    139: ("IQ4_K", 144, 256),
    140: ("IQ5_K", 176, 256),
    141: ("IQ6_K", 212, 256),
    144: ("IQ4_KS", 136, 256),
    145: ("IQ2_KS", 70, 256),
    146: ("IQ4_KSS", 128, 256),
    151: ("Q8_KV", 32, 32),
    152: ("IQ5_KS", 168, 256),
    153: ("IQ2_KT", 68, 256),
    154: ("IQ3_KT", 100, 256),
    155: ("IQ4_KT", 128, 256),
    156: ("IQ3_KS", 102, 256),
    157: ("IQ2_KL", 86, 256),
    158: ("IQ1_KT", 56, 256),
    202: ("Q4_0_R8", 18, 32),
    206: ("Q5_0_R4", 22, 32),
    208: ("Q8_0_R8", 34, 32),
    210: ("Q2_K_R4", 84, 256),
    211: ("Q3_K_R4", 110, 256),
    212: ("Q4_K_R4", 144, 256),
    213: ("Q5_K_R4", 176, 256),
    214: ("Q6_K_R4", 210, 256),
    216: ("IQ2_XXS_R4", 66, 256),
    217: ("IQ2_XS_R4", 74, 256),
    218: ("IQ3_XXS_R4", 98, 256),
    219: ("IQ1_S_R4", 6, 32),
    220: ("IQ4_NL_R4", 18, 32),
    221: ("IQ3_S_R4", 110, 256),
    222: ("IQ2_S_R4", 82, 256),
    223: ("IQ4_XS_R8", 136, 256),
    229: ("IQ1_M_R4", 7, 32),
    230: ("BF16_R16", 2, 1),
    233: ("Q6_0_R4", 26, 32),
    335: ("IQ2_BN_R4", 16, 64),
    337: ("IQ2_K_R4", 76, 256),
    338: ("IQ3_K_R4", 110, 256),
    339: ("IQ4_K_R4", 144, 256),
    340: ("IQ5_K_R4", 176, 256),
    344: ("IQ4_KS_R4", 136, 256),
    352: ("IQ5_KS_R4", 168, 256),
    397: ("Q8_K_R16", 258, 256),
    398: ("Q8_KV_R8", 32, 32),
    399: ("Q8_K_R8", 258, 256),
}
"""Types of tensors by their number in a file: name, bytes of a block, elements of a block."""
BLOCKS = {name: (size, elements) for name, size, elements in TENSOR_TYPES.values()}
"""Bytes and elements of one block of each type."""

# Bytes that each row has besides its blocks: a scale of the whole row (row_meta_size in ik_llama.cpp's
# ggml/src/ggml.c:643-1948; ggml_row_size, ggml.c:4758).
ROW_EXTRA: dict[str, int] = {
    "IQ1_BN": 2,
    "IQ2_BN": 4,
    "IQ4_KS": 4,
    "IQ2_KS": 2,
    "IQ4_KSS": 4,
    "Q8_KV": 8,
    "IQ5_KS": 4,
    "IQ2_KT": 4,
    "IQ3_KT": 4,
    "IQ4_KT": 4,
    "IQ3_KS": 2,
    "IQ2_KL": 2,
    "IQ1_KT": 4,
    "IQ1_S_R4": 2,
    "IQ1_M_R4": 2,
    "IQ2_BN_R4": 4,
    "IQ4_KS_R4": 4,
    "IQ5_KS_R4": 4,
    "Q8_KV_R8": 4,
}


def tensor_bytes(kind: str, shape: tuple[int, ...]) -> int:
    """Return the size of a tensor in bytes; its rows are whole blocks. Raise KeyError for an unknown type."""
    size, elements = BLOCKS[kind]
    return (shape[0] // elements * size + ROW_EXTRA.get(kind, 0)) * math.prod(shape[1:])


class TensorGroup(BaseModel):
    """Tensors of one name, type and shape, in one layer or many. `shape` has the fastest axis first, as GGUF does.

    `layers` are ranges such as `0-2,4`, of `blk.N.`; None for a tensor outside of the layers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    name: Line
    type: str
    shape: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]
    layers: (
        Annotated[str, StringConstraints(pattern=r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$")] | None
    ) = None

    @model_validator(mode="after")
    def _has_a_size(self) -> TensorGroup:
        # A lock may have been edited, or written by a newer llamaherd.
        if self.type not in BLOCKS:
            raise ValueError(f"`{self.type}` is not a known type of tensors")
        if self.shape[0] % BLOCKS[self.type][1]:
            raise ValueError(f"rows of {self.shape[0]} numbers are not whole blocks of {self.type}")
        return self


@dataclass(frozen=True)
class Tensor:
    """One tensor as the file names it: `blk.3.ffn_up_exps.weight`; `layer` is None outside of the layers."""

    name: str
    layer: int | None
    type: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of values in the tensor."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size in the file and in memory, in bytes. Raises KeyError for an unknown type."""
        return tensor_bytes(self.type, self.shape)

    @property
    def is_expert(self) -> bool:
        """Return whether it holds routed experts, which `--n-cpu-moe` and similar flags move (common/common.h:1224)."""
        return re.search(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", self.name) is not None


class Header(BaseModel):
    """The headers of all shards together.

    `parameters` have no architecture in front: `block_count`, not `llama.block_count`.

    `vocabulary` counts tokens; `quant` is the name of the file type, if the header contains one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)

    architecture: Line
    name: Line | None = None
    quant: Line | None = None
    vocabulary: int = 0
    parameters: dict[Line, ParameterValue] = {}
    tensors: tuple[TensorGroup, ...] = ()

    @cached_property
    def digest(self) -> str:
        """The hash of everything that decides the speed: the same for all models of this shape whose tensors have these
        types.
        """
        parts = [self.architecture, str(self.vocabulary), *(each.model_dump_json() for each in self.tensors)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @cached_property
    def each(self) -> tuple[Tensor, ...]:
        """Every single tensor."""
        return tuple(_each(self.tensors))

    @cached_property
    def each_layer(self) -> tuple[Layer, ...]:
        """Every layer, prediction heads included."""
        return model_layers(self)

    @cached_property
    def expert_layers(self) -> tuple[int, ...]:
        """The layers with routed experts, without prediction heads."""
        found = {tensor.layer for tensor in self.each if tensor.is_expert and tensor.layer is not None}
        return tuple(sorted(layer for layer in found if layer < self.trunk))

    def number(self, key: str, default: int = 0) -> int:
        """Return a hyperparameter that is one whole number."""
        value = self.parameters.get(key, default)
        return int(value) if isinstance(value, bool | int | float) else default

    def per_layer(self, key: str, default: int = 0) -> tuple[int, ...]:
        """Return a hyperparameter that may differ by layer, spread over all layers, prediction heads included."""
        value = self.parameters.get(key, default)
        if isinstance(value, tuple):
            return value
        return (int(value),) * self.layers if isinstance(value, bool | int | float) else (default,) * self.layers

    @property
    def layers(self) -> int:
        """All blocks, prediction heads (nextn) included."""
        return self.number("block_count")

    @property
    def heads(self) -> int:
        """Blocks at the end that are multi-token prediction heads."""
        return self.number("nextn_predict_layers")

    @property
    def trunk(self) -> int:
        """Blocks that every token passes."""
        return self.layers - self.heads


def spread(layers: str) -> tuple[int, ...]:
    """Return the numbers of ranges such as `0-2,4`."""
    numbers: list[int] = []
    for part in layers.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def ranges(numbers: Iterator[int] | list[int] | tuple[int, ...]) -> str:
    """Return numbers in ascending order as ranges: `0-2,4`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def _each(groups: tuple[TensorGroup, ...]) -> Iterator[Tensor]:
    for group in groups:
        if group.layers is None:
            yield Tensor(group.name, None, group.type, group.shape)
            continue
        for layer in spread(group.layers):
            yield Tensor(f"blk.{layer}.{group.name}", layer, group.type, group.shape)
