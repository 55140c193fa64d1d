"""Models in the shapes of real ones, for memory to be computed and measured: names, types and sizes, no weights."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.memory_tensors import (
    Attention,
    Dense,
    Experts,
    Mamba2,
    attention_of,
    delta_net,
    dense_of,
    ends,
    expert_parameters,
    experts_of,
    gemma4_attention,
    gemma4_parameters,
    mamba2,
    norms,
    parameters_of,
    state_of,
)
from tests.support.gguf_files import QWEN_35B, QWEN_122B, QWEN_MERGES, QWEN_TOKENS, Model, Weight, gemma3, llama, qwen


def models() -> dict[str, Model]:
    """Every shape by name; the first are those that docs/measurements/memory.md has most figures of."""
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
    parameters = parameters_of(embedding, layers, 131_072, attention)
    parameters |= {"feed_forward_length": dense.width, "attention.sliding_window": 1024}
    weights = [*ends(embedding, 262_144, output=False)]
    for layer in range(layers):
        weights += attention_of(layer, embedding, attention, norms=True)
        weights += dense_of(layer, embedding, dense)
        weights += norms(layer, embedding, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    return Model("gemma3", "Gemma 3 12B in shape", parameters, tuple(weights), 262_144)


def gemma4_26b() -> Model:
    """Windows with heads of their own width, experts beside a dense part, keys that are values in the other layers."""
    window, full = Attention(16, 8, 256), Attention(16, 2, 512)
    embedding, layers, dense, experts = 2816, 30, Dense(2112, "Q8_0"), Experts(128, 8, 704)
    weights = [*ends(embedding, 262_144, output=False)]
    for layer in range(layers):
        weights += gemma4_attention(layer, embedding, full if layer % 6 == 5 else window, values=layer % 6 != 5)
        weights += dense_of(layer, embedding, dense)
        weights += norms(layer, embedding, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        weights += norms(layer, embedding, "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2")
        weights += experts_of(layer, embedding, experts)
        weights.append(Weight(f"blk.{layer}.ffn_gate_inp.scale", (embedding,)))
        weights.append(Weight(f"blk.{layer}.ffn_down_exps.scale", (experts.count,)))
    parameters = gemma4_parameters(embedding, layers, window, full, 6) | expert_parameters(experts)
    parameters |= {"feed_forward_length": dense.width, "embedding_length_per_layer_input": 0}
    weights.append(Weight("rope_freqs.weight", (full.head // 2,)))
    return Model("gemma4", "Gemma 4 26B-A4B in shape", parameters, tuple(weights), 262_144)


def gemma4_e4b() -> Model:
    """Embeddings for each layer; the last eighteen layers read the keys and values of earlier ones."""
    window, full = Attention(8, 2, 256), Attention(8, 2, 512)
    embedding, layers, per_layer, kept, dense = 2560, 42, 256, 24, Dense(10_240)
    weights = [
        *ends(embedding, 262_144, output=False),
        Weight("per_layer_token_embd.weight", (per_layer * layers, 262_144), "Q6_K"),
        Weight("per_layer_model_proj.weight", (embedding, per_layer * layers), "F16"),
        Weight("per_layer_proj_norm.weight", (per_layer,)),
        Weight("rope_freqs.weight", (full.head // 2,)),
    ]
    for layer in range(layers):
        attention = full if layer % 6 == 5 else window
        weights += gemma4_attention(layer, embedding, attention, values=layer < kept, keys=layer < kept)
        weights += dense_of(layer, embedding, dense)
        weights += norms(layer, embedding, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm")
        weights.append(Weight(f"blk.{layer}.inp_gate.weight", (embedding, per_layer), "F32"))
        weights.append(Weight(f"blk.{layer}.proj.weight", (per_layer, embedding), "F32"))
    parameters = gemma4_parameters(embedding, layers, window, full, 6)
    parameters |= {
        "feed_forward_length": dense.width,
        "embedding_length_per_layer_input": per_layer,
        "attention.shared_kv_layers": layers - kept,
    }
    return Model("gemma4", "Gemma 4 E4B in shape", parameters, tuple(weights), 262_144)


def qwen3_30b() -> Model:
    """Experts in every layer, attention over everything in every layer."""
    attention, experts, embedding, layers = Attention(32, 4, 128), Experts(128, 8, 768), 2048, 48
    weights = [*ends(embedding, 151_936)]
    for layer in range(layers):
        weights += attention_of(layer, embedding, attention, norms=True)
        weights += norms(layer, embedding, "attn_norm", "ffn_norm")
        weights += experts_of(layer, embedding, experts)
    parameters = parameters_of(embedding, layers, 262_144, attention) | expert_parameters(experts)
    parameters["feed_forward_length"] = 6144
    return Model("qwen3moe", "Qwen3 30B-A3B in shape", parameters, tuple(weights), 151_936)


def qwen3_next_80b() -> Model:
    """A recurrent state in three of four layers, 512 experts, ten at once."""
    attention, experts, embedding, layers = Attention(16, 2, 256), Experts(512, 10, 512, 512), 2048, 48
    weights = [*ends(embedding, 151_936)]
    for layer in range(layers):
        weights += norms(layer, embedding, "attn_norm", "post_attention_norm")
        weights += experts_of(layer, embedding, experts, gate=True)
        if layer % 4 == 3:
            weights += attention_of(layer, embedding, attention, norms=True, gated=True)
        else:
            weights += [*delta_net(layer, embedding, 32, 16), Weight(f"blk.{layer}.ssm_ba.weight", (embedding, 64))]
    parameters = parameters_of(embedding, layers, 262_144, attention) | expert_parameters(experts) | state_of(32, 16)
    return Model("qwen3next", "Qwen3-Next 80B-A3B in shape", parameters, tuple(weights), 151_936)


def qwen35_27b() -> Model:
    """Dense, with a recurrent state in three of four layers and a prediction head."""
    attention, dense, embedding, layers = Attention(24, 4, 256), Dense(17_408), 5120, 65
    weights = [*ends(embedding, QWEN_TOKENS)]
    for layer in range(layers):
        block = f"blk.{layer}"
        weights += norms(layer, embedding, "attn_norm", "post_attention_norm")
        weights += dense_of(layer, embedding, dense)
        if layer == layers - 1 or layer % 4 == 3:
            weights += attention_of(layer, embedding, attention, norms=True, gated=True)
        else:
            weights += delta_net(layer, embedding, 48, 16)
            weights += [Weight(f"{block}.ssm_{name}.weight", (embedding, 48)) for name in ("alpha", "beta")]
    head = f"blk.{layers - 1}.nextn"
    weights.append(Weight(f"{head}.eh_proj.weight", (2 * embedding, embedding), "Q8_0"))
    weights += [Weight(f"{head}.{name}.weight", (embedding,)) for name in ("enorm", "hnorm", "shared_head_norm")]
    parameters = parameters_of(embedding, layers, 262_144, attention) | state_of(48, 16)
    parameters |= {"feed_forward_length": dense.width, "nextn_predict_layers": 1, "full_attention_interval": 4}
    parameters["rope.dimension_sections"] = (11, 11, 10, 0)
    return Model("qwen35", "Qwen3.5 27B in shape", parameters, tuple(weights), QWEN_TOKENS, QWEN_MERGES)


def gpt_oss_20b() -> Model:
    """Windows of 128 tokens in every second layer; experts with biases."""
    attention, experts, embedding, layers = Attention(64, 8, 64), Experts(32, 4, 2880, type="MXFP4"), 2880, 24
    weights = [*ends(embedding, 201_088)]
    for layer in range(layers):
        block = f"blk.{layer}"
        weights += attention_of(layer, embedding, attention, biases=True)
        weights += norms(layer, embedding, "attn_norm", "post_attention_norm")
        weights += experts_of(layer, embedding, experts)
        weights += [
            Weight(f"{block}.attn_output.bias", (embedding,)),
            Weight(f"{block}.attn_sinks.weight", (attention.heads,)),
            Weight(f"{block}.ffn_gate_inp.bias", (experts.count,)),
            Weight(f"{block}.ffn_gate_exps.bias", (experts.width, experts.count)),
            Weight(f"{block}.ffn_up_exps.bias", (experts.width, experts.count)),
            Weight(f"{block}.ffn_down_exps.bias", (embedding, experts.count)),
        ]
    parameters = parameters_of(embedding, layers, 131_072, attention) | expert_parameters(experts)
    parameters["attention.sliding_window"] = 128
    return Model("gpt-oss", "gpt-oss 20B in shape", parameters, tuple(weights), 201_088)


def deepseek_v2_lite() -> Model:
    """One compressed row stands for the keys and values of all heads (MLA)."""
    embedding, layers, heads, rank, rotated, plain, value = 2048, 27, 16, 512, 64, 128, 128
    experts = Experts(64, 6, 1408, 2816)
    weights = [*ends(embedding, 102_400)]
    for layer in range(layers):
        block = f"blk.{layer}"
        weights += [
            *norms(layer, embedding, "attn_norm", "ffn_norm"),
            Weight(f"{block}.attn_q.weight", (embedding, heads * (plain + rotated)), "Q8_0"),
            Weight(f"{block}.attn_kv_a_mqa.weight", (embedding, rank + rotated), "Q8_0"),
            Weight(f"{block}.attn_kv_a_norm.weight", (rank,)),
            Weight(f"{block}.attn_k_b.weight", (plain, rank, heads), "Q8_0"),
            Weight(f"{block}.attn_v_b.weight", (rank, value, heads), "Q8_0"),
            Weight(f"{block}.attn_output.weight", (heads * value, embedding), "Q8_0"),
        ]
        weights += experts_of(layer, embedding, experts) if layer else dense_of(layer, embedding, Dense(10_944, "Q8_0"))
    parameters = parameters_of(embedding, layers, 163_840, Attention(heads, 1, rank + rotated))
    parameters |= expert_parameters(experts) | {
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
    weights = [*ends(embedding, 151_552)]
    for layer in range(layers):
        weights += attention_of(layer, embedding, attention, biases=True)
        weights += norms(layer, embedding, "attn_norm", "post_attention_norm")
        if layer:
            weights += experts_of(layer, embedding, experts)
            weights.append(Weight(f"blk.{layer}.exp_probs_b.bias", (experts.count,)))
        else:
            weights += dense_of(layer, embedding, Dense(10_944))
    head = f"blk.{layers - 1}.nextn"
    weights.append(Weight(f"{head}.eh_proj.weight", (2 * embedding, embedding), "Q8_0"))
    weights += [Weight(f"{head}.{name}.weight", (embedding,)) for name in ("enorm", "hnorm", "shared_head_norm")]
    parameters = parameters_of(embedding, layers, 131_072, attention) | expert_parameters(experts)
    parameters |= {
        "feed_forward_length": 10_944,
        "leading_dense_block_count": 1,
        "expert_shared_count": 1,
        "nextn_predict_layers": 1,
        "rope.dimension_count": 64,
    }
    return Model("glm4moe", "GLM 4.5 Air in shape", parameters, tuple(weights), 151_552)


def granite_4_h_small() -> Model:
    """A Mamba2 state in nine of ten layers, 72 narrow experts, ten at once."""
    return _granite_4_h(4096, Attention(32, 8, 128), Mamba2(128, 64), Experts(72, 10, 768, 1536))


def granite_4_h_tiny() -> Model:
    """The same with 64 experts, six at once."""
    return _granite_4_h(1536, Attention(12, 4, 128), Mamba2(48, 64), Experts(64, 6, 512, 1024))


def _granite_4_h(embedding: int, attention: Attention, mixer: Mamba2, experts: Experts) -> Model:
    layers, attends = 40, {5, 15, 25, 35}
    weights = [*ends(embedding, 100_352, output=False)]
    for layer in range(layers):
        weights += norms(layer, embedding, "attn_norm", "ffn_norm")
        weights += experts_of(layer, embedding, experts)
        weights += attention_of(layer, embedding, attention) if layer in attends else mamba2(layer, embedding, mixer)
    parameters = parameters_of(embedding, layers, 131_072, attention) | expert_parameters(experts) | mixer.parameters
    parameters |= {
        "attention.head_count_kv": tuple(attention.kv_heads * (layer in attends) for layer in range(layers)),
        "feed_forward_length": experts.width,
        "attention.scale": 1 / 128,
        "embedding_scale": 12.0,
        "logit_scale": 16.0,
        "residual_scale": 0.22,
    }
    return Model("granitehybrid", "Granite 4 H in shape", parameters, tuple(weights), 100_352)


def nemotron_3_nano() -> Model:
    """Layers of one part each: a Mamba2 state, attention, or 128 experts without a gate, six at once."""
    embedding, attention, mixer = 2688, Attention(32, 2, 128), Mamba2(64, 64, 8)
    kinds = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    weights = [*ends(embedding, 131_072)]
    for layer, kind in enumerate(kinds):
        weights += norms(layer, embedding, "attn_norm")
        if kind == "M":
            weights += mamba2(layer, embedding, mixer)
        elif kind == "*":
            weights += attention_of(layer, embedding, attention)
        else:
            weights += [
                Weight(f"blk.{layer}.ffn_gate_inp.weight", (embedding, 128)),
                Weight(f"blk.{layer}.exp_probs_b.bias", (128,)),
                Weight(f"blk.{layer}.ffn_up_exps.weight", (embedding, 1856, 128), "Q5_0"),
                Weight(f"blk.{layer}.ffn_down_exps.weight", (1856, embedding, 128), "Q5_0"),
                Weight(f"blk.{layer}.ffn_up_shexp.weight", (embedding, 3712), "Q8_0"),
                Weight(f"blk.{layer}.ffn_down_shexp.weight", (3712, embedding), "Q8_0"),
            ]
    parameters = parameters_of(embedding, len(kinds), 262_144, attention) | mixer.parameters
    parameters |= expert_parameters(Experts(128, 6, 1856, 3712)) | {
        "attention.head_count_kv": tuple(attention.kv_heads * (kind == "*") for kind in kinds),
        "feed_forward_length": tuple(1856 * (kind == "E") for kind in kinds),
        "attention.layer_norm_epsilon": 1e-5,
        "expert_shared_count": 1,
        "expert_weights_scale": 2.5,
    }
    return Model("nemotron_h_moe", "Nemotron 3 Nano in shape", parameters, tuple(weights), 131_072)


def nemotron_h_8b() -> Model:
    """The same with a dense part in place of experts."""
    embedding, attention, mixer, dense = 4096, Attention(32, 8, 128), Mamba2(128, 64, 8), 21_504
    kinds = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-"
    weights = [*ends(embedding, 131_072)]
    for layer, kind in enumerate(kinds):
        weights += norms(layer, embedding, "attn_norm")
        if kind == "M":
            weights += mamba2(layer, embedding, mixer)
        elif kind == "*":
            weights += attention_of(layer, embedding, attention)
        else:
            weights.append(Weight(f"blk.{layer}.ffn_up.weight", (embedding, dense), "Q4_K"))
            weights.append(Weight(f"blk.{layer}.ffn_down.weight", (dense, embedding), "Q4_K"))
    parameters = parameters_of(embedding, len(kinds), 8192, attention) | mixer.parameters
    parameters |= {
        "attention.head_count_kv": tuple(attention.kv_heads * (kind == "*") for kind in kinds),
        "feed_forward_length": tuple(dense * (kind == "-") for kind in kinds),
        "attention.layer_norm_epsilon": 1e-5,
    }
    return Model("nemotron_h", "Nemotron-H 8B in shape", parameters, tuple(weights), 131_072)


def with_layers(model: Model, count: int) -> Model:
    """The model's first layers alone. What a GPU computes in stays as large, if each kind of layer is among them."""
    tensors = tuple(
        weight
        for weight in model.tensors
        if not weight.name.startswith("blk.") or int(weight.name.split(".")[1]) < count
    )
    parameters = {
        key: value[:count] if isinstance(value, tuple) and len(value) == model.parameters["block_count"] else value
        for key, value in model.parameters.items()
    }
    return replace(model, parameters={**parameters, "block_count": count}, tensors=tensors)
