"""What models are made of, for shapes of real ones: what they say of themselves, and tensors by their parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.gguf_files import Weight

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
class Mamba2:
    """A Mamba2 mixer: its heads, the width of one, and its groups of 128 states each."""

    heads: int
    head: int
    groups: int = 1
    state: int = 128

    @property
    def inner(self) -> int:
        """Numbers per token in all heads."""
        return self.heads * self.head

    @property
    def parameters(self) -> Parameters:
        """What a model with such layers says beside."""
        return {
            "ssm.conv_kernel": 4,
            "ssm.inner_size": self.inner,
            "ssm.state_size": self.state,
            "ssm.time_step_rank": self.heads,
            "ssm.group_count": self.groups,
        }


@dataclass(frozen=True)
class Attention:
    """Heads of queries, of keys and values, and how wide one is."""

    heads: int
    kv_heads: int
    head: int
    type: str = "Q8_0"


def parameters_of(embedding: int, layers: int, context: int, attention: Attention) -> Parameters:
    """What every architecture says of itself."""
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


def gemma4_parameters(embedding: int, layers: int, window: Attention, full: Attention, period: int) -> Parameters:
    """The same of Gemma 4: a window in most layers, everything in each last one of a period."""
    sees_window = tuple(int(layer % period != period - 1) for layer in range(layers))
    return parameters_of(embedding, layers, 131_072, full) | {
        "attention.head_count_kv": tuple(window.kv_heads if narrow else full.kv_heads for narrow in sees_window),
        "attention.key_length_swa": window.head,
        "attention.value_length_swa": window.head,
        "attention.sliding_window": 1024,
        "attention.sliding_window_pattern": sees_window,
        "rope.dimension_count_swa": window.head,
    }


def expert_parameters(experts: Experts) -> Parameters:
    """What one with experts says beside."""
    return {
        "expert_count": experts.count,
        "expert_used_count": experts.used,
        "expert_feed_forward_length": experts.width,
        "expert_shared_feed_forward_length": experts.shared,
    }


def state_of(heads: int, groups: int, size: int = 128) -> Parameters:
    """What one with a recurrent state says beside."""
    return {
        "ssm.conv_kernel": 4,
        "ssm.inner_size": heads * size,
        "ssm.state_size": size,
        "ssm.time_step_rank": heads,
        "ssm.group_count": groups,
    }


def ends(embedding: int, tokens: int, *, output: bool = True) -> Iterator[Weight]:
    """What stands before the first layer and after the last one."""
    yield Weight("token_embd.weight", (embedding, tokens), "Q6_K" if embedding % 256 == 0 else "Q8_0")
    yield Weight("output_norm.weight", (embedding,))
    if output:
        yield Weight("output.weight", (embedding, tokens), "Q6_K" if embedding % 256 == 0 else "Q8_0")


def norms(layer: int, embedding: int, *names: str) -> Iterator[Weight]:
    """Norms of a layer."""
    for name in names:
        yield Weight(f"blk.{layer}.{name}.weight", (embedding,))


def attention_of(
    layer: int, embedding: int, shape: Attention, *, norms: bool = False, biases: bool = False, gated: bool = False
) -> Iterator[Weight]:
    """Attention of a layer."""
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


def gemma4_attention(
    layer: int, embedding: int, shape: Attention, *, values: bool, keys: bool = True
) -> Iterator[Weight]:
    """The same of Gemma 4, whose layers may share keys and values."""
    left_out = ([] if values else ["attn_v."]) + ([] if keys else ["attn_k.", "attn_k_norm."])
    for weight in attention_of(layer, embedding, shape, norms=True):
        if not any(name in weight.name for name in left_out):
            yield weight


def delta_net(layer: int, embedding: int, heads: int, groups: int, size: int = 128) -> Iterator[Weight]:
    """A layer that keeps a recurrent state."""
    block, inner, mixed = f"blk.{layer}", heads * size, (heads + 2 * groups) * size
    yield Weight(f"{block}.attn_qkv.weight", (embedding, mixed), "Q8_0")
    yield Weight(f"{block}.attn_gate.weight", (embedding, inner), "Q8_0")
    yield Weight(f"{block}.ssm_conv1d.weight", (4, mixed))
    yield Weight(f"{block}.ssm_dt.bias", (heads,))
    yield Weight(f"{block}.ssm_a", (heads,))
    yield Weight(f"{block}.ssm_norm.weight", (size,))
    yield Weight(f"{block}.ssm_out.weight", (inner, embedding), "Q8_0")


def mamba2(layer: int, embedding: int, shape: Mamba2) -> Iterator[Weight]:
    """A layer that keeps the state of a Mamba2 mixer."""
    block, mixed = f"blk.{layer}", shape.inner + 2 * shape.groups * shape.state
    yield Weight(f"{block}.ssm_in.weight", (embedding, shape.inner + mixed + shape.heads), "Q8_0")
    yield Weight(f"{block}.ssm_conv1d.weight", (4, mixed))
    yield Weight(f"{block}.ssm_conv1d.bias", (mixed,))
    yield Weight(f"{block}.ssm_dt.bias", (shape.heads,))
    yield Weight(f"{block}.ssm_a", (1, shape.heads))
    yield Weight(f"{block}.ssm_d", (1, shape.heads))
    yield Weight(f"{block}.ssm_norm.weight", (shape.inner // shape.groups, shape.groups))
    yield Weight(f"{block}.ssm_out.weight", (shape.inner, embedding), "Q8_0")


def dense_of(layer: int, embedding: int, shape: Dense) -> Iterator[Weight]:
    """The feed-forward part of a layer."""
    for part in ("gate", "up"):
        yield Weight(f"blk.{layer}.ffn_{part}.weight", (embedding, shape.width), shape.type)
    yield Weight(f"blk.{layer}.ffn_down.weight", (shape.width, embedding), _type(shape.width, shape.type))


def experts_of(layer: int, embedding: int, shape: Experts, *, gate: bool = False) -> Iterator[Weight]:
    """Routed and shared experts of a layer."""
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
