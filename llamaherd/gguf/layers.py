"""The layers of a model by its header: their keys and values for a number of tokens, or their recurrent state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llamaherd.gguf.header import Header

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
