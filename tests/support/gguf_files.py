"""GGUF files with the shapes of real models: a header that engines load, and a hole or noise for the weights."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES

from box import tiny_moe

TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
QWEN_TOKENS, QWEN_MERGES = 248_320, 247_587  # Qwen3.5's vocabulary
FEW_TOKENS = 512  # what a header needs at least to be loaded, and some

# Where a block has its scales, 16-bit floats, in bytes from its start (ggml/src/ggml-common.h of llama.cpp).
_SCALES = {"Q4_0": (0,), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
_LENGTH = struct.Struct("<Q").pack
_SCALE = 2.0**-11  # of noise: small enough that nothing grows without bounds on its way through the layers
_CHUNK = 1 << 26  # bytes of noise that are made, and written again and again


@dataclass(frozen=True)
class Weight:
    """A tensor; `shape` has the fastest axis first, as the header does."""

    name: str
    shape: tuple[int, ...]
    type: str = "F32"

    @property
    def bytes(self) -> int:
        """Its size in the file, by the library's own table."""
        elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[self.type]]
        return int(np.prod(self.shape, dtype=np.int64)) // int(elements) * int(size)


@dataclass(frozen=True)
class Model:
    """What a file says. `parameters` have no architecture in front; a tuple becomes an array.

    `labels` are those of a classification head.
    """

    architecture: str
    name: str
    parameters: Mapping[str, int | float | str | tuple[int, ...]]
    tensors: tuple[Weight, ...]
    tokens: int = FEW_TOKENS
    merges: int = 1
    file_type: int = 15  # Q4_K_M
    template: str = TEMPLATE
    labels: tuple[str, ...] = ()


class Texts(list[str]):
    """Texts that are packed once, for all files that have them."""

    @cached_property
    def packed(self) -> bytes:
        """Return their lengths and bytes as a file has them."""
        return b"".join(part for text in map(str.encode, self) for part in (_LENGTH(len(text)), text))


class Writer(GGUFWriter):
    """The library's writer, but fast: its own packs a vocabulary value by value, which takes seconds."""

    def _pack_val(
        self, val: Any, vtype: GGUFValueType, add_vtype: bool, sub_type: GGUFValueType | None = None
    ) -> bytes:
        """Return the bytes of a value; arrays of texts and of whole numbers are packed at once."""
        kinds = set(map(type, val)) if vtype is GGUFValueType.ARRAY and sub_type is None else set()
        if kinds == {str}:
            packed = (val if isinstance(val, Texts) else Texts(val)).packed
            head = struct.pack("<IQ", GGUFValueType.STRING, len(val))
        elif kinds == {int}:
            packed = struct.pack(f"<{len(val)}i", *val)
            head = struct.pack("<IQ", GGUFValueType.INT32, len(val))
        else:
            return super()._pack_val(val, vtype, add_vtype, sub_type)
        return (struct.pack("<I", vtype) if add_vtype else b"") + head + packed


def write(
    model: Model, path: Path, per_shard: int = 0, *, tensors_in_first: bool = True, noise: bool = False
) -> list[Path]:
    """Write one file, or with `per_shard` (tensors) a set of shards beside `path`. Returns what was written, in order.

    The keys are in the first shard alone, as llama-gguf-split does it. With `noise`, the weights are such that an
    engine can compute with them; raises KeyError for a type whose blocks are not known here.
    """
    writer = Writer(path, model.architecture, split_max_tensors=per_shard, small_first_shard=not tensors_in_first)
    _keys(writer, model)
    _tokenizer(writer, model, says_words=noise)
    for weight in model.tensors:
        writer.add_tensor_info(
            weight.name,
            weight.shape[::-1],
            np.dtype(np.float32),
            weight.bytes,
            raw_dtype=GGMLQuantizationType[weight.type],
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    streams = list(writer.fout or ())
    for stream, held in zip(streams, writer.tensors, strict=True):
        data = sum(GGUFWriter.ggml_pad(info.nbytes, writer.data_alignment) for info in held.values())
        start = GGUFWriter.ggml_pad(stream.tell(), writer.data_alignment)
        stream.truncate(start + data)
        if noise:
            stream.seek(start)
            for name, info in held.items():
                stream.writelines(_noise(name, info.dtype, info.nbytes))
                stream.seek(-info.nbytes % writer.data_alignment, 1)
    written = [Path(stream.name) for stream in streams]
    writer.close()
    return written


def _noise(name: str, type_: GGMLQuantizationType, size: int) -> Iterator[memoryview]:
    """The bytes of a tensor: blocks of random numbers and sane scales; ones in a norm."""
    if type_ is GGMLQuantizationType.F32:
        floats = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(size // 4, np.float32) / 64
        if name.endswith("norm.weight"):
            floats = np.ones_like(floats)
        elif name.endswith("ssm_a"):  # a decay
            floats = -abs(floats)
        yield memoryview(floats.tobytes())
        return
    blocks = _blocks(type_)
    for left in itertools.takewhile(lambda left: left > 0, itertools.count(size, -len(blocks))):
        yield blocks[:left]


@cache
def _blocks(type_: GGMLQuantizationType) -> memoryview:
    """Some 64 MB of random blocks whose scales are all the same."""
    _, size = GGML_QUANT_SIZES[type_]
    blocks = np.random.default_rng(int(type_)).integers(0, 256, (_CHUNK // size, size), np.uint8)
    for at in _SCALES[type_.name]:
        blocks[:, at : at + 2] = np.frombuffer(np.float16(_SCALE).tobytes(), np.uint8)
    return memoryview(blocks.tobytes())


def _keys(writer: GGUFWriter, model: Model) -> None:
    writer.add_name(model.name)
    writer.add_file_type(model.file_type)
    for name, value in model.parameters.items():
        key = f"{model.architecture}.{name}"
        if isinstance(value, tuple):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)

    if model.labels:
        writer.add_classifier_output_labels(model.labels)


def _tokenizer(writer: GGUFWriter, model: Model, *, says_words: bool) -> None:
    tokens, types = _vocabulary(model.tokens, says_words=says_words)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_key_value("tokenizer.ggml.merges", _merges(model.merges), GGUFValueType.ARRAY)
    writer.add_bos_token_id(tokens.index(tiny_moe.START))
    writer.add_eos_token_id(tokens.index(tiny_moe.END))
    for weight in model.tensors:
        if weight.name == "token_types.weight":
            writer.add_token_type_count(weight.shape[1])
    writer.add_chat_template(model.template)


@lru_cache(maxsize=8)
def _vocabulary(count: int, *, says_words: bool) -> tuple[Texts, list[int]]:
    """Return tokens in which any text can be spelt, and their types.

    They are filled up with tokens that no text has: words, for what computes.
    """
    tokens = Texts(tiny_moe.vocabulary())
    known = len(tokens)
    word = "\u0120w{}" if says_words else "<|{}|>"  # as GPT-2 writes a space
    tokens += [word.format(number) for number in range(known, count)]
    normal, control = 1, 3
    filling = [normal if says_words else control] * (len(tokens) - known)
    return tokens, [normal] * 256 + [control] * (known - 256) + filling


@lru_cache(maxsize=8)
def _merges(count: int) -> Texts:
    return Texts(f"a{number} b{number}" for number in range(count))


@dataclass(frozen=True)
class _Qwen:
    """What tells one Qwen3.5 MoE from another."""

    embedding: int
    layers: int
    heads: int
    expert_width: int
    value_heads: int


QWEN_35B = _Qwen(embedding=2048, layers=40, heads=16, expert_width=512, value_heads=32)
QWEN_122B = _Qwen(embedding=3072, layers=48, heads=32, expert_width=1024, value_heads=64)
_EXPERTS, _HEAD, _KV_HEADS, _STATE, _KEY_HEADS, _CONVOLUTION, _RHYTHM = 256, 256, 2, 128, 16, 4, 4


def qwen(
    shape: _Qwen = QWEN_35B,
    *,
    experts: str = "Q4_K",
    down: str = "",
    dense: str = "Q8_0",
    embed: str = "Q6_K",
    mtp: bool = True,
    tokens: int = FEW_TOKENS,
    merges: int = 1,
) -> Model:
    """Qwen3.5/3.6 35B-A3B or 122B-A10B: DeltaNet and attention layers, experts, one prediction head if `mtp`."""
    total = shape.layers + mtp
    parameters: dict[str, int | float | str | tuple[int, ...]] = {
        "block_count": total,
        "context_length": 262_144,
        "embedding_length": shape.embedding,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": _KV_HEADS,
        "attention.key_length": _HEAD,
        "attention.value_length": _HEAD,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e7,
        "rope.dimension_count": _HEAD // 4,
        "rope.dimension_sections": (11, 11, 10, 0),
        "expert_count": _EXPERTS,
        "expert_used_count": 8,
        "expert_feed_forward_length": shape.expert_width,
        "expert_shared_feed_forward_length": shape.expert_width,
        "ssm.conv_kernel": _CONVOLUTION,
        "ssm.inner_size": shape.value_heads * _STATE,
        "ssm.state_size": _STATE,
        "ssm.time_step_rank": shape.value_heads,
        "ssm.group_count": _KEY_HEADS,
        "full_attention_interval": _RHYTHM,
    }
    if mtp:
        parameters["nextn_predict_layers"] = 1
    weights = list(_ends(shape.embedding, tokens, embed))
    for layer in range(total):
        block = f"blk.{layer}"
        attends = layer >= shape.layers or layer % _RHYTHM == _RHYTHM - 1
        weights += _qwen_attention(block, shape, dense) if attends else _delta_net(block, shape, dense)
        weights += _qwen_experts(block, shape, experts, down or experts, dense)
        if layer >= shape.layers:
            weights.append(Weight(f"{block}.nextn.eh_proj.weight", (2 * shape.embedding, shape.embedding), dense))
            weights += [
                Weight(f"{block}.nextn.{norm}.weight", (shape.embedding,))
                for norm in ("enorm", "hnorm", "shared_head_norm")
            ]
    return Model("qwen35moe", "Qwen in shape", parameters, tuple(weights), tokens, merges)


def _ends(embedding: int, tokens: int, kind: str) -> Iterator[Weight]:
    yield Weight("token_embd.weight", (embedding, tokens), kind)
    yield Weight("output_norm.weight", (embedding,))
    yield Weight("output.weight", (embedding, tokens), kind)


def _qwen_norms(block: str, shape: _Qwen) -> list[Weight]:
    return [Weight(f"{block}.{norm}.weight", (shape.embedding,)) for norm in ("attn_norm", "post_attention_norm")]


def _qwen_attention(block: str, shape: _Qwen, dense: str) -> list[Weight]:
    width = shape.heads * _HEAD
    return [
        *_qwen_norms(block, shape),
        Weight(f"{block}.attn_q.weight", (shape.embedding, 2 * width), dense),
        Weight(f"{block}.attn_k.weight", (shape.embedding, _KV_HEADS * _HEAD), dense),
        Weight(f"{block}.attn_v.weight", (shape.embedding, _KV_HEADS * _HEAD), dense),
        Weight(f"{block}.attn_output.weight", (width, shape.embedding), dense),
        Weight(f"{block}.attn_q_norm.weight", (_HEAD,)),
        Weight(f"{block}.attn_k_norm.weight", (_HEAD,)),
    ]


def _delta_net(block: str, shape: _Qwen, dense: str) -> list[Weight]:
    values, mixed = shape.value_heads * _STATE, shape.value_heads * _STATE + 2 * _KEY_HEADS * _STATE
    return [
        *_qwen_norms(block, shape),
        Weight(f"{block}.attn_qkv.weight", (shape.embedding, mixed), dense),
        Weight(f"{block}.attn_gate.weight", (shape.embedding, values), dense),
        Weight(f"{block}.ssm_conv1d.weight", (_CONVOLUTION, mixed)),
        Weight(f"{block}.ssm_dt.bias", (shape.value_heads,)),
        Weight(f"{block}.ssm_a", (shape.value_heads,)),
        Weight(f"{block}.ssm_beta.weight", (shape.embedding, shape.value_heads)),
        Weight(f"{block}.ssm_alpha.weight", (shape.embedding, shape.value_heads)),
        Weight(f"{block}.ssm_norm.weight", (_STATE,)),
        Weight(f"{block}.ssm_out.weight", (values, shape.embedding), dense),
    ]


def _qwen_experts(block: str, shape: _Qwen, experts: str, down: str, dense: str) -> list[Weight]:
    embedding, width = shape.embedding, shape.expert_width
    return [
        Weight(f"{block}.ffn_gate_inp.weight", (embedding, _EXPERTS)),
        Weight(f"{block}.ffn_gate_exps.weight", (embedding, width, _EXPERTS), experts),
        Weight(f"{block}.ffn_up_exps.weight", (embedding, width, _EXPERTS), experts),
        Weight(f"{block}.ffn_down_exps.weight", (width, embedding, _EXPERTS), down),
        Weight(f"{block}.ffn_gate_inp_shexp.weight", (embedding,)),
        Weight(f"{block}.ffn_gate_shexp.weight", (embedding, width), dense),
        Weight(f"{block}.ffn_up_shexp.weight", (embedding, width), dense),
        Weight(f"{block}.ffn_down_shexp.weight", (width, embedding), dense),
    ]


def gemma3(*, tokens: int = FEW_TOKENS, dense: str = "Q8_0") -> Model:
    """Gemma 3 270M: five of six layers see a window only; the output layer is the embeddings."""
    embedding, layers, width, heads, head = 640, 18, 2048, 4, 256
    weights = [Weight("output_norm.weight", (embedding,)), Weight("token_embd.weight", (embedding, tokens), "Q8_0")]
    for layer in range(layers):
        block = f"blk.{layer}"
        weights += [
            Weight(f"{block}.{norm}.weight", (embedding,))
            for norm in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        ]
        weights += [Weight(f"{block}.{norm}.weight", (head,)) for norm in ("attn_q_norm", "attn_k_norm")]
        weights += [
            Weight(f"{block}.attn_q.weight", (embedding, heads * head), dense),
            Weight(f"{block}.attn_k.weight", (embedding, head), dense),
            Weight(f"{block}.attn_v.weight", (embedding, head), dense),
            Weight(f"{block}.attn_output.weight", (heads * head, embedding), dense),
            Weight(f"{block}.ffn_gate.weight", (embedding, width), dense),
            Weight(f"{block}.ffn_up.weight", (embedding, width), dense),
            Weight(f"{block}.ffn_down.weight", (width, embedding), dense),
        ]
    parameters: dict[str, int | float | str | tuple[int, ...]] = {
        "block_count": layers,
        "context_length": 32_768,
        "embedding_length": embedding,
        "feed_forward_length": width,
        "attention.head_count": heads,
        "attention.head_count_kv": 1,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.sliding_window": 512,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
    }
    return Model("gemma3", "Gemma in shape", parameters, tuple(weights), tokens, file_type=7)


def llama(*, tokens: int = FEW_TOKENS, dense: str = "Q4_K", layers: int = 32) -> Model:
    """Llama 3.1 8B, or one of fewer layers: dense, every layer with attention over everything."""
    return _llama(4096, 14_336, 32, layers, tokens, dense)


def llama_70b(*, tokens: int = FEW_TOKENS, dense: str = "Q4_K", layers: int = 80) -> Model:
    """Llama 3.1 70B."""
    return _llama(8192, 28_672, 64, layers, tokens, dense)


def _llama(embedding: int, width: int, heads: int, layers: int, tokens: int, dense: str) -> Model:
    kv_heads, head = 8, 128
    weights = [*_ends(embedding, tokens, "Q6_K"), Weight("rope_freqs.weight", (head // 2,))]
    for layer in range(layers):
        block = f"blk.{layer}"
        weights += [Weight(f"{block}.{norm}.weight", (embedding,)) for norm in ("attn_norm", "ffn_norm")]
        weights += [
            Weight(f"{block}.attn_q.weight", (embedding, embedding), dense),
            Weight(f"{block}.attn_k.weight", (embedding, kv_heads * head), dense),
            Weight(f"{block}.attn_v.weight", (embedding, kv_heads * head), "Q6_K"),
            Weight(f"{block}.attn_output.weight", (embedding, embedding), dense),
            Weight(f"{block}.ffn_gate.weight", (embedding, width), dense),
            Weight(f"{block}.ffn_up.weight", (embedding, width), dense),
            # Some are larger, and not in one run of layers: Q4_K_M is such a mixture.
            Weight(f"{block}.ffn_down.weight", (width, embedding), "Q6_K" if layer % 3 == 0 else dense),
        ]
    parameters: dict[str, int | float | str | tuple[int, ...]] = {
        "block_count": layers,
        "context_length": 131_072,
        "embedding_length": embedding,
        "feed_forward_length": width,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 5e5,
        "rope.dimension_count": head,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
    }
    return Model("llama", "Llama in shape", parameters, tuple(weights), tokens)


# Headers by hand, for what no writer writes.


def text(value: str | bytes) -> bytes:
    """A text with its length in front."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    """A key and its value, of the type that `kind` stands for."""
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str | bytes, kind: int = 0, shape: tuple[int, ...] = (4,), offset: int = 0) -> bytes:
    """One tensor's entry; without more, four 32-bit floats."""
    return text(name) + struct.pack(f"<I{len(shape)}QiQ", len(shape), *shape, kind, offset)


def raw(*parts: bytes, tensors: int = 0, pairs: int = 0, version: int = 3) -> bytes:
    """A header of these parts, whose counts may lie."""
    return struct.pack("<4sIQQ", b"GGUF", version, tensors, pairs) + b"".join(parts)
