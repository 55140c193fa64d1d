"""Models that embed texts, in the shapes of real ones: names, types and sizes, no weights."""

from __future__ import annotations

from benchmarks.memory_tensors import Attention, Dense, attention_of, dense_of, ends, norms, parameters_of
from tests.support.gguf_files import Model, Weight

MEAN, LAST = 1, 3
"""Types of pooling, as a header has them (llama.cpp b11434, include/llama.h)."""


def qwen3_embedding() -> Model:
    """Qwen3 Embedding 0.6B: a causal model whose last token counts; the output is the embeddings."""
    attention, dense, embedding, layers, tokens = Attention(16, 8, 128), Dense(3072, "Q8_0"), 1024, 28, 151_669
    weights = [*ends(embedding, tokens, output=False)]
    for layer in range(layers):
        weights += attention_of(layer, embedding, attention, norms=True)
        weights += dense_of(layer, embedding, dense)
        weights += norms(layer, embedding, "attn_norm", "ffn_norm")
    parameters = parameters_of(embedding, layers, 32_768, attention)
    parameters |= {"feed_forward_length": dense.width, "pooling_type": LAST}
    return Model("qwen3", "Qwen3 Embedding 0.6B in shape", parameters, tuple(weights), tokens)


def bge_m3() -> Model:
    """bge m3: an encoder without a cache and without an output."""
    embedding, layers, width, tokens, positions = 1024, 24, 4096, 250_002, 8192
    weights = [
        Weight("token_embd.weight", (embedding, tokens), "F16"),
        Weight("position_embd.weight", (embedding, positions), "F16"),
        Weight("token_types.weight", (embedding, 1)),
        Weight("token_embd_norm.weight", (embedding,)),
        Weight("token_embd_norm.bias", (embedding,)),
    ]
    for layer in range(layers):
        matrices = {f"attn_{name}": (embedding, embedding) for name in ("q", "k", "v", "output")}
        matrices |= {"ffn_up": (embedding, width), "ffn_down": (width, embedding)}
        for name, shape in matrices.items():
            weights.append(Weight(f"blk.{layer}.{name}.weight", shape, "F16"))
            weights.append(Weight(f"blk.{layer}.{name}.bias", shape[1:]))
        for name in ("attn_output_norm", "layer_output_norm"):
            weights += [Weight(f"blk.{layer}.{name}.{part}", (embedding,)) for part in ("weight", "bias")]
    parameters = {
        "block_count": layers,
        "context_length": positions,
        "embedding_length": embedding,
        "feed_forward_length": width,
        "attention.head_count": 16,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.causal": 0,
        "pooling_type": MEAN,
    }
    return Model("bert", "bge m3 in shape", parameters, tuple(weights), tokens)
