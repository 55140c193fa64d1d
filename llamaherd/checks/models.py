"""What a model's header says against what its instances want of it. Models that are not locked yet are passed over."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.engines import TRAITS, flags_of, reads_gguf, version_of
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Engine
from llamaherd.memory.experts import moe_layers

MUCH = 0.25
"""Of the layers with experts on the CPU: below this, reading them takes little of a token's time."""


def models(subject: RigContext) -> Iterator[Finding]:
    """Drafting without a head, more context than there is, and files that the pinned engine cannot load."""
    rig, document = subject.rig, subject.document
    for name, instance in rig.instances.items():
        where = ("instances", name)
        header = subject.headers.get(instance.model)
        engine = rig.engines.get(instance.engine)
        if header is None or engine is None:
            continue
        own = instance.draft and instance.draft.model is None
        if own and not header.heads and reads_gguf(engine):
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
        if instance.moves_experts and not moe_layers(header):
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
        if _loads_no_heads(engine) and header.architecture == "qwen35moe" and header.heads:
            yield Finding(
                "LH173",
                document.value((*where, "model")),
                f"this version of {engine.kind} cannot load `{instance.model}`: the file has a prediction head",
                "take a newer commit, or a file without the head",
            )


def beside_models(subject: RigContext) -> Iterator[Finding]:
    """Vision projectors and models that draft, which not every engine takes."""
    for name, instance in subject.rig.instances.items():
        engine, model = subject.rig.engines.get(instance.engine), subject.rig.models.get(instance.model)
        if engine is None or model is None:
            continue
        where, draft = ("instances", name), instance.draft
        newer = "take a newer commit of ik_llama.cpp, or llama.cpp"
        if model.mmproj and not reads_gguf(engine):
            message = f"vLLM takes no vision projector, and model `{instance.model}` has `mmproj`"
            help_ = "leave `mmproj` out: vLLM finds a model's vision in its own files"
            yield Finding("LH176", subject.document.value((*where, "model")), message, help_)
        if draft and draft.model and not reads_gguf(engine):
            place = subject.document.value((*where, "draft", "model"))
            message = "vLLM is told of no model that drafts here"
            yield Finding("LH176", place, message, "use `draft: {mtp: N}`, or `--speculative-config` in `extra_args`")
        if draft is None:
            continue
        if draft.mtp and draft.model and (known := flags_of(engine)) and known.knows("-mtp"):
            place = subject.document.value((*where, "draft", "model"))
            message = f"this version of {engine.kind} takes no prediction head in files of its own"
            yield Finding("LH176", place, message, newer)
        if model.mmproj and _loads_no_heads(engine):
            place = subject.document.value((*where, "draft"))
            message = f"this version of {engine.kind} does not draft with a vision projector beside the model"
            yield Finding("LH176", place, message, f"{newer}, or leave `draft` or `mmproj` out")


def _loads_no_heads(engine: Engine) -> bool:
    return (version_of(engine) or "").startswith(TRAITS[engine.kind].loads_no_heads)


MOST_OTHER_TOKENS = 128
"""By how many tokens vocabularies may differ (llama.cpp b11434, common/speculative.cpp:30; the server ends else)."""


def vocabularies(subject: RigContext) -> Iterator[Finding]:
    """A smaller model that drafts in tokens of its own."""
    for name, instance in subject.rig.instances.items():
        draft = instance.draft
        if draft is None or draft.model is None or draft.mtp:
            continue
        served, drafts = subject.headers.get(instance.model), subject.headers.get(draft.model)
        sizes = (served.vocabulary, drafts.vocabulary) if served and drafts else (0, 0)
        if all(sizes) and abs(sizes[0] - sizes[1]) > MOST_OTHER_TOKENS:
            message = f"`{draft.model}` has {sizes[1]} tokens and `{instance.model}` {sizes[0]}: "
            message += "what drafts must have the vocabulary of the model that it drafts for"
            help_ = "take a smaller model of the same family"
            yield Finding("LH223", subject.document.value(("instances", name, "draft", "model")), message, help_)
        elif served and drafts and (other := _other_tokens(served, drafts)):
            message = f"`{draft.model}` and `{instance.model}` {other}: what drafts must have the same tokens"
            help_ = "take a smaller model of the same family"
            yield Finding("LH223", subject.document.value(("instances", name, "draft", "model")), message, help_)


def _other_tokens(served: Header, drafts: Header) -> str | None:
    """In what two vocabularies of about one size differ; None where they do not, or do not say."""
    one, other = (each.parameters.get("tokenizer_model") for each in (served, drafts))
    if one and other and one != other:
        return f"have tokenizers of two kinds, `{other}` and `{one}`"
    begun, begins = (each.parameters.get("tokenizer_add_bos_token") for each in (served, drafts))
    if begun is not None and begins is not None and begun != begins:
        return "do not both put a token before the text"
    first, second = (each.parameters.get("tokenizer_bos_token_id") for each in (served, drafts))
    if begun and first is not None and second is not None and first != second:
        return f"begin a text by different tokens, {second} and {first}"
    return None


def drafting(subject: RigContext) -> Iterator[Finding]:
    """Drafting that may not pay."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if not (instance.draft and engine and TRAITS[engine.kind].reads_experts_for_each):
            continue
        if _part_on_cpu(instance.experts_on_cpu, subject.headers.get(instance.model)) > MUCH:
            yield Finding(
                "LH174",
                subject.document.value(("instances", name, "draft")),
                f"{engine.kind} reads the experts on the CPU once for every drafted token, so that drafting gains "
                "little",
                "measure it with and without `draft`; ik_llama.cpp reads them once for all",
                "note",
            )


def _part_on_cpu(share: str | int | None, header: Header | None) -> float:
    """Which part of the layers has its experts on the CPU; 0 where that cannot be told."""
    if isinstance(share, str):
        return float(share.rstrip("%")) / 100
    layers = len(moe_layers(header)) if header else 0
    return (share or 0) / layers if layers else 0
