"""What an engine's own tool is told that compares two caches of a model: the same weights, a text, what differs.

It runs twice: with a cache of f16 it keeps the logits of the text, with the other one it compares. Both engines have it
(llama.cpp b11434, tools/perplexity; ik_llama.cpp 67268c8fd, examples/perplexity).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.engines.flags.effective import effective_options


@dataclass(frozen=True)
class Reading:
    """One way to read it, in `chunks` of `context` tokens, `batch` of them at once.

    `bytes` is the size of the file that is kept of it on the host's disk.
    """

    context: int
    chunks: int
    batch: int
    bytes: int


BASE = "f16"
"""The cache that others are compared with."""

KEPT = frozenset(
    {
        *("--model", "--threads", "--threads-batch", "--flash-attn", "--no-flash-attn", "--numa", "--override-kv"),
        *("--lora", "--lora-scaled", "--control-vector", "--control-vector-scaled", "--control-vector-layer-range"),
        # where it lies
        *("--gpu-layers", "--split-mode", "--tensor-split", "--main-gpu", "--device", "--override-tensor"),
        *("--cpu-moe", "--n-cpu-moe", "--n-cpu-ffn", "--no-kv-offload", "--op-offload", "--no-host"),
        *("--load-mode", "--no-mmap", "--mlock", "--repack", "--swa-full"),
        # how positions are told
        *("--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale"),
        *("--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor", "--yarn-beta-slow", "--yarn-beta-fast"),
        # how ik_llama.cpp computes
        *("--mla-use", "--attention-max-batch", "--no-fused-moe", "--grouped-expert-routing", "--no-fused-up-gate"),
        *("--smart-expert-reduction", "--cuda-params", "--run-time-repack", "--merge-qkv", "--merge-up-gate-experts"),
        *("--k-cache-hadamard", "--v-cache-hadamard", "--split-mode-f16", "--split-mode-f32", "--graph-reduce-type"),
    }
)
"""Flags of a server that the tool takes as well, and that decide what it computes or where that lies."""


UNHEARD = frozenset({"--threads", "--threads-batch", "--numa", "--load-mode", "--no-mmap", "--mlock"})
"""Of these, those that decide how fast it computes, and not what."""

_CACHE = frozenset({"--cache-type-k", "--cache-type-v"})


@dataclass(frozen=True)
class Pass:
    """How the text is read: in so many chunks of `context` tokens, of which the second half counts, each by itself.

    `batch` tokens are computed at once. Both files are paths on the host.
    """

    context: int
    chunks: int
    batch: int
    text: str
    logits: str


def words_with_cache(known: Catalogue, arguments: tuple[str, ...], kv: str) -> tuple[str, ...]:
    """Words of a server's command line that the tool takes, with another type of the cache.

    `arguments` are the server's, spelled as this version of its engine has them.
    """
    return (*_words(known, arguments, KEPT), "--cache-type-k", kv, "--cache-type-v", kv)


def words_as_served(known: Catalogue, arguments: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The same, as it is served: those that decide what it says, its cache among them, and the others."""
    says = _words(known, arguments, (KEPT | _CACHE) - UNHEARD)
    return tuple(says), tuple(_words(known, arguments, UNHEARD))


def kept_arguments(words: tuple[str, ...], of: Pass) -> tuple[str, ...]:
    """The arguments of the run that reads the text, and keeps its logits."""
    return (*words, *_both(of), "--file", of.text, "--chunks", str(of.chunks))


def compared_arguments(words: tuple[str, ...], of: Pass) -> tuple[str, ...]:
    """The arguments of the run that compares with what was kept."""
    return (*words, *_both(of), "--kl-divergence")


def logits_bytes(vocabulary: int, context: int, chunks: int) -> int:
    """The size of the file that one run keeps for the other (llama.cpp b11434, tools/perplexity/perplexity.cpp)."""
    scored = context - 1 - context // 2
    return chunks * (4 * context + 2 * scored * _row(vocabulary)) + 64


def run_bytes(vocabulary: int, context: int, batch: int, *, all_logits: bool) -> int:
    """RAM that a run takes besides the model's: logits of a chunk in 16 bits, and in 32 bits those that count, or all.

    b11434 took 2.1 GB more than its model and its buffers for 2,048 tokens of 262,144.
    """
    return _row(vocabulary) * (context * (2 + (4 if all_logits else 2)) + batch * 4)


def counts_in_32_bits(vocabulary: int, context: int) -> bool:
    """Whether a chunk has so many numbers that a version which counts them in 32 bits does it right."""
    return context * _row(vocabulary) < 1 << 31


def _row(vocabulary: int) -> int:
    """Numbers of 16 bits that are kept of a token."""
    return 2 * ((vocabulary + 1) // 2) + 4


def _both(of: Pass) -> tuple[str, ...]:
    return (
        *("--ctx-size", str(of.context), "--batch-size", str(of.batch), "--ubatch-size", str(of.batch)),
        *("--kl-divergence-base", of.logits),
    )


def _words(known: Catalogue, arguments: tuple[str, ...], flags: frozenset[str]) -> Iterator[str]:
    """Words of the server's that say one of these flags, each once and as they are written."""
    index = -1
    for option in effective_options(known, arguments).said:
        if option.index > index and not flags.isdisjoint((*option.flag.spellings, *option.flag.negated)):
            index = option.index
            yield from option.words
