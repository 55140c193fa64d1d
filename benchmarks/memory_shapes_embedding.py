"""Models that embed texts, in the shapes of real ones: names, types and sizes, no weights."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.memory_tensors import Attention, Dense, Parameters, attention_of, dense_of, ends, norms, parameters_of
from tests.support.gguf_files import Model, Weight

MEAN, CLS, LAST, RANK = 1, 2, 3, 4
"""Types of pooling, as a header has them (llama.cpp b11434, include/llama.h)."""


def qwen3_embedding() -> Model:
    """Qwen3 Embedding 0.6B: a causal model whose last token counts; the output is the embeddings."""
    return _qwen3("Qwen3 Embedding 0.6B in shape", Attention(16, 8, 128), Dense(3072, "Q8_0"), 1024, 28, 151_669, LAST)


def qwen3_embedding_8b() -> Model:
    """Qwen3 Embedding 8B."""
    attention, dense = Attention(32, 8, 128, "Q4_K"), Dense(12_288)
    return _qwen3("Qwen3 Embedding 8B in shape", attention, dense, 4096, 36, 151_665, LAST)


def qwen3_reranker() -> Model:
    """Qwen3 Reranker 0.6B: the same with two scores, of which the first is the probability of `yes`."""
    attention, dense, two = Attention(16, 8, 128), Dense(3072, "Q8_0"), Weight("cls.output.weight", (1024, 2), "F16")
    made = _qwen3("Qwen3 Reranker 0.6B in shape", attention, dense, 1024, 28, 151_669, RANK)
    return replace(made, tensors=(*made.tensors, two), labels=("yes", "no"))


def _qwen3(
    name: str, attention: Attention, dense: Dense, embedding: int, layers: int, tokens: int, pooling: int
) -> Model:
    weights = [*ends(embedding, tokens, output=False)]
    for layer in range(layers):
        weights += attention_of(layer, embedding, attention, norms=True)
        weights += dense_of(layer, embedding, dense)
        weights += norms(layer, embedding, "attn_norm", "ffn_norm")
    parameters = parameters_of(embedding, layers, 32_768, attention)
    parameters |= {"feed_forward_length": dense.width, "pooling_type": pooling}
    return Model("qwen3", name, parameters, tuple(weights), tokens)


def bge_m3() -> Model:
    """bge m3: an encoder without a cache and without an output."""
    return _bert("bert", "bge m3 in shape", 1024, 24, 16, 4096, 250_002, 8192)


def bge_reranker() -> Model:
    """bge Reranker v2 m3: the same with a classification head of two layers."""
    made = _bert("bert", "bge Reranker v2 m3 in shape", 1024, 24, 16, 4096, 250_002, 8192)
    head = [Weight("cls.weight", (1024, 1024), "F16"), Weight("cls.bias", (1024,))]
    head += [Weight("cls.output.weight", (1024, 1), "F16"), Weight("cls.output.bias", (1,))]
    return replace(made, parameters={**made.parameters, "pooling_type": RANK}, tensors=(*made.tensors, *head))


def minilm() -> Model:
    """all-MiniLM-L6-v2: the smallest that is much used."""
    return _bert("bert", "all-MiniLM-L6-v2 in shape", 384, 6, 12, 1536, 30_522, 512)


def nomic_embed() -> Model:
    """Nomic Embed v1.5: positions are rotated, and the feed-forward part has a gate."""
    return _bert("nomic-bert", "Nomic Embed v1.5 in shape", 768, 12, 12, 3072, 30_522, 2048, gate=True)


def jina_v2() -> Model:
    """Jina Embeddings v2 base: distances in place of positions, and a gate."""
    made = _bert("jina-bert-v2", "Jina Embeddings v2 base in shape", 768, 12, 12, 3072, 30_528, 8192, gate=True)
    return replace(made, parameters={**made.parameters, "attention.max_alibi_bias": 8.0})


def jina_v3() -> Model:
    """Jina Embeddings v3: the shape of bge m3, with rotated positions."""
    return _bert("jina-bert-v3", "Jina Embeddings v3 in shape", 1024, 24, 16, 4096, 250_002, 8192)


def _bert(
    architecture: str,
    name: str,
    embedding: int,
    layers: int,
    heads: int,
    width: int,
    tokens: int,
    positions: int,
    *,
    gate: bool = False,
) -> Model:
    weights = [Weight("token_embd.weight", (embedding, tokens), "F16")]
    weights += [Weight("position_embd.weight", (embedding, positions), "F16")] if architecture == "bert" else []
    weights += [Weight("token_types.weight", (embedding, 1))]
    weights += [Weight(f"token_embd_norm.{part}", (embedding,)) for part in ("weight", "bias")]
    for layer in range(layers):
        matrices = {f"attn_{part}": (embedding, embedding) for part in ("q", "k", "v", "output")}
        matrices |= {"ffn_up": (embedding, width), "ffn_down": (width, embedding)}
        matrices |= {"ffn_gate": (embedding, width)} if gate else {}
        for part, shape in matrices.items():
            weights.append(Weight(f"blk.{layer}.{part}.weight", shape, "F16"))
            if part != "ffn_gate":
                weights.append(Weight(f"blk.{layer}.{part}.bias", shape[1:]))
        for part in ("attn_output_norm", "layer_output_norm"):
            weights += [Weight(f"blk.{layer}.{part}.{kind}", (embedding,)) for kind in ("weight", "bias")]
    return Model(architecture, name, _encoder(embedding, layers, heads, width, positions, MEAN), tuple(weights), tokens)


def _encoder(embedding: int, layers: int, heads: int, width: int, positions: int, pooling: int) -> Parameters:
    return {
        "block_count": layers,
        "context_length": positions,
        "embedding_length": embedding,
        "feed_forward_length": width,
        "attention.head_count": heads,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.causal": False,
        "pooling_type": pooling,
        "rope.freq_base": 1e4,
    }


def modern_bert() -> Model:
    """GTE ModernBERT base: two of three layers see a window; gate and up are one matrix."""
    embedding, layers, width, tokens = 768, 22, 1152, 50_368
    weights = [Weight("token_embd.weight", (embedding, tokens), "F16")]
    weights += [Weight(f"{part}.weight", (embedding,)) for part in ("token_embd_norm", "output_norm")]
    for layer in range(layers):
        matrices = {"attn_qkv": (embedding, 3 * embedding), "attn_output": (embedding, embedding)}
        matrices |= {"ffn_up": (embedding, 2 * width), "ffn_down": (width, embedding)}
        weights += [Weight(f"blk.{layer}.{part}.weight", shape, "F16") for part, shape in matrices.items()]
        weights += norms(layer, embedding, *(["attn_norm"] if layer else []), "ffn_norm")
    parameters = _encoder(embedding, layers, 12, width, 8192, CLS) | {"attention.sliding_window": 128}
    return Model("modern-bert", "GTE ModernBERT base in shape", parameters, tuple(weights), tokens)


def embedding_gemma() -> Model:
    """EmbeddingGemma 300M: five of six layers see a window, and there is no cache."""
    attention, dense, embedding, layers, tokens = Attention(3, 1, 256), Dense(1152, "Q8_0"), 768, 24, 262_144
    weights = [*ends(embedding, tokens, output=False)]
    for layer in range(layers):
        weights += attention_of(layer, embedding, attention, norms=True)
        weights += dense_of(layer, embedding, dense)
        weights += norms(layer, embedding, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    parameters = parameters_of(embedding, layers, 2048, attention)
    parameters |= {"feed_forward_length": dense.width, "pooling_type": MEAN, "attention.sliding_window": 512}
    return Model("gemma-embedding", "EmbeddingGemma 300M in shape", parameters, tuple(weights), tokens)


def in_type(made: Model, type_: str) -> Model:
    """The same with all its matrices in another type; types of tokens are vectors."""
    matrices = {each.name for each in made.tensors if len(each.shape) > 1} - {"token_types.weight"}
    tensors = (replace(each, type=type_) if each.name in matrices else each for each in made.tensors)
    return replace(made, name=f"{made.name}, {type_}", tensors=tuple(tensors))
