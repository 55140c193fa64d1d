"""What a server is for: chat, embeddings or rerank, by its arguments and environment."""

from __future__ import annotations

from typing import Literal

from llamaherd.engines import flags_of
from llamaherd.engines.command_line import command_line
from llamaherd.engines.flags.meant import Meant
from llamaherd.inventory.schema import Instance, Rig

Task = Literal["chat", "embeddings", "rerank"]
"""What clients request of a server: completions, vectors of texts, or scores of documents."""

_EMBEDDING, _RERANKING, _POOLING = ("--embedding", "--embd-gemma-default"), ("--rerank",), ("--pooling",)


def instance_task(rig: Rig, instance: Instance) -> Task:
    """Return what an instance's server is for; chat where its engine, or the flags of its version, are unknown."""
    engine = rig.engines.get(instance.engine)
    known = flags_of(engine) if engine else None
    return server_task(command_line(rig, instance, known).meant) if known else "chat"


def server_task(told: Meant) -> Task:
    """Return what a server with these arguments and this environment is for.

    llama.cpp serves `/v1/rerank` where embeddings are on and the last pooling type is `rank` (b11434,
    common/arg.cpp:3487-3500, tools/server/server-context.cpp:5505). vLLM's runner decides, and its `--convert`.
    """
    if told.text("--runner") == "pooling" or told.text("--convert") in ("embed", "classify"):
        return "rerank" if told.text("--convert") == "classify" else "embeddings"
    if not any(option.on for option in told.every(*_EMBEDDING, *_RERANKING)):
        return "chat"
    return "rerank" if pooling(told) == "rank" else "embeddings"


def pooling(told: Meant) -> str | None:
    """Return the pooling type that a server is started with; None leaves it to the model."""
    said = [option for option in told.every(*_POOLING, *_RERANKING) if option.on]
    # Variables are read before arguments, in the order of the flags: `--pooling`, then `--rerank`.
    said.sort(key=lambda option: (option.origin == "argument", not option.values and option.origin == "environment"))
    return (said[-1].value or "rank") if said else None
