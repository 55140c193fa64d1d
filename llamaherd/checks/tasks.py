"""Servers of embeddings and rerank: whether the engine and the model can do it, and keys that do nothing there."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.checks.models import CANNOT_DO
from llamaherd.diagnostics.findings import Finding, Rule, Severity
from llamaherd.engines import reads_gguf
from llamaherd.engines.flags.task import Task, header_pooling, pooling, server_task
from llamaherd.gguf.header import Header
from llamaherd.gguf.layers import WITHOUT_LOGITS
from llamaherd.memory.facts import InstanceFacts

WRONG_TASK = Rule(
    "LH178",
    "A model cannot do what its server is for.",
    why="""
    The header shows it. A model whose graph ends with embeddings, such as `bert`, writes no text. A model without a
    classification head ranks nothing: its scores have no meaning. Where no type of pooling is known, llama.cpp refuses
    `/v1/embeddings`. A reranker returns one score in place of a vector: that is a warning.
    """,
    example="""
    instances:
      helper: {serve: rerank}
    """,
    fix="write the `serve` or `pooling` of the help line, or serve another model.",
    sometimes=("warning",),
)
IDLE_FOR_TASK = Rule(
    "LH179",
    "A key is for chats, and the server is for embeddings or rerank.",
    why="The server writes no text: there is nothing to sample, to draft, or to measure in tokens per second.",
    example="""
    instances:
      helper: {serve: embeddings, pooling: mean, sampling: {temperature: 0.7}}
    """,
    fix="leave the key out.",
    severity="warning",
)
_FOR_CHATS = ("draft", "sampling", "thinking", "cache_reuse", "tune", "gate")
"""Keys of an instance that matter only where text is written."""


def check_tasks(subject: RigContext) -> Iterator[Finding]:
    """Report models that cannot do what their server is for (LH178)."""
    for name, facts in subject.facts.instances.items():
        if facts.command is None or facts.header is None or not reads_gguf(subject.rig.engines[facts.instance.engine]):
            continue
        task = server_task(facts.command.meant)
        chosen = pooling(facts.command.meant)
        if wrong := _mismatch(task, chosen, facts.header):
            message, help_, severity = wrong
            key = "serve" if "serve" in facts.instance.model_fields_set else "model"
            place = subject.document.value(("instances", name, key))
            sentence = message.format(model=facts.instance.model, task=task)
            yield WRONG_TASK.at(place, sentence, help_, severity)


def _mismatch(task: Task, chosen: str | None, header: Header) -> tuple[str, str, Severity] | None:
    """Return what a model cannot do, the fix, and the severity; None if it can do it."""
    pools = header_pooling(header)
    own = "rerank" if pools == "rank" else "embeddings"
    if task == "chat" and header.architecture in WITHOUT_LOGITS:
        return f"`{{model}}` is a `{header.architecture}` model, which writes no text", f"write `serve: {own}`", "error"
    if task == "rerank" and not any(tensor.name.startswith("cls.") for tensor in header.tensors):
        # Embeddings of it would need a `pooling` that nothing names: that of a reranker is `rank`.
        fix = (
            "serve a reranker"
            if pools == "none" and chosen in (None, "rank")
            else "write `serve: embeddings`, or serve a reranker"
        )
        return "`{model}` has no classification head: its scores would mean nothing", fix, "error"
    if task == "embeddings" and chosen is None and pools == "none":
        fix = "write `pooling: last`, or `mean`, by the model's card; or serve a model for embeddings"
        return "the header of `{model}` names no pooling, and llama.cpp then refuses `/v1/embeddings`", fix, "error"
    if task == "embeddings" and chosen is None and pools == "rank":
        return "`{model}` is a reranker: it returns a score in place of a vector", "write `serve: rerank`", "warning"
    return None


def check_task_keys(subject: RigContext) -> Iterator[Finding]:
    """Report keys without an effect on servers of embeddings and rerank (LH179), and engines without such a server."""
    for name, facts in subject.facts.instances.items():
        if facts.command is None:
            continue
        yield from _unsupported(subject, name, facts)
        task = server_task(facts.command.meant)
        for key in _FOR_CHATS if task != "chat" else ():
            if key in facts.instance.model_fields_set and getattr(facts.instance, key) is not None:
                place = subject.document.value(("instances", name, key))
                message = f"`{key}` does nothing: `{name}` is a server of {task}"
                yield IDLE_FOR_TASK.at(place, message, f"leave `{key}` out")


def _unsupported(subject: RigContext, name: str, facts: InstanceFacts) -> Iterator[Finding]:
    """Report a task or a pooling for which the engine has no flag (LH176)."""
    engine = subject.rig.engines[facts.instance.engine]
    known = facts.flags
    if facts.instance.serve == "rerank" and reads_gguf(engine) and known and not known.knows("--reranking"):
        message = f"{engine.kind} {known.version} has no server of rerank"
        place = subject.document.value(("instances", name, "serve"))
        yield CANNOT_DO.at(place, message, "serve it with an engine of kind `llama.cpp`")
    if facts.instance.pooling and not reads_gguf(engine):
        place = subject.document.value(("instances", name, "pooling"))
        message = f"llamaherd sets no pooling for {engine.kind}, which reads it from the model's files"
        yield CANNOT_DO.at(place, message, "leave `pooling` out, or add `--pooler-config` to `extra_args`")
