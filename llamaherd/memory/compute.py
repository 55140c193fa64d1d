"""The size of the compute buffers of an engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from llamaherd.gguf.header import BERT, LOGITS_FOR_CHAT, ROTATED, WITHOUT_LOGITS, Header, Layer, spread, tensor_bytes
from llamaherd.memory.placement import HOST, Layout, Placement

_F32_BYTES = 4
_F16_BYTES = 2

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
        """Return the most bytes that are alive at once while a layer is computed.

        Without flash attention all scores are; with it, on a GPU, an f16 copy of a cache of another type.
        """
        working = self.forward(layer)
        if not layer.keys:
            return working
        if not self.placement.flash_attention:
            scores = layer.heads * self.attended(layer) * self.placement.tokens * _F32_BYTES
            alive = self._attending(layer) + self._lift
            return max(working, alive * self.placement.tokens * _F32_BYTES + scores)
        return max(working, self.converting(layer)) if self.device != HOST and self._converted(layer) else working

    def attended(self, layer: Layer) -> int:
        """Return the cells of one stream that tokens may see: without a cache, one for each token of the batch."""
        return self.placement.window_cells(layer.window) if self._cached(layer) else self.placement.tokens

    def _cached(self, layer: Layer) -> bool:
        return layer.cached or self.placement.does.caches_encoders

    def converting(self, layer: Layer) -> int:
        """Return the bytes alive while flash attention converts a cache to f16: queries, outputs, a gate if any."""
        if self.header.number("attention.key_length_mla"):
            return self._converting_compressed(layer)
        embedding, query = self.header.number("embedding_length"), layer.heads * head_width(self.header)
        gated = self.header.architecture in _GATED
        numbers = (4 * (embedding + query) if gated else 3 * embedding + 2 * query) + self._lift
        row, copy = self.placement.tokens * _F32_BYTES, self._converted(layer)
        size, below = numbers * row + copy, self._below * row
        return size if size <= below or not below else below + query * row + copy

    def _converting_compressed(self, layer: Layer) -> int:
        """Return the bytes alive if one row holds the keys and values of all heads (src/models/deepseek2.cpp, is_mla).

        Queries are there as they come, folded into that row's width, turned, and joined. What comes out lies where all
        but the joined ones were, together with the copy behind it, and above everything where that is too small.
        """
        header, row = self.header, self.placement.tokens * _F32_BYTES
        rank, turned = header.number("attention.kv_lora_rank"), header.number("rope.dimension_count")
        apart = layer.heads * (header.number("attention.key_length_mla") + rank + turned) * row
        joined = layer.heads * head_width(header) * row
        out = layer.heads * rank * row + self._converted(layer)
        return 3 * header.number("embedding_length") * row + apart + joined + (out if out > apart else 0)

    def forward(self, layer: Layer) -> int:
        """Return the bytes alive at once in the largest part of a layer, without attention's own block."""
        header, placement, gpu = self.header, self.placement, self.device != HOST
        embedding = header.number("embedding_length")
        if header.number("expert_used_count") and (self.experts or not gpu):
            forward = self._mixing_experts()
        elif header.architecture in BERT and not self._has_gate:
            forward = (1 if gpu else 5) * embedding + layer.wide  # the activation is in place
        else:
            forward = (3 if gpu else 5) * embedding + (1 if header.architecture in _WITHOUT_GATE else 3) * layer.wide
        mixing = self._recurring() if layer.state else self._attending(layer)
        # A layer writes each slot's states, one for each drafted token too, before they go where they are kept.
        # On a GPU, the states that it read are still there.
        written = placement.parallel * (1 + placement.mtp)
        states = layer.state * (written + placement.parallel if gpu else written - 1)
        return max(mixing * placement.tokens + states, forward * placement.tokens) * _F32_BYTES

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
        """Return the bytes of the f16 copy that flash attention makes of a cache of another type, on a GPU."""
        placement = self.placement
        if not placement.flash_attention or not self._cached(layer):
            return 0
        numbers = (layer.keys if placement.type_k != "f16" else 0) + (layer.values if placement.type_v != "f16" else 0)
        return numbers * placement.window_cells(layer.window) * placement.streams * _F16_BYTES

    @property
    def _has_gate(self) -> bool:
        """Return whether the feed-forward part has a gate, as a matrix or in `ffn_up` (src/models/bert.cpp)."""
        wide = self.header.number("feed_forward_length")
        return any(
            group.name == "ffn_gate.weight" or (group.name == "ffn_up.weight" and group.shape[1] == 2 * wide)
            for group in self.header.tensors
        )

    def _mixing_experts(self) -> int:
        """Return the numbers per token while experts are computed: inputs, inner rows, outputs."""
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
        """The number of rows as wide as an expert that are there at once: gate, up and the activation of both."""
        return 1 if self.header.architecture in _WITHOUT_GATE else 3

    @property
    def _kept_out(self) -> int:
        """The copies of the experts' outputs above their inner rows, on a GPU: 2 with the weighted copy, else 1.

        The weighted copy takes the place of the inner rows if it is not larger. Of one expert, or of more than 15,
        there is no copy (MOE_WEIGHTED_REDUCTION_MAX_EXPERTS).
        """
        header = self.header
        inner = self._inner_rows * header.number("expert_feed_forward_length")
        copied = 2 <= header.number("expert_used_count") <= _MOST_REDUCED
        return 2 if copied and header.number("embedding_length") > inner else 1

    def _recurring(self) -> int:
        """Return the numbers per token in a recurrent layer: the convolution's inputs and outputs, and the state's."""
        header, gpu = self.header, self.device != HOST
        inner, mamba2 = header.number("ssm.inner_size"), header.architecture in _MAMBA2
        if self._below:
            return self._below + inner
        convolution = inner + 2 * header.number("ssm.group_count") * header.number("ssm.state_size")
        steps = header.number("ssm.time_step_rank") if mamba2 else 0
        rows = 2 if gpu and header.architecture in _GATED else 3
        return 3 * header.number("embedding_length") + rows * convolution + 2 * inner + steps

    def _attending(self, layer: Layer) -> int:
        """Return the numbers per token in attention: queries before and after rotation, outputs; a gate, if any."""
        queries = 4 if self.header.architecture in _GATED else 3
        query = layer.heads * head_width(self.header)
        if self.header.architecture in BERT | ROTATED:  # keys and values are there in f16 besides
            rotated = query + layer.keys if self.header.architecture in ROTATED else 0
            return self.header.number("embedding_length") + query + 3 * (layer.keys + layer.values) // 2 + rotated
        return 3 * self.header.number("embedding_length") + layer.keys + layer.values + queries * query


def head_width(header: Header) -> int:
    """Return the numbers of one head's keys, also if the header lacks them."""
    usual = header.number("embedding_length") // max((1, *header.per_layer("attention.head_count")))
    return header.number("attention.key_length", usual)


_COPIES = 4
"""Copies of inputs where GPUs work on several batches at once (GGML_SCHED_MAX_COPIES)."""

_OFFLOADED = 32
"""From so many tokens on, a GPU computes with weights that lie in RAM, and copies them (ggml-cuda.cu, offload_op)."""

_EMBEDDINGS, _PIPED_EMBEDDINGS, _FIRST = 4, 10, 9
"""Rows of embeddings per token among the host's inputs, with and without several batches at once, and those that the
first of several GPUs has more than the others then: measured, docs/gpus.md."""

_PROJECTED = 3
"""How often a layer's own inputs are there while they are made (Gemma 4 E4B): measured, docs/gpus.md."""


def compute_bytes(layout: Layout) -> dict[int, int]:
    """Return the bytes of the compute buffer on each GPU, and on the host."""
    found = _Graph(layout, layout.placement, layout.trunk).buffers()
    found[HOST] += output_bytes(layout.header, layout.placement)
    return found


def output_bytes(header: Header, placement: Placement) -> int:
    """Return the bytes of RAM that the outputs of a batch take from the first request on, if embeddings are on.

    Each token is an output, and has room for logits even if the model computes none (llama-context.cpp:2143).
    """
    if not (placement.embeddings and placement.does.keeps_logits):
        return 0
    width = header.number("embedding_length_out", header.number("embedding_length"))
    return (header.vocabulary + width) * placement.tokens * _F32_BYTES


def draft_compute_bytes(layout: Layout) -> dict[int, int]:
    """Return the bytes of the drafting context's buffers (speculative.cpp:2599-2650); nothing without a draft."""
    placement = layout.placement
    if not placement.mtp or not layout.heads:
        return {}
    types = replace(placement, type_k=placement.draft_type_k, type_v=placement.draft_type_v)
    return _Graph(layout, replace(types, outputs=placement.parallel), layout.heads).buffers()


@dataclass(frozen=True)
class _Graph:
    """What a batch makes of a model's layers, or of its prediction heads."""

    layout: Layout
    placement: Placement
    layers: tuple[Layer, ...]

    def buffers(self) -> dict[int, int]:
        """Return the bytes by device."""
        of = self._of_ik if self.placement.does.reserves_all_logits else self._of_gpu
        found = {device: size for device in range(self.placement.devices) if (size := of(device))}
        return {HOST: self._of_host(), **found}

    @cached_property
    def row(self) -> int:
        """Bytes of one number of each token."""
        return self.placement.tokens * _F32_BYTES

    @cached_property
    def embedding(self) -> int:
        """Bytes of a batch's embeddings."""
        return self.layout.header.number("embedding_length") * self.row

    @cached_property
    def masks(self) -> int:
        """Bytes of the attention masks between tokens and cells, one for each kind of window."""
        size = _F16_BYTES if self.placement.flash_attention else _F32_BYTES
        working = self._working(HOST)
        attended = {layer.window: working.attended(layer) for layer in self.layers if layer.keys}
        return sum(cells * self.placement.tokens * size for cells in attended.values())

    def logits(self, rows: int) -> int:
        """Return the bytes of this many rows of logits; 0 if the graph computes none."""
        header = self.layout.header
        if header.architecture in WITHOUT_LOGITS:
            return 0
        if self.placement.embeddings and header.architecture in LOGITS_FOR_CHAT:
            return 0
        return header.vocabulary * rows * _F32_BYTES

    @cached_property
    def copies(self) -> int:
        """On how many batches GPUs work at once."""
        piped = self.placement.pipelined and self.placement.offloads_all(self.layout.header.layers)
        return _COPIES if piped else 1

    @cached_property
    def moved(self) -> int:
        """Bytes of the largest weight of these layers in RAM that is copied to the first GPU for a large batch."""
        return max(self._moved_by_name.values(), default=0)

    @cached_property
    def moved_at_once(self) -> int:
        """Bytes of the most experts of a layer that are copied at a time: two copies, or those of gate and up."""
        by_name = self._moved_by_name
        gate, up = by_name.get("ffn_gate_exps.weight", 0), by_name.get("ffn_up_exps.weight", 0)
        return gate + up if gate and up else 2 * self.moved

    @cached_property
    def _moved_by_name(self) -> dict[str, int]:
        placement, head = self.placement, any(layer.head for layer in self.layers)
        found: dict[str, int] = {}
        if placement.devices and placement.op_offload and placement.tokens >= _OFFLOADED:
            for tensor in self.layout.tensors:
                if tensor.moved and tensor.device == HOST and tensor.head == head:
                    found[tensor.name] = max(found.get(tensor.name, 0), tensor.size)
        return found

    @cached_property
    def _by_device(self) -> dict[int, list[Layer]]:
        found: dict[int, list[Layer]] = {}
        for layer in self.layers:
            found.setdefault(self.layout.places[layer.index], []).append(layer)
        return found

    def on(self, device: int) -> list[Layer]:
        """Return the layers of a device."""
        return self._by_device.get(device, [])

    def _of_host(self) -> int:
        size = self.masks * self.copies + max(self._peaks(HOST), default=0)
        if not self.placement.devices:
            return size
        if self.placement.does.reserves_all_logits:
            return size + self.embedding
        looked_up = 1 if self.layout.header.architecture == "bert" else 0  # a position's row (src/models/bert.cpp)
        return size + ((_PIPED_EMBEDDINGS if self.copies > 1 else _EMBEDDINGS) + looked_up) * self.embedding

    def _of_gpu(self, device: int) -> int:
        own, header = self.on(device), self.layout.header
        fetches = device == self.placement.first_gpu and self.moved > 0
        if not own and self.layout.places[-1] == device and not fetches:
            return self.embedding * self.copies + self.logits(self.placement.rows)
        peaks = self._peaks(device)
        if not peaks:
            return 0
        inputs = (self.masks + self.embedding) * self.copies
        if self.copies > 1 and not device:
            inputs += _FIRST * self.embedding
        of_layer = header.number("embedding_length_per_layer_input") * self.row
        if device == self.placement.first_gpu:
            inputs += of_layer * header.layers
            if of_layer:
                working, projected = self._working(device), _PROJECTED * of_layer * header.layers
                peaks += [working.converting(self._reading(layer)) + projected for layer in own]
        else:
            inputs += of_layer * len(own) * self.copies
        return inputs + self._borrowed(device) * self.copies + max(peaks)

    def _borrowed(self, device: int) -> int:
        """Return the bytes of other GPUs' caches: each layer that reads one has a copy of its own."""
        far = (layer.source for layer in self.on(device) if layer.source is not None)
        return sum(self._cache(self.layers[source]) for source in far if self.layout.places[source] != device)

    def _peaks(self, device: int) -> list[int]:
        """Return the candidates for the most bytes that are alive at once on a device, without inputs."""
        own = _kinds(self._reading(layer) for layer in self.on(device))
        working = self._working(device)
        peaks = [working.peak(layer) for layer in own]
        if self.layout.places[-1] == device:
            peaks.append(self._output(device))
        if device == self.placement.first_gpu and self.moved:
            peaks += [self._fetching(layer) for layer in _kinds(self.layers)]
            peaks += [self.moved + working.converting(layer) for layer in own if layer.keys]
            if not self.placement.no_kv_offload:
                in_ram = (layer for layer in _kinds(self.on(HOST)) if layer.keys and layer.cached)
                peaks += [self._cache(layer) + working.peak(layer) for layer in in_ram]
        return peaks

    def _fetching(self, layer: Layer) -> int:
        """Return the most bytes that are alive while a layer is computed with weights copied from RAM.

        Of a dense layer, and of experts where each is followed by its biases, there is one copy at a time. What comes
        out of experts lies where a third was, if it is not larger.
        """
        header, row = self.layout.header, self.row
        embedding, used = header.number("embedding_length"), header.number("expert_used_count")
        if not used:
            return self.moved + (3 * embedding + 2 * layer.wide) * row
        width = used * header.number("expert_feed_forward_length")
        kept, out = 3 * embedding + width, used * embedding
        if header.architecture == "gpt-oss":
            return self.moved + (kept + out) * row
        if (kept + width + out) * row > self.moved:
            kept += out
        return self.moved_at_once + kept * row

    def _working(self, device: int) -> Working:
        experts = self._computes_experts(device) if device != HOST else 0
        return Working(self.layout.header, self.placement, device, experts)

    def _computes_experts(self, device: int) -> int:
        """Return how many of these layers have experts on their device."""
        own = {layer.index for layer in self.on(device)}
        return sum(
            self.placement.override(f"blk.{index}.{group.name}") in (None, device)
            for group in self.layout.header.tensors
            if group.name == "ffn_down_exps.weight" and group.layers is not None
            for index in own.intersection(spread(group.layers))
        )

    def _reading(self, layer: Layer) -> Layer:
        """Return the layer with the keys and values that it reads, also those of another layer."""
        if layer.source is None:
            return layer
        source = self.layers[layer.source]
        return replace(layer, keys=source.keys, values=source.values)

    def _cache(self, layer: Layer) -> int:
        placement = self.placement
        return placement.cache_bytes(layer.keys, layer.values, layer.window, (placement.type_k, placement.type_v))

    def _output(self, device: int) -> int:
        """Return the bytes at the end of a graph. Logits that are not larger reuse the space of the masks.

        If each token is an output, the last layer makes no smaller tensors of the rows that are outputs, and a GPU has
        three rows of embeddings less.
        """
        logits = self.logits(self.placement.rows)
        every = self.placement.embeddings or self.layout.header.architecture in WITHOUT_LOGITS
        return (3 if every and device != HOST else 6) * self.embedding + (logits if logits > self.masks else 0)

    def _of_ik(self, device: int) -> int:
        """Return the bytes of a GPU's buffer in ik_llama.cpp, which has the logits of every token of a batch.

        Measured: docs/gpus.md. Matrices are turned into other types in CUDA's own memory.
        """
        header, row = self.layout.header, self.row
        embedding, used = header.number("embedding_length"), header.number("expert_used_count")
        inner = used * header.number("expert_feed_forward_length")
        fetches, fetched, peaks = device == self.placement.first_gpu and self.moved > 0, 0, [0]
        for layer in _kinds(self.on(device)):
            width = used * embedding + inner + embedding if used else layer.wide
            peaks.append(self.masks + (2 * embedding + width + (2 * embedding if fetches else 0)) * row)
        if fetches and used and self.placement.tokens * used >= _OFFLOADED * header.number("expert_count"):
            peaks.append(self.masks + 2 * self.moved + (3 * embedding + used * embedding + inner) * row)
        if device == self.placement.first_gpu:
            fetched = self._output_in_ram()
        if fetched or self.layout.places[-1] == device:
            peaks.append(self.logits(self.placement.tokens) + 2 * embedding * row)
        return fetched + max(peaks)

    def _output_in_ram(self) -> int:
        """Return the bytes of an output matrix in RAM, which ik_llama.cpp copies to the first GPU for large batches."""
        if self.layout.places[-1] != HOST or self.placement.tokens < _OFFLOADED:
            return 0
        groups = (group for group in self.layout.header.tensors if not group.layers)
        outside = {group.name: tensor_bytes(group.type, group.shape) for group in groups}
        return outside.get("output.weight", outside.get("token_embd.weight", 0))


def _kinds(layers: Iterable[Layer]) -> list[Layer]:
    """Return one layer of each kind."""
    return list({layer.kind: layer for layer in layers}.values())
