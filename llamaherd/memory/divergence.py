"""How the results of two cache types for the same weights and text are compared, by the engine's own tool.

The tool runs twice: it keeps the logits of the text with an f16 cache, then compares them with those of the other
cache. Both engines have it (llama.cpp b11434, tools/perplexity; ik_llama.cpp 67268c8fd, examples/perplexity).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.engines.flags.effective import effective_options
from llamaherd.inventory.schema import CacheTypes, Instance
from llamaherd.memory.facts import RigFacts
from llamaherd.memory.fit import fit_in


@dataclass(frozen=True)
class Reading:
    """One way to read the text: in `chunks` of `context` tokens, `batch` of them at once.

    `bytes` is the size of the file of kept logits on the host's disk.
    """

    context: int
    chunks: int
    batch: int
    bytes: int


BASE = "f16"
"""The cache type with which others are compared."""

KEPT = frozenset(
    {
        *("--model", "--threads", "--threads-batch", "--flash-attn", "--no-flash-attn", "--numa", "--override-kv"),
        *("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled", "--control-vector-layer-range"),
        # where the model is placed
        *("--gpu-layers", "--split-mode", "--tensor-split", "--main-gpu", "--device", "--override-tensor"),
        *("--cpu-moe", "--n-cpu-moe", "--n-cpu-ffn", "--no-kv-offload", "--op-offload", "--no-host"),
        *("--load-mode", "--no-mmap", "--mlock", "--repack", "--swa-full"),
        # how positions are encoded
        *("--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale"),
        *("--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor", "--yarn-beta-slow", "--yarn-beta-fast"),
        # how ik_llama.cpp computes
        *("--mla-use", "--attention-max-batch", "--no-fused-moe", "--grouped-expert-routing", "--no-fused-up-gate"),
        *("--smart-expert-reduction", "--cuda-params", "--run-time-repack", "--merge-qkv", "--merge-up-gate-experts"),
        *("--k-cache-hadamard", "--v-cache-hadamard", "--split-mode-f16", "--split-mode-f32", "--graph-reduce-type"),
    }
)
"""Flags of a server that the tool also accepts, and that decide what it computes or where the model is placed."""


UNHEARD = frozenset({"--threads", "--threads-batch", "--numa", "--load-mode", "--no-mmap", "--mlock"})
"""The flags among these that decide only how fast it computes."""

_CACHE = frozenset({"--cache-type-k", "--cache-type-v"})


@dataclass(frozen=True)
class Pass:
    """One run over the text: in so many chunks of `context` tokens, each by itself, of which the second half is scored.

    `batch` tokens are computed at once. Both files are paths on the host.
    """

    context: int
    chunks: int
    batch: int
    text: str
    logits: str


def words_with_cache(known: Catalogue, arguments: tuple[str, ...], kv: str) -> tuple[str, ...]:
    """Return the words of a server's command line that the tool accepts, with another type of the cache.

    `arguments` are the server's, spelled as this version of its engine has them.
    """
    return (*_words(known, arguments, KEPT), "--cache-type-k", kv, "--cache-type-v", kv)


def words_as_served(known: Catalogue, arguments: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words that decide a server's results, its cache among them, and those that decide only its speed."""
    deciding = _words(known, arguments, (KEPT | _CACHE) - UNHEARD)
    return tuple(deciding), tuple(_words(known, arguments, UNHEARD))


def kept_arguments(words: tuple[str, ...], of: Pass) -> tuple[str, ...]:
    """Return the arguments of the run that reads the text and keeps its logits."""
    return (*words, *_both(of), "--file", of.text, "--chunks", str(of.chunks))


def compared_arguments(words: tuple[str, ...], of: Pass) -> tuple[str, ...]:
    """Return the arguments of the run that compares with the kept logits."""
    return (*words, *_both(of), "--kl-divergence")


def logits_bytes(vocabulary: int, context: int, chunks: int) -> int:
    """Return the bytes of the file of kept logits (llama.cpp b11434, tools/perplexity/perplexity.cpp)."""
    scored = context - 1 - context // 2
    return chunks * (4 * context + 2 * scored * _row(vocabulary)) + 64


def run_bytes(vocabulary: int, context: int, batch: int, *, all_logits: bool) -> int:
    """Return the bytes of RAM that a run takes besides the model's.

    These are the logits of a chunk in 16 bits, and in 32 bits the scored ones, or all.
    b11434 took 2.1 GB more than its model and its buffers for 2,048 tokens of 262,144.
    """
    return _row(vocabulary) * (context * (2 + (4 if all_logits else 2)) + batch * 4)


def counts_in_32_bits(vocabulary: int, context: int) -> bool:
    """Return whether a version that counts the numbers of a chunk in 32 bits counts them correctly."""
    return context * _row(vocabulary) < 1 << 31


def _row(vocabulary: int) -> int:
    """Return how many numbers of 16 bits are kept for each token."""
    return 2 * ((vocabulary + 1) // 2) + 4


def _both(of: Pass) -> tuple[str, ...]:
    return (
        *("--ctx-size", str(of.context), "--batch-size", str(of.batch), "--ubatch-size", str(of.batch)),
        *("--kl-divergence-base", of.logits),
    )


def _words(known: Catalogue, arguments: tuple[str, ...], flags: frozenset[str]) -> Iterator[str]:
    """Yield the words of the server's command line that set one of these flags, each once and as written."""
    index = -1
    for option in effective_options(known, arguments).said:
        if option.index > index and not flags.isdisjoint((*option.flag.spellings, *option.flag.negated)):
            index = option.index
            yield from option.words


CONTEXTS = (8192, 4096, 2048, 1024, 512)
"""Tokens of a chunk, the longest first."""
MOST_TOKENS = 2 * CONTEXTS[0]
"""Of the text: the tool reads no text that is shorter than two chunks."""
_BATCHES = (512, 256, 128)
"""Tokens that are computed at once: each has logits on the GPU."""
_FEWEST, _MOST = 2, 8
"""Chunks: two of the longest ones have as many tokens as the text; of short ones more are read."""


def readings(facts: RigFacts, name: str, instance: Instance) -> Iterator[Reading]:
    """Yield ways to read the text with an instance's weights and a cache of f16, the best one first.

    `instance` may have other keys than the rig's instance of that name. None if the model's vocabulary is unknown.
    """
    header = facts.headers.get(instance.model)
    if header is None or not header.vocabulary:
        return
    most = longest_chunk(instance)
    most = min(most, header.number("context_length") or most)
    for context in CONTEXTS:
        if context > most or not counts_in_32_bits(header.vocabulary, context):
            continue
        batch = next((batch for batch in _BATCHES if _fits(facts, name, instance, context, batch)), None)
        if batch is not None:
            chunks = min(_MOST, max(_FEWEST, CONTEXTS[0] // context))
            yield Reading(context, chunks, batch, logits_bytes(header.vocabulary, context, chunks))


def longest_chunk(instance: Instance) -> int:
    """Return the most tokens of a chunk: those of one slot."""
    return instance.context // max(1, instance.parallel)


def _fits(facts: RigFacts, name: str, instance: Instance, context: int, batch: int) -> bool:
    """Return whether GPUs and RAM hold the tool next to the other servers; also if the memory is unknown.

    Each token of a batch has its logits, and nothing is drafted or saved.
    """
    read = instance.model_copy(
        update={
            "context": context,
            "parallel": 1,
            "kv": CacheTypes(),
            "draft": None,
            "batch": batch,
            "ubatch": batch,
        }
    )
    found = facts.sized_as(name, read, projector=False)
    if found is None:
        return True
    placement = replace(found.placement, outputs=batch, cache_ram=0, checkpoints=0)
    fit = fit_in(found.header, placement, found.room)
    all_logits = placement.does.reserves_all_logits
    taken, left = run_bytes(found.header.vocabulary, context, batch, all_logits=all_logits), fit.spare_ram
    return fit.fits and (left is None or left >= taken)
