"""Models in the shapes of real ones, for memory to be computed and measured: names, types and sizes, no weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.support.gguf_files import QWEN_35B, QWEN_122B, QWEN_MERGES, QWEN_TOKENS, Model, Weight, gemma3, llama, qwen

Parameters = dict[str, int | float | str | tuple[int, ...]]


@dataclass(frozen=True)
class Dense:
    """The feed-forward part of a layer, by its width."""

    width: int
    type: str = "Q4_K"


@dataclass(frozen=True)
class Experts:
    """The routed experts of a layer: how many, how many at once, how wide; and the shared ones' width."""

    count: int
    used: int
    width: int
    shared: int = 0
    type: str = "Q4_K"


@dataclass(frozen=True)
class Attention:
    """Heads of queries, of keys and values, and how wide one is."""

    heads: int
    kv_heads: int
    head: int
    type: str = "Q8_0"


def models() -> dict[str, Model]:
    """Every shape by name; the first are those that docs/memory.md has most figures of."""
    return {
        "35B-A3B Q4_K": qwen(QWEN_35B, experts="Q4_K", tokens=QWEN_TOKENS, merges=QWEN_MERGES),
        "122B-A10B Q6_K": qwen(QWEN_122B, experts="Q6_K", tokens=QWEN_TOKENS, merges=QWEN_MERGES),
        "Gemma 3 270M": gemma3(tokens=262_144),
        "Llama 3.1 8B": llama(tokens=128_256),
        "Gemma 3 12B": gemma3_12b(),
        "Gemma 4 26B-A4B": gemma4_26b(),
        "Gemma 4 E4B": gemma4_e4b(),
        "Qwen3 30B-A3B": qwen3_30b(),
        "Qwen3-Next 80B-A3B": qwen3_next_80b(),
        "Qwen3.5 27B": qwen35_27b(),
        "gpt-oss 20B": gpt_oss_20b(),
        "DeepSeek V2 Lite": deepseek_v2_lite(),
        "GLM 4.5 Air": glm_45_air(),
    }


def served() -> dict[str, Model]:
    """Shapes that are small enough for a server to load, with a prediction head: real ones with eight experts."""
    return {
        "35B-A3B, 8 experts": with_experts(qwen(QWEN_35B, tokens=QWEN_TOKENS, merges=QWEN_MERGES), 8),
        "122B-A10B, 8 experts": with_experts(qwen(QWEN_122B, tokens=QWEN_TOKENS, merges=QWEN_MERGES), 8),
    }


def with_experts(model: Model, count: int) -> Model:
    """The model with so many experts. What is kept between tokens stays as large as it is."""
    before = model.parameters["expert_count"]
    tensors = tuple(
        replace(weight, shape=(*weight.shape[:-1], count))
        if "_exps." in weight.name or (weight.name.endswith("ffn_gate_inp.weight") and weight.shape[-1] == before)
        else weight
        for weight in model.tensors
    )
    return replace(model, parameters={**model.parameters, "expert_count": count}, tensors=tensors)


def gemma3_12b() -> Model:
    """Windows of 1,024 tokens in five of six layers; the output layer is the embeddings."""
    attention, dense, embedding, layers = Attention(16, 8, 256, "Q4_K"), Dense(15_360), 3840, 48
    parameters = _parameters(embedding, layers, 131_072, attention)
    parameters |= {"feed_forward_length": dense.width, "attention.sliding_window": 1024}
    weights = [*_ends(embedding, 262_144, output=False)]
    for layer in range(layers):
        weights += _attention(layer, embedding, attention, norms=True)
        weights += _dense(layer, embedding, dense)
        weights += _norms(layer, embedding, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    return Model("gemma3", "Gemma 3 12B in shape", parameters, tuple(weights), 262_144)


def gemma4_26b() -> Model:
    """Windows with heads of their own width, experts beside a dense part, keys that are values in the other layers."""
    window, full = Attention(16, 8, 256), Attention(16, 2, 512)
    embedding, layers, dense, experts = 2816, 30, Dense(2112, "Q8_0"), Experts(128, 8, 704)
    weights = [*_ends(embedding, 262_144, output=False)]
    for layer in range(layers):
        weights += _gemma4_attention(layer, embedding, full if layer % 6 == 5 else window, values=layer % 6 != 5)
        weights += _dense(layer, embedding, dense)
        weights += _norms(layer, embedding, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        weights += _norms(layer, embedding, "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2")
        weights += _experts(layer, embedding, experts)
        weights.append(Weight(f"blk.{layer}.ffn_gate_inp.scale", (embedding,)))
        weights.append(Weight(f"blk.{layer}.ffn_down_exps.scale", (experts.count,)))
    parameters = _gemma4_parameters(embedding, layers, window, full, 6) | _expert_parameters(experts)
    parameters |= {"feed_forward_length": dense.width, "embedding_length_per_layer_input": 0}
    weights.append(Weight("rope_freqs.weight", (full.head // 2,)))
    return Model("gemma4", "Gemma 4 26B-A4B in shape", parameters, tuple(weights), 262_144)


def gemma4_e4b() -> Model:
    """Embeddings for each layer; the last eighteen layers read the keys and values of earlier ones."""
    window, full = Attention(8, 2, 256), Attention(8, 2, 512)
    embedding, layers, per_layer, kept, dense = 2560, 42, 256, 24, Dense(10_240)
    weights = [
        *_ends(embedding, 262_144, output=False),
        Weight("per_layer_token_embd.weight", (per_layer * layers, 262_144), "Q6_K"),
        Weight("per_layer_model_proj.weight", (embedding, per_layer * layers), "F16"),
        Weight("per_layer_proj_norm.weight", (per_layer,)),
        Weight("rope_freqs.weight", (full.head // 2,)),
    ]
    for layer in range(layers):
        attention = full if layer % 6 == 5 else window
        weights += _gemma4_attention(layer, embedding, attention, values=layer < kept, keys=layer < kept)
        weights += _dense(layer, embedding, dense)
        weights += _norms(
            layer, embedding, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm"
        )
        weights.append(Weight(f"blk.{layer}.inp_gate.weight", (embedding, per_layer), "F32"))
        weights.append(Weight(f"blk.{layer}.proj.weight", (per_layer, embedding), "F32"))
    parameters = _gemma4_parameters(embedding, layers, window, full, 6)
    parameters |= {
        "feed_forward_length": dense.width,
        "embedding_length_per_layer_input": per_layer,
        "attention.shared_kv_layers": layers - kept,
    }
    return Model("gemma4", "Gemma 4 E4B in shape", parameters, tuple(weights), 262_144)


def qwen3_30b() -> Model:
    """Experts in every layer, attention over everything in every layer."""
    attention, experts, embedding, layers = Attention(32, 4, 128), Experts(128, 8, 768), 2048, 48
    weights = [*_ends(embedding, 151_936)]
    for layer in range(layers):
        weights += _attention(layer, embedding, attention, norms=True)
        weights += _norms(layer, embedding, "attn_norm", "ffn_norm")
        weights += _experts(layer, embedding, experts)
    parameters = _parameters(embedding, layers, 262_144, attention) | _expert_parameters(experts)
    parameters["feed_forward_length"] = 6144
    return Model("qwen3moe", "Qwen3 30B-A3B in shape", parameters, tuple(weights), 151_936)


def qwen3_next_80b() -> Model:
    """A recurrent state in three of four layers, 512 experts, ten at once."""
    attention, experts, embedding, layers = Attention(16, 2, 256), Experts(512, 10, 512, 512), 2048, 48
    weights = [*_ends(embedding, 151_936)]
    for layer in range(layers):
        weights += _norms(layer, embedding, "attn_norm", "post_attention_norm")
        weights += _experts(layer, embedding, experts, gate=True)
        if layer % 4 == 3:
            weights += _attention(layer, embedding, attention, norms=True, gated=True)
        else:
            weights += [*_delta_net(layer, embedding, 32, 16), Weight(f"blk.{layer}.ssm_ba.weight", (embedding, 64))]
    parameters = _parameters(embedding, layers, 262_144, attention) | _expert_parameters(experts) | _state(32, 16)
    return Model("qwen3next", "Qwen3-Next 80B-A3B in shape", parameters, tuple(weights), 151_936)


def qwen35_27b() -> Model:
    """Dense, with a recurrent state in three of four layers and a prediction head."""
    attention, dense, embedding, layers = Attention(24, 4, 256), Dense(17_408), 5120, 65
    weights = [*_ends(embedding, QWEN_TOKENS)]
    for layer in range(layers):
        block = f"blk.{layer}"
        weights += _norms(layer, embedding, "attn_norm", "post_attention_norm")
        weights += _dense(layer, embedding, dense)
        if layer == layers - 1 or layer % 4 == 3:
            weights += _attention(layer, embedding, attention, norms=True, gated=True)
        else:
            weights += _delta_net(layer, embedding, 48, 16)
            weights += [Weight(f"{block}.ssm_{name}.weight", (embedding, 48)) for name in ("alpha", "beta")]
    head = f"blk.{layers - 1}.nextn"
    weights.append(Weight(f"{head}.eh_proj.weight", (2 * embedding, embedding), "Q8_0"))
    weights += [Weight(f"{head}.{name}.weight", (embedding,)) for name in ("enorm", "hnorm", "shared_head_norm")]
    parameters = _parameters(embedding, layers, 262_144, attention) | _state(48, 16)
    parameters |= {"feed_forward_length": dense.width, "nextn_predict_layers": 1, "full_attention_interval": 4}
    parameters["rope.dimension_sections"] = (11, 11, 10, 0)
    return Model("qwen35", "Qwen3.5 27B in shape", parameters, tuple(weights), QWEN_TOKENS, QWEN_MERGES)


def gpt_oss_20b() -> Model:
    """Windows of 128 tokens in every second layer; experts with biases."""
    attention, experts, embedding, layers = Attention(64, 8, 64), Experts(32, 4, 2880, type="MXFP4"), 2880, 24
    weights = [*_ends(embedding, 201_088)]
    for layer in range(layers):
        block = f"blk.{layer}"
        weights += _attention(layer, embedding, attention, biases=True)
        weights += _norms(layer, embedding, "attn_norm", "post_attention_norm")
        weights += _experts(layer, embedding, experts)
        weights += [
            Weight(f"{block}.attn_output.bias", (embedding,)),
            Weight(f"{block}.attn_sinks.weight", (attention.heads,)),
            Weight(f"{block}.ffn_gate_inp.bias", (experts.count,)),
            Weight(f"{block}.ffn_gate_exps.bias", (experts.width, experts.count)),
            Weight(f"{block}.ffn_up_exps.bias", (experts.width, experts.count)),
            Weight(f"{block}.ffn_down_exps.bias", (embedding, experts.count)),
        ]
    parameters = _parameters(embedding, layers, 131_072, attention) | _expert_parameters(experts)
    parameters["attention.sliding_window"] = 128
    return Model("gpt-oss", "gpt-oss 20B in shape", parameters, tuple(weights), 201_088)


def deepseek_v2_lite() -> Model:
    """One compressed row stands for the keys and values of all heads (MLA)."""
    embedding, layers, heads, rank, rotated, plain, value = 2048, 27, 16, 512, 64, 128, 128
    experts = Experts(64, 6, 1408, 2816)
    weights = [*_ends(embedding, 102_400)]
    for layer in range(layers):
        block = f"blk.{layer}"
        weights += [
            *_norms(layer, embedding, "attn_norm", "ffn_norm"),
            Weight(f"{block}.attn_q.weight", (embedding, heads * (plain + rotated)), "Q8_0"),
            Weight(f"{block}.attn_kv_a_mqa.weight", (embedding, rank + rotated), "Q8_0"),
            Weight(f"{block}.attn_kv_a_norm.weight", (rank,)),
            Weight(f"{block}.attn_k_b.weight", (plain, rank, heads), "Q8_0"),
            Weight(f"{block}.attn_v_b.weight", (rank, value, heads), "Q8_0"),
            Weight(f"{block}.attn_output.weight", (heads * value, embedding), "Q8_0"),
        ]
        weights += _experts(layer, embedding, experts) if layer else _dense(layer, embedding, Dense(10_944, "Q8_0"))
    parameters = _parameters(embedding, layers, 163_840, Attention(heads, 1, rank + rotated))
    parameters |= _expert_parameters(experts) | {
        "attention.value_length": rank,
        "attention.key_length_mla": plain + rotated,
        "attention.value_length_mla": value,
        "attention.kv_lora_rank": rank,
        "rope.dimension_count": rotated,
        "feed_forward_length": 10_944,
        "leading_dense_block_count": 1,
        "expert_shared_count": 2,
        "expert_weights_scale": 1.0,
    }
    return Model("deepseek2", "DeepSeek V2 Lite in shape", parameters, tuple(weights), 102_400)


def glm_45_air() -> Model:
    """Many heads of queries, a dense first layer, a prediction head."""
    attention, experts, embedding, layers = Attention(96, 8, 128), Experts(128, 8, 1408, 1408), 4096, 47
    weights = [*_ends(embedding, 151_552)]
    for layer in range(layers):
        weights += _attention(layer, embedding, attention, biases=True)
        weights += _norms(layer, embedding, "attn_norm", "post_attention_norm")
        if layer:
            weights += _experts(layer, embedding, experts)
            weights.append(Weight(f"blk.{layer}.exp_probs_b.bias", (experts.count,)))
        else:
            weights += _dense(layer, embedding, Dense(10_944))
    head = f"blk.{layers - 1}.nextn"
    weights.append(Weight(f"{head}.eh_proj.weight", (2 * embedding, embedding), "Q8_0"))
    weights += [Weight(f"{head}.{name}.weight", (embedding,)) for name in ("enorm", "hnorm", "shared_head_norm")]
    parameters = _parameters(embedding, layers, 131_072, attention) | _expert_parameters(experts)
    parameters |= {
        "feed_forward_length": 10_944,
        "leading_dense_block_count": 1,
        "expert_shared_count": 1,
        "nextn_predict_layers": 1,
        "rope.dimension_count": 64,
    }
    return Model("glm4moe", "GLM 4.5 Air in shape", parameters, tuple(weights), 151_552)


def _parameters(embedding: int, layers: int, context: int, attention: Attention) -> Parameters:
    return {
        "block_count": layers,
        "context_length": context,
        "embedding_length": embedding,
        "attention.head_count": attention.heads,
        "attention.head_count_kv": attention.kv_heads,
        "attention.key_length": attention.head,
        "attention.value_length": attention.head,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
        "rope.dimension_count": attention.head,
    }


def _gemma4_parameters(embedding: int, layers: int, window: Attention, full: Attention, period: int) -> Parameters:
    sees_window = tuple(int(layer % period != period - 1) for layer in range(layers))
    return _parameters(embedding, layers, 131_072, full) | {
        "attention.head_count_kv": tuple(window.kv_heads if narrow else full.kv_heads for narrow in sees_window),
        "attention.key_length_swa": window.head,
        "attention.value_length_swa": window.head,
        "attention.sliding_window": 1024,
        "attention.sliding_window_pattern": sees_window,
        "rope.dimension_count_swa": window.head,
    }


def _expert_parameters(experts: Experts) -> Parameters:
    return {
        "expert_count": experts.count,
        "expert_used_count": experts.used,
        "expert_feed_forward_length": experts.width,
        "expert_shared_feed_forward_length": experts.shared,
    }


def _state(heads: int, groups: int, size: int = 128) -> Parameters:
    return {
        "ssm.conv_kernel": 4,
        "ssm.inner_size": heads * size,
        "ssm.state_size": size,
        "ssm.time_step_rank": heads,
        "ssm.group_count": groups,
    }


def _ends(embedding: int, tokens: int, *, output: bool = True) -> Iterator[Weight]:
    yield Weight("token_embd.weight", (embedding, tokens), "Q6_K" if embedding % 256 == 0 else "Q8_0")
    yield Weight("output_norm.weight", (embedding,))
    if output:
        yield Weight("output.weight", (embedding, tokens), "Q6_K" if embedding % 256 == 0 else "Q8_0")


def _norms(layer: int, embedding: int, *names: str) -> Iterator[Weight]:
    for name in names:
        yield Weight(f"blk.{layer}.{name}.weight", (embedding,))


def _attention(
    layer: int, embedding: int, shape: Attention, *, norms: bool = False, biases: bool = False, gated: bool = False
) -> Iterator[Weight]:
    block, queries = f"blk.{layer}", shape.heads * shape.head
    parts = {"q": queries * (2 if gated else 1), "k": shape.kv_heads * shape.head, "v": shape.kv_heads * shape.head}
    for part, width in parts.items():
        yield Weight(f"{block}.attn_{part}.weight", (embedding, width), shape.type)
        if biases:
            yield Weight(f"{block}.attn_{part}.bias", (width,))
    yield Weight(f"{block}.attn_output.weight", (queries, embedding), shape.type)
    if norms:
        yield Weight(f"{block}.attn_q_norm.weight", (shape.head,))
        yield Weight(f"{block}.attn_k_norm.weight", (shape.head,))


def _gemma4_attention(
    layer: int, embedding: int, shape: Attention, *, values: bool, keys: bool = True
) -> Iterator[Weight]:
    left_out = ([] if values else ["attn_v."]) + ([] if keys else ["attn_k.", "attn_k_norm."])
    for weight in _attention(layer, embedding, shape, norms=True):
        if not any(name in weight.name for name in left_out):
            yield weight


def _delta_net(layer: int, embedding: int, heads: int, groups: int, size: int = 128) -> Iterator[Weight]:
    block, inner, mixed = f"blk.{layer}", heads * size, (heads + 2 * groups) * size
    yield Weight(f"{block}.attn_qkv.weight", (embedding, mixed), "Q8_0")
    yield Weight(f"{block}.attn_gate.weight", (embedding, inner), "Q8_0")
    yield Weight(f"{block}.ssm_conv1d.weight", (4, mixed))
    yield Weight(f"{block}.ssm_dt.bias", (heads,))
    yield Weight(f"{block}.ssm_a", (heads,))
    yield Weight(f"{block}.ssm_norm.weight", (size,))
    yield Weight(f"{block}.ssm_out.weight", (inner, embedding), "Q8_0")


def _dense(layer: int, embedding: int, shape: Dense) -> Iterator[Weight]:
    for part in ("gate", "up"):
        yield Weight(f"blk.{layer}.ffn_{part}.weight", (embedding, shape.width), shape.type)
    yield Weight(f"blk.{layer}.ffn_down.weight", (shape.width, embedding), _type(shape.width, shape.type))


def _experts(layer: int, embedding: int, shape: Experts, *, gate: bool = False) -> Iterator[Weight]:
    block = f"blk.{layer}"
    yield Weight(f"{block}.ffn_gate_inp.weight", (embedding, shape.count))
    for part in ("gate", "up"):
        yield Weight(f"{block}.ffn_{part}_exps.weight", (embedding, shape.width, shape.count), shape.type)
    down = _type(shape.width, shape.type)
    yield Weight(f"{block}.ffn_down_exps.weight", (shape.width, embedding, shape.count), down)
    if shape.shared:
        for part in ("gate", "up"):
            yield Weight(f"{block}.ffn_{part}_shexp.weight", (embedding, shape.shared), "Q8_0")
        yield Weight(f"{block}.ffn_down_shexp.weight", (shape.shared, embedding), "Q8_0")
    if gate:
        yield Weight(f"{block}.ffn_gate_inp_shexp.weight", (embedding,))


def _type(row: int, wanted: str) -> str:
    """The type wanted, or one of smaller blocks where rows are no whole blocks of it."""
    return wanted if row % 256 == 0 or not wanted.endswith("_K") else "Q5_0"
