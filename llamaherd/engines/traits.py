"""What an engine does, of all that others must know: asked for by what it is, and never by an engine's name.

Facts: llama.cpp b11434; ik_llama.cpp 67268c8fd; vLLM 0.33.0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """How an engine that takes what a GGUF's header tells lays a model out, as far as memory hangs on it."""

    cuts_by_bytes: bool
    """GPUs get layers by their bytes, not by their number."""
    pipelines: bool
    """GPUs work on several batches at once."""
    slots_share_cells: bool
    """All slots have one cache together."""
    windows_cut_cache: bool
    """A layer that sees a window keeps no more than it."""
    heads_also_in_cache: bool
    """Prediction heads have cells in the model's cache, besides their own."""
    copies_state_to_draft: bool
    """A recurrent state is copied for each drafted token; else checkpoints are made."""
    saves_drafts: bool
    """A saved prompt has what drafts, too."""
    saves_one_at_least: bool
    """One prompt is saved, however large."""
    shares_tied_embeddings: bool
    """Embeddings that are the output too are one tensor, also on a GPU to which an override sends both."""
    caches_encoders: bool
    """Models that see the tokens of one batch alone have a cache all the same."""
    keeps_logits: bool
    """Logits of each token are kept in RAM where embeddings are on, whether or not the model computes them."""
    reserves_all_logits: bool
    """There is room for the logits of every token of a batch."""
    maps_ranges: bool
    """Of a mapped file all stays that lies between the first and the last byte which the CPU needs."""
    repacks: bool
    """Without a GPU, matrices are copied to layouts that the processor's instructions want."""
    scratch_in_cuda: bool
    """What is alive within an operation, a cache turned into f16 among it, is in CUDA's own memory."""
    makes_communicators: bool
    """NCCL's communicators are made as it starts."""
    drafts_for_one_slot: bool
    """A model that drafts does so for one slot, with a cache of the same types."""
    most_slots: int | None
    """More, and it ends."""
    tells_memory: bool
    """There is a tool that says what a server would take."""
    fits_only_when_told: bool
    """Placement is by hand, unless a flag leaves it to the engine."""
    counts_slots_itself: bool
    """Less than one slot means that it chooses how many."""
    negative_layers_mean_all: bool
    """Less than no layer on GPUs is all of them."""
    drafted: int
    """Tokens that a head drafts, unless it is said."""
    spreads_experts: bool
    """The number of layers with experts on the CPU is shared out among GPUs, and counts after all overrides."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What an engine is, to the checks, the lock, the plan and verify. The defaults are those of an image that serves
    a folder of files by itself."""

    kind: str
    arithmetic: Arithmetic | None = None
    """None where it fills its GPUs by design, and reads no GGUF."""
    images: tuple[str, ...] = ()
    """Its authors' images."""
    branch: str | None = None
    """Where its authors work."""
    numbers_builds: bool = False
    """Its tags are build numbers: `b11434`."""
    server_options: tuple[str, ...] = ()
    """Options of its build without which there is no server."""
    variants_need_libraries: bool = False
    """GGML_CPU_ALL_VARIANTS wants GGML_BACKEND_DL."""
    splits: frozenset[str] = frozenset()
    """How several GPUs may share a model."""
    cache_types_not: frozenset[str] = frozenset()
    """Types of a cache that relatives take and it does not."""
    cache_types_slow: frozenset[str] = frozenset()
    """Types of a cache that attention is computed on the CPU for."""
    cache_types_not_on_cpu: frozenset[str] = frozenset()
    """Types of a cache that end it where the CPU computes attention."""
    pairs: frozenset[str] = frozenset()
    """K-V pairs that have kernels unless a build is told more, and in its images."""
    chooses_pairs: bool = False
    """A build may name pairs; else it has those, or all."""
    mtp_for_one_slot: bool = False
    """Heads draft for a single slot."""
    help_lists_flags: bool = False
    """The `--help` of its server lists all flags."""
    divergence: str | None = None
    """Its program that compares what two caches make of a text, which is built where an instance declares `quality`."""
    loads_no_heads: tuple[str, ...] = ()
    """Versions that load no Qwen with a head, and draft not beside a projector."""
    reads_experts_for_each: bool = False
    """Experts on the CPU are read once for every drafted token."""
    answers_any_name: bool = False
    """It does not mind which model a request names."""
    swaps: bool = False
    """One server of it can have several command lines, and runs one of them at a time: see router.py."""
    health_waits: bool = False
    """Asked for its health, it answers when it has read the prompt that it is reading."""

    @property
    def reads_gguf(self) -> bool:
        """Whether it serves GGUF files, and keys tell it where their layers, experts and caches go."""
        return self.arithmetic is not None
