"""How many bytes are alive at once while one layer is computed.

How many rows of each width are alive was read off the engines' own figures for servers of many shapes (docs/memory.md,
docs/gpus.md). Facts: llama.cpp b11434, ggml/src/ggml-cuda/fattn.cu:722-756 (a cache that is not f16 is turned into it,
behind what comes out), ggml-cuda.cu:4646 (what comes out of experts stays until it is summed up, so that its weighted
copy cannot replace it), ggml/src/ggml-alloc.c (a block that fits nowhere else goes above all that is alive).
"""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.gguf.header import Header
from llamaherd.memory.encoders import BERT
from llamaherd.memory.layers import Layer
from llamaherd.memory.placement import HOST, Placement

_F32 = 4
_F16 = 2

_GATED = {"qwen3next", "qwen35", "qwen35moe"}
"""Attention has a gate as wide as its queries."""

_MAMBA2 = {"granitehybrid", "nemotron_h", "nemotron_h_moe"}
"""Layers with a state are Mamba2 mixers (src/models/mamba-base.cpp, build_mamba2_layer)."""

_HYBRID = {*_GATED, *_MAMBA2}
"""Models with states whose buffers were measured."""

_MOST_REDUCED = 15
"""Experts whose outputs CUDA weights and sums up in one step (ggml-cuda.cu:3096)."""

_WITHOUT_GATE = {"nemotron_h", "nemotron_h_moe"}
"""Experts and dense parts apply their activation in place (LLM_FFN_RELU_SQR)."""


@dataclass(frozen=True)
class Working:
    """Layers as they are computed on one device. `experts`: with those of how many layers it computes, too."""

    header: Header
    placement: Placement
    device: int
    experts: int

    def peak(self, layer: Layer) -> int:
        """The most bytes that are alive at once while a layer is computed.

        Without flash attention all scores are; with it, on a GPU, an f16 copy of a cache of another type.
        """
        working = self.forward(layer)
        if not layer.keys:
            return working
        if not self.placement.flash_attention:
            scores = layer.heads * self.seen(layer) * self.placement.tokens * _F32
            alive = self._attending(layer) + self._lift
            return max(working, alive * self.placement.tokens * _F32 + scores)
        return max(working, self.converting(layer)) if self.device != HOST and self._converted(layer) else working

    def seen(self, layer: Layer) -> int:
        """Cells of one stream that tokens may see: without a cache, one for each token of the batch."""
        return self.placement.window_cells(layer.window) if self._cached(layer) else self.placement.tokens

    def _cached(self, layer: Layer) -> bool:
        return layer.cached or self.placement.does.caches_encoders

    def converting(self, layer: Layer) -> int:
        """Bytes alive while flash attention turns a cache into f16: queries, what comes out, a gate if there is one."""
        if self.header.number("attention.key_length_mla"):
            return self._converting_compressed(layer)
        embedding, query = self.header.number("embedding_length"), layer.heads * head_width(self.header)
        gated = self.header.architecture in _GATED
        numbers = (4 * (embedding + query) if gated else 3 * embedding + 2 * query) + self._lift
        row, copy = self.placement.tokens * _F32, self._converted(layer)
        size, below = numbers * row + copy, self._below * row
        return size if size <= below or not below else below + query * row + copy

    def _converting_compressed(self, layer: Layer) -> int:
        """Bytes alive where one row stands for the keys and values of all heads (src/models/deepseek2.cpp, is_mla).

        Queries are there as they come, folded into that row's width, turned, and joined. What comes out lies where all
        but the joined ones were, together with the copy behind it, and above everything where that is too small.
        """
        header, row = self.header, self.placement.tokens * _F32
        rank, turned = header.number("attention.kv_lora_rank"), header.number("rope.dimension_count")
        apart = layer.heads * (header.number("attention.key_length_mla") + rank + turned) * row
        joined = layer.heads * head_width(header) * row
        out = layer.heads * rank * row + self._converted(layer)
        return 3 * header.number("embedding_length") * row + apart + joined + (out if out > apart else 0)

    def forward(self, layer: Layer) -> int:
        """Bytes alive at once in the hungriest part of a layer, without attention's own block."""
        header, placement, gpu = self.header, self.placement, self.device != HOST
        embedding = header.number("embedding_length")
        if header.number("expert_used_count") and (self.experts or not gpu):
            forward = self._mixing_experts()
        elif gpu and header.architecture in BERT:
            forward = 2 * embedding + (2 if self._has_gate else 1) * layer.wide
        else:
            forward = (3 if gpu else 5) * embedding + (1 if header.architecture in _WITHOUT_GATE else 3) * layer.wide
        mixing = self._recurring() if layer.state else self._attending(layer)
        # A layer writes each slot's states, one for each drafted token too, before they go where they are kept.
        # On a GPU, the states that it read are still there.
        written = placement.parallel * (1 + placement.mtp)
        states = layer.state * (written + placement.parallel if gpu else written - 1)
        return max(mixing * placement.tokens + states, forward * placement.tokens) * _F32

    @property
    def _lift(self) -> int:
        """Numbers per token below a layer's own: what it reads, a sum of experts, went above what came out of those."""
        header = self.header
        if not self.experts or self.device == HOST or header.architecture == "gpt-oss":
            return 0
        if header.architecture in _HYBRID:
            return header.number("embedding_length") if header.architecture in _GATED else 0
        if self._kept_out == 2:  # the sum lies where gate and up were
            return 0
        return (header.number("expert_used_count") - 1) * header.number("embedding_length")

    @property
    def _below(self) -> int:
        """Numbers per token below what a layer of a hybrid model reads: 0, or all that its experts needed.

        A sum of experts lies on top of those where their weighted copy filled the gap that gate and up left.
        """
        gpu = self.experts and self.device != HOST
        stacked = gpu and self.header.architecture in _HYBRID and self._kept_out == 1
        return self._mixing_experts() if stacked else 0

    def _converted(self, layer: Layer) -> int:
        """Bytes of the f16 copy that flash attention makes of a cache of another type, on a GPU."""
        placement = self.placement
        if not placement.flash_attention or not self._cached(layer):
            return 0
        numbers = (layer.keys if placement.type_k != "f16" else 0) + (layer.values if placement.type_v != "f16" else 0)
        return numbers * placement.window_cells(layer.window) * placement.streams * _F16

    @property
    def _has_gate(self) -> bool:
        return any(group.name == "ffn_gate.weight" for group in self.header.tensors)

    def _mixing_experts(self) -> int:
        """Numbers per token while experts are computed: what goes in, what each makes of it, what comes out."""
        header = self.header
        embedding, used = header.number("embedding_length"), header.number("expert_used_count")
        inner = header.number("expert_feed_forward_length")
        if header.architecture == "gpt-oss":
            # Its own activation writes over what it reads.
            return 7 * embedding // 2 + used * (embedding + 2 * inner)
        if self.device == HOST:
            embeddings, rows = (5, self._inner_rows) if header.architecture in _MAMBA2 else (3, 2)
            return embeddings * embedding + used * (embedding + rows * inner)
        # From the second such layer on, what a layer of a hybrid model reads may lie between.
        moved = self._kept_out == 1 or header.architecture in _GATED
        kept = 4 if self.experts > 1 and header.architecture in _HYBRID and moved else 3
        return kept * embedding + used * (self._kept_out * embedding + self._inner_rows * inner)

    @property
    def _inner_rows(self) -> int:
        """How many rows as wide as an expert are there at once: gate, up and the activation of both."""
        return 1 if self.header.architecture in _WITHOUT_GATE else 3

    @property
    def _kept_out(self) -> int:
        """How often what comes out of experts goes above their inner rows, on a GPU: it and its weighted copy, or one.

        The copy takes the place of the inner rows where it is not larger. Of one expert, or of more than 15, there is
        no copy (MOE_WEIGHTED_REDUCTION_MAX_EXPERTS).
        """
        header = self.header
        inner = self._inner_rows * header.number("expert_feed_forward_length")
        copied = 2 <= header.number("expert_used_count") <= _MOST_REDUCED
        return 2 if copied and header.number("embedding_length") > inner else 1

    def _recurring(self) -> int:
        """Numbers per token in a recurrent layer: the convolution's inputs and outputs, and the state's."""
        header, gpu = self.header, self.device != HOST
        inner, mamba2 = header.number("ssm.inner_size"), header.architecture in _MAMBA2
        if self._below:
            return self._below + inner
        convolution = inner + 2 * header.number("ssm.group_count") * header.number("ssm.state_size")
        steps = header.number("ssm.time_step_rank") if mamba2 else 0
        rows = 2 if gpu and header.architecture in _GATED else 3
        return 3 * header.number("embedding_length") + rows * convolution + 2 * inner + steps

    def _attending(self, layer: Layer) -> int:
        """Numbers per token in attention: queries before and after they are turned, what comes out; a gate, if any."""
        queries = 4 if self.header.architecture in _GATED else 3
        query = layer.heads * head_width(self.header)
        if self.header.architecture in BERT:  # keys and values are there in f16 besides
            return self.header.number("embedding_length") + query + 3 * (layer.keys + layer.values) // 2
        return 3 * self.header.number("embedding_length") + layer.keys + layer.values + queries * query


def head_width(header: Header) -> int:
    """Numbers of one head's keys, also where the header does not say."""
    usual = header.number("embedding_length") // max((1, *header.per_layer("attention.head_count")))
    return header.number("attention.key_length", usual)
