"""What a model's header says against what its instances want of it. Models that are not locked yet are passed over."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.subject import Subject
from llamaherd.engines import version_of
from llamaherd.findings import Finding
from llamaherd.gguf.header import Header
from llamaherd.memory.experts import moe_layers
from llamaherd.sizing import moves_experts

MUCH = 0.25
"""Of the layers with experts on the CPU: below this, reading them takes little of a token's time."""

IK_WITHOUT_QWEN_HEADS = "67268c8fd"
"""ik_llama.cpp of April 2026, before ik#1745: it looks for the head's tensors among the trunk's and does not load."""


def models(subject: Subject) -> Iterator[Finding]:
    """Drafting without a head, more context than there is, and files that the pinned engine cannot load."""
    rig, document = subject.rig, subject.document
    for name, instance in rig.instances.items():
        where = ("instances", name)
        header = subject.headers.get(instance.model)
        engine = rig.engines.get(instance.engine)
        if header is None or engine is None:
            continue
        if instance.draft and not header.heads and engine.kind != "vllm":
            yield Finding(
                "LH170",
                document.value((*where, "draft")),
                f"model `{instance.model}` has no prediction head to draft with",
                "leave `draft` out, or take a file of it that has one: often in a repository named `…-MTP-GGUF`",
            )
        trained = header.number("context_length")
        if trained and instance.context // instance.parallel > trained:
            yield Finding(
                "LH171",
                document.value((*where, "context")),
                f"model `{instance.model}` was trained for {trained} tokens, and a slot of `{name}` would have more",
                f"set `context: {trained * instance.parallel}` or less",
                "warning",
            )
        if moves_experts(instance) and not moe_layers(header):
            yield Finding(
                "LH172",
                document.value((*where, "experts_on_cpu")),
                f"model `{instance.model}` has no experts: it is not a mixture of them",
                "leave `experts_on_cpu` out, and keep some layers on the CPU by `gpu_layers: N`",
            )
        layers = len(moe_layers(header))
        if isinstance(instance.experts_on_cpu, int) and 0 < layers < instance.experts_on_cpu:
            yield Finding(
                "LH172",
                document.value((*where, "experts_on_cpu")),
                f"model `{instance.model}` has experts in {layers} layers, and {instance.experts_on_cpu} are wanted",
                f"set `experts_on_cpu: {layers}` or less; `all` says the same as {layers}",
            )
        if (
            engine.kind == "ik_llama.cpp"
            and (version_of(engine) or "").startswith(IK_WITHOUT_QWEN_HEADS)
            and header.architecture == "qwen35moe"
            and header.heads
        ):
            yield Finding(
                "LH173",
                document.value((*where, "model")),
                f"this version of ik_llama.cpp cannot load `{instance.model}`: the file has a prediction head",
                "take a newer commit, or a file without the head",
            )


def drafting(subject: Subject) -> Iterator[Finding]:
    """Drafting that may not pay."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if not (instance.draft and engine and engine.kind == "llama.cpp"):
            continue
        if _part_on_cpu(instance.experts_on_cpu, subject.headers.get(instance.model)) > MUCH:
            yield Finding(
                "LH174",
                subject.document.value(("instances", name, "draft")),
                "llama.cpp reads the experts on the CPU once for every drafted token, so that drafting gains little",
                "measure it with and without `draft`; ik_llama.cpp reads them once for all",
                "note",
            )


def _part_on_cpu(share: str | int | None, header: Header | None) -> float:
    """Which part of the layers has its experts on the CPU; 0 where that cannot be told."""
    if isinstance(share, str):
        return float(share.rstrip("%")) / 100
    layers = len(moe_layers(header)) if header else 0
    return (share or 0) / layers if layers else 0
