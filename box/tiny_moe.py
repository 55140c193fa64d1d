"""Write a tiny mixture-of-experts model with an MTP head that any llama.cpp can load.

It has every part of a Qwen3.5 MoE (Gated DeltaNet and attention layers, routed and shared experts, a
multi-token-prediction head) in 7 MB, so a rig can prove that it serves such models, and that drafting is
really on, without fetching tens of gigabytes.

The weights are noise derived from the tensors' names, except that the output layer is tied to the embeddings
so that the model recites the alphabet after a chat prompt.  An answer can therefore be checked, and the head,
which passes the embedding on, predicts the same letter: its drafts are accepted.

Every byte follows from this file alone, so the model's sha256 can be pinned.
"""

import hashlib
import itertools
import os
import string
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter

Array = npt.NDArray[np.float32] | npt.NDArray[np.uint8]

EMBEDDING = 256
LAYERS = 4  # three of DeltaNet and one of attention, the real models' rhythm
CONTEXT = 8192
HEADS, KV_HEADS, HEAD_SIZE = 4, 2, 64
EXPERTS, EXPERTS_USED, EXPERT_WIDTH = 8, 2, 128
VALUE_HEADS, KEY_HEADS, STATE_SIZE, CONVOLUTION = 4, 2, 64, 4

BLOCK = 32  # weights in one Q8_0 block: a float16 scale and as many int8
LOUD, QUIET = 2.0**-7, 2.0**-13  # embeddings must outweigh what the noisy layers add to them

START, END = "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write(path: Path) -> None:
    """Write the model; a file that is already at `path` is replaced in one step."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    writer = GGUFWriter(unfinished, "qwen35moe")
    _hyperparameters(writer)
    _tokenizer(writer)
    for name, data in _tensors():
        kind = GGMLQuantizationType.Q8_0 if data.dtype == np.uint8 else GGMLQuantizationType.F32
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.replace(path)


def _hyperparameters(writer: GGUFWriter) -> None:
    """The shape, in the architecture's own keys."""
    writer.add_name("llamaherd tiny MoE")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS + 1)  # the MTP head counts as a block
    writer.add_nextn_predict_layers(1)
    writer.add_full_attention_interval(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e7)
    writer.add_rope_dimension_count(HEAD_SIZE // 4)
    writer.add_rope_dimension_sections([3, 3, 2, 0])
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(EXPERTS_USED)
    writer.add_expert_feed_forward_length(EXPERT_WIDTH)
    writer.add_expert_shared_feed_forward_length(EXPERT_WIDTH)
    writer.add_ssm_conv_kernel(CONVOLUTION)
    writer.add_ssm_inner_size(VALUE_HEADS * STATE_SIZE)
    writer.add_ssm_state_size(STATE_SIZE)
    writer.add_ssm_time_step_rank(VALUE_HEADS)
    writer.add_ssm_group_count(KEY_HEADS)


def vocabulary() -> list[str]:
    """One token per byte, in the byte-level alphabet of GPT-2's tokenizer, and the chat markers."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    tokens = [*(letters[byte] for byte in range(256)), START, END]
    return tokens + [f"<|unused{i}|>" for i in range(-len(tokens) % BLOCK)]


def _tokenizer(writer: GGUFWriter) -> None:
    """A vocabulary that can spell any text."""
    tokens = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    normal, control = 1, 3
    writer.add_token_types([normal] * 256 + [control] * (len(tokens) - 256))
    # The loader insists on a merge; this one never applies, because its result is no token.
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(tokens.index(START))
    writer.add_eos_token_id(tokens.index(END))
    writer.add_pad_token_id(tokens.index(END) + 1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _noise(name: str, *shape: int) -> npt.NDArray[np.int8]:
    """Bytes that follow from the tensor's name: the same on every machine and for ever."""
    count = int(np.prod(shape))
    return np.frombuffer(hashlib.shake_256(name.encode()).digest(count), np.int8).reshape(shape)


def _quantised(weights: npt.NDArray[np.int8], scale: float) -> npt.NDArray[np.uint8]:
    """Q8_0 blocks that hold `scale * weights`; scales are powers of two, so nothing is rounded."""
    rows = weights.reshape(*weights.shape[:-1], -1, BLOCK)
    blocks = np.empty((*rows.shape[:-1], 2 + BLOCK), np.uint8)
    blocks[..., :2] = np.array([scale], "<f2").view(np.uint8)
    blocks[..., 2:] = rows.view(np.uint8)
    return blocks.reshape(*weights.shape[:-1], -1)


def _floats(name: str, *shape: int) -> npt.NDArray[np.float32]:
    """Noise between -1/32 and 1/32."""
    return _noise(name, *shape).astype(np.float32) * np.float32(2.0**-12)


def _tensors() -> Iterator[tuple[str, Array]]:
    """Every tensor with its data; rows are outputs, as numpy and PyTorch see them."""
    yield from _vocabulary_tensors()
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        yield from _delta_net(block) if layer < LAYERS - 1 else _attention(block)
        yield from _experts(block)
    head = f"blk.{LAYERS}"
    yield from _attention(head)
    yield from _experts(head)
    # The head is given the last token's embedding and the main model's hidden state, side by side, and passes
    # the embedding on: what it then predicts is what the main model predicts from that embedding.
    passing = np.concatenate([np.eye(EMBEDDING, dtype=np.int8), np.zeros((EMBEDDING, EMBEDDING), np.int8)], axis=1)
    yield f"{head}.nextn.eh_proj.weight", _quantised(passing, 1.0)
    for norm in ("enorm", "hnorm", "shared_head_norm"):
        yield f"{head}.nextn.{norm}.weight", np.ones(EMBEDDING, np.float32)


def _vocabulary_tensors() -> Iterator[tuple[str, Array]]:
    """Embeddings, and an output layer in which each letter answers to the one before it."""
    tokens = vocabulary()
    embedding = _noise("token_embd.weight", len(tokens), EMBEDDING)
    output = np.zeros_like(embedding)
    recital = [tokens[ord("\n")], *string.ascii_lowercase, END]
    for before, after in itertools.pairwise(recital):
        output[tokens.index(after)] = embedding[tokens.index(before)]
    yield "token_embd.weight", _quantised(embedding, LOUD)
    yield "output_norm.weight", np.ones(EMBEDDING, np.float32)
    yield "output.weight", _quantised(output, LOUD)


def _matrix(name: str, *shape: int) -> tuple[str, Array]:
    """A matrix, or a stack of them, of quiet noise."""
    return name, _quantised(_noise(name, *shape), QUIET)


def _norms(block: str) -> Iterator[tuple[str, Array]]:
    """The two norms of every block."""
    yield f"{block}.attn_norm.weight", np.ones(EMBEDDING, np.float32)
    yield f"{block}.post_attention_norm.weight", np.ones(EMBEDDING, np.float32)


def _attention(block: str) -> Iterator[tuple[str, Array]]:
    """Gated attention: the query projection carries the gate, hence its double height."""
    yield from _norms(block)
    yield _matrix(f"{block}.attn_q.weight", 2 * HEADS * HEAD_SIZE, EMBEDDING)
    yield _matrix(f"{block}.attn_k.weight", KV_HEADS * HEAD_SIZE, EMBEDDING)
    yield _matrix(f"{block}.attn_v.weight", KV_HEADS * HEAD_SIZE, EMBEDDING)
    yield _matrix(f"{block}.attn_output.weight", EMBEDDING, HEADS * HEAD_SIZE)
    yield f"{block}.attn_q_norm.weight", np.ones(HEAD_SIZE, np.float32)
    yield f"{block}.attn_k_norm.weight", np.ones(HEAD_SIZE, np.float32)


def _delta_net(block: str) -> Iterator[tuple[str, Array]]:
    """A Gated DeltaNet layer, the recurrent stand-in for attention."""
    keys, values = KEY_HEADS * STATE_SIZE, VALUE_HEADS * STATE_SIZE
    yield from _norms(block)
    yield _matrix(f"{block}.attn_qkv.weight", 2 * keys + values, EMBEDDING)
    yield _matrix(f"{block}.attn_gate.weight", values, EMBEDDING)
    for name, shape in {
        "ssm_conv1d.weight": (2 * keys + values, CONVOLUTION),
        "ssm_dt.bias": (VALUE_HEADS,),
        "ssm_beta.weight": (VALUE_HEADS, EMBEDDING),
        "ssm_alpha.weight": (VALUE_HEADS, EMBEDDING),
    }.items():
        yield f"{block}.{name}", _floats(f"{block}.{name}", *shape)
    # Minus a decay rate: anything that is not negative would make the state grow without bound.
    yield f"{block}.ssm_a", np.full(VALUE_HEADS, -0.5, np.float32)
    yield f"{block}.ssm_norm.weight", np.ones(STATE_SIZE, np.float32)
    yield _matrix(f"{block}.ssm_out.weight", EMBEDDING, values)


def _experts(block: str) -> Iterator[tuple[str, Array]]:
    """The router, its experts, and the shared expert with its own gate."""
    yield f"{block}.ffn_gate_inp.weight", _floats(f"{block}.ffn_gate_inp.weight", EXPERTS, EMBEDDING)
    yield f"{block}.ffn_gate_inp_shexp.weight", _floats(f"{block}.ffn_gate_inp_shexp.weight", EMBEDDING)
    for kind, stack in (("exps", (EXPERTS,)), ("shexp", ())):
        yield _matrix(f"{block}.ffn_gate_{kind}.weight", *stack, EXPERT_WIDTH, EMBEDDING)
        yield _matrix(f"{block}.ffn_up_{kind}.weight", *stack, EXPERT_WIDTH, EMBEDDING)
        yield _matrix(f"{block}.ffn_down_{kind}.weight", *stack, EMBEDDING, EXPERT_WIDTH)
