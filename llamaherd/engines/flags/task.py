"""The task of a server (chat, embeddings or rerank), and the inputs that an embedding server refuses."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.diagnostics.findings import Rule
from llamaherd.engines.flags.effective import Conflict, EffectiveOptions, ServerContext
from llamaherd.gguf.header import WITHOUT_CACHE, WITHOUT_LOGITS, Header
from llamaherd.inventory.schema import Task

__all__ = [
    "BATCH",
    "UBATCH",
    "Task",
    "find_short_inputs",
    "header_pooling",
    "natural_task",
    "pooling",
    "server_task",
    "splits_inputs",
]

_POOLING_TYPES = ("none", "mean", "cls", "last", "rank")
"""Types of pooling by their numbers in headers (llama.cpp b11434, include/llama.h)."""


def header_pooling(header: Header) -> str:
    """Return the type of pooling that a model's header names; `none` without one."""
    named = header.number("pooling_type", -1)
    return _POOLING_TYPES[named] if 0 <= named < len(_POOLING_TYPES) else "none"


BATCH, UBATCH = 2048, 512
"""The default batches of both engines, in tokens (llama.cpp b11434, common/arg.cpp:1672-1679)."""

_EMBEDDING, _RERANKING, _POOLING = ("--embedding", "--embd-gemma-default"), ("--rerank",), ("--pooling",)


def server_task(told: EffectiveOptions) -> Task:
    """Return what a server with these arguments and this environment is for.

    llama.cpp serves `/v1/rerank` where embeddings are on and the last pooling type is `rank` (b11434,
    common/arg.cpp:3487-3500, tools/server/server-context.cpp:5505). vLLM's runner decides, and its `--convert`.
    """
    if told.text("--runner") == "pooling" or told.text("--convert") in ("embed", "classify"):
        return "rerank" if told.text("--convert") == "classify" else "embeddings"
    if not any(option.on for option in told.every(*_EMBEDDING, *_RERANKING)):
        return "chat"
    return "rerank" if pooling(told) == "rank" else "embeddings"


def pooling(told: EffectiveOptions) -> str | None:
    """Return the pooling type that a server is started with; None leaves it to the model."""
    said = [option for option in told.every(*_POOLING, *_RERANKING) if option.on]
    # Variables are read before arguments, in the order of the flags: `--pooling`, then `--rerank`.
    said.sort(key=lambda option: (option.origin == "argument", not option.values and option.origin == "environment"))
    return (said[-1].value or "rank") if said else None


def natural_task(header: Header) -> Task:
    """Return what a model is made for, by its header."""
    pools = header_pooling(header)
    if pools == "rank":
        return "rerank"
    return "embeddings" if pools != "none" or header.architecture in WITHOUT_LOGITS else "chat"


def splits_inputs(header: Header) -> bool:
    """Return whether llama.cpp computes a long input of a model in parts (tools/server/server-context.cpp:446-473)."""
    pools, cached = header_pooling(header), header.architecture not in WITHOUT_CACHE
    return cached and (pools == "last" or (pools == "rank" and bool(header.number("attention.causal", 1))))


SHORT_INPUTS = Rule(
    "LH225",
    "A server for embeddings or rerank refuses inputs that its context has room for.",
    why="""
    It computes an input in one batch of `--ubatch-size` tokens, 512 unless you set it, and refuses a longer one. A
    model that pools the last token, or a causal reranker, computes a long input in parts. It is a note where the model
    is not known.
    """,
    example="""
    llama-server -m bge-m3.gguf -c 8192 --embeddings --port 8080
    """,
    language="sh",
    fix="""
    set `--batch-size` and `--ubatch-size` to the tokens of your longest input: in a rig, `batch` and `ubatch`. RAM for
    the outputs grows with them: each token takes four bytes for each entry of the vocabulary.
    """,
    severity="warning",
    sometimes=("note",),
)


def find_short_inputs(meant: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report embeddings of inputs that are longer than a batch.

    llama.cpp b11434, tools/server/server-context.cpp:446-473, 3396-3407; ik_llama.cpp 8337e4cd3,
    examples/server/server-context.cpp:3911-3919.
    """
    option = next((each for each in meant.every(*_EMBEDDING, *_RERANKING) if each.on), None)
    context = meant.number("--ctx-size", default=0)
    queued, computed = meant.number("--batch-size", default=BATCH), meant.number("--ubatch-size", default=UBATCH)
    most = min(queued, computed or queued)
    slots = meant.number("--parallel", default=1)
    longest = context if slots < 1 or meant.is_on("--kv-unified") else context // slots
    longest = min(longest, around.trained or longest)
    if option is None or not 0 < most < longest:
        return
    pools = pooling(meant) or around.pools
    splits = _splits(meant, around, pools)
    if splits:
        return
    both = f"`--batch-size {longest}` and " if queued < longest else ""
    message = f"{option} computes each input at once: one of more than {most} tokens is refused, of {longest} in a slot"
    help_ = f"write {both}`--ubatch-size {longest}`, or a smaller context"
    if splits is False:
        yield Conflict(SHORT_INPUTS, (option,), message, help_)
    else:
        other = "it is a causal reranker" if pools == "rank" else "the model pools its last token"
        yield Conflict(SHORT_INPUTS, (option,), message, f"{help_}, unless {other}", "note")


def _splits(meant: EffectiveOptions, around: ServerContext, pools: str | None) -> bool | None:
    """Return whether a long input is computed in parts; None where that depends on a model that is not known."""
    if meant.catalogue.kind != "llama.cpp" or around.cached is False:
        return False
    if pools == "rank":
        return around.causal
    return None if pools is None else pools == "last"
