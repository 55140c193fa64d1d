"""Headers of models compared with settings and tasks of instances. Models that are not locked yet are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Place, Rule, Severity
from llamaherd.engines import TRAITS, flags_of, reads_gguf, version_of
from llamaherd.engines.flags.task import Task, header_pooling, pooling
from llamaherd.gguf.header import WITHOUT_LOGITS, Header
from llamaherd.inventory.schema import Engine, Instance
from llamaherd.inventory.yaml_file import Document
from llamaherd.memory.facts import InstanceFacts

MUCH = 0.25
"""Of the layers with experts on the CPU: below this, reading them takes little of a token's time."""


@dataclass(frozen=True)
class ServedModel:
    """An instance whose engine is declared and whose model's header is known."""

    name: str
    instance: Instance
    engine: Engine
    header: Header
    document: Document

    def place(self, key: str) -> Place:
        """Return where a key of the instance is written."""
        return self.document.value(("instances", self.name, key))


def served_models(subject: RigContext) -> Iterator[ServedModel]:
    """Yield every instance whose engine and header are available."""
    for name, instance, engine in subject.servers:
        if header := subject.headers.get(instance.model):
            yield ServedModel(name, instance, engine, header, subject.document)


NO_HEAD = Rule(
    "LH170",
    "An instance drafts, and its model has no prediction head.",
    why="The engine would not start, or draft nothing.",
    example="""
    instances:
      helper: {draft: {mtp: 2}}
    """,
    fix="leave `draft` out, or take a file with a head, often in a repository named `…-MTP-GGUF`.",
)


def check_prediction_heads(subject: RigContext) -> Iterator[Finding]:
    """Report drafting without a prediction head."""
    for each in served_models(subject):
        own = each.instance.draft and each.instance.draft.model is None
        if own and not each.header.heads and reads_gguf(each.engine):
            message = f"model `{each.instance.model}` has no prediction head to draft with"
            help_ = "leave `draft` out, or take a file of it that has one: often in a repository named `…-MTP-GGUF`"
            yield NO_HEAD.at(each.place("draft"), message, help_)


BEYOND_TRAINING = Rule(
    "LH171",
    "A slot has more context than the model was trained for.",
    why="Outputs get worse beyond it, unless the model is meant to be stretched.",
    example="""
    instances:
      helper: {context: 65536}
    """,
    fix="write the figure of the help line. All slots share `context`.",
    severity="warning",
)


def check_training_context(subject: RigContext) -> Iterator[Finding]:
    """Report more context in a slot than the model was trained for."""
    for each in served_models(subject):
        trained, slots = each.header.number("context_length"), each.instance.parallel
        if trained and each.instance.context // slots > trained:
            message = f"model `{each.instance.model}` was trained for {trained} tokens, "
            message += f"and a slot of `{each.name}` would have more"
            yield BEYOND_TRAINING.at(each.place("context"), message, f"set `context: {trained * slots}` or less")


NO_EXPERTS = Rule(
    "LH172",
    "The model does not have the experts that `experts_on_cpu` names.",
    why="It is no mixture of experts, or has experts in fewer layers.",
    example="""
    instances:
      helper: {on: [big], experts_on_cpu: 75%}
    """,
    fix="write `gpu_layers: N` for a dense model, and `experts_on_cpu: all` for all layers with experts.",
)


def check_experts(subject: RigContext) -> Iterator[Finding]:
    """Report experts on the CPU that the model does not have."""
    for each in served_models(subject):
        layers, wanted, model = len(each.header.expert_layers), each.instance.experts_on_cpu, each.instance.model
        if each.instance.moves_experts and not layers:
            message = f"model `{model}` has no experts: it is not a mixture of them"
            help_ = "leave `experts_on_cpu` out, and keep some layers on the CPU by `gpu_layers: N`"
            yield NO_EXPERTS.at(each.place("experts_on_cpu"), message, help_)
        elif isinstance(wanted, int) and 0 < layers < wanted:
            message = f"model `{model}` has experts in {layers} layers, and {wanted} are requested"
            help_ = f"set `experts_on_cpu: {layers}` or less; `all` means {layers}"
            yield NO_EXPERTS.at(each.place("experts_on_cpu"), message, help_)


CANNOT_LOAD = Rule(
    "LH173",
    "The engine's version cannot load the model.",
    why="""
    ik_llama.cpp of April 2026 reads the prediction head of a Qwen3.5 or 3.6 MoE as one of the model's layers and misses
    its tensors.
    """,
    example="""
    engines:
      main: {kind: ik_llama.cpp, ref: main, flags: 67268c8fd}
    """,
    fix="take a newer commit, or a file without the head.",
)


def check_loadable(subject: RigContext) -> Iterator[Finding]:
    """Report files that the pinned version of the engine cannot load."""
    for each in served_models(subject):
        if loads_no_heads(each.engine) and each.header.architecture == "qwen35moe" and each.header.heads:
            message = f"this version of {each.engine.kind} cannot load `{each.instance.model}`: "
            message += "the file has a prediction head"
            yield CANNOT_LOAD.at(each.place("model"), message, "take a newer commit, or a file without the head")


LITTLE_GAIN = Rule(
    "LH174",
    "Drafting with experts on the CPU gains little in llama.cpp.",
    why="""
    It reads the experts from RAM once for every drafted token, which matters if more than a quarter of the layers have
    theirs there. The owner of the rig [duo](../rigs/duo.md) measured 4 % there, and 20 % with ik_llama.cpp, which reads
    them once for all.
    """,
    example="""
    instances:
      coder: {experts_on_cpu: 75%}
    """,
    fix="measure it with and without `draft`.",
    severity="note",
)


def check_drafting_gain(subject: RigContext) -> Iterator[Finding]:
    """Report drafting that may not pay."""
    for name, instance, engine in subject.servers:
        if not (instance.draft and TRAITS[engine.kind].reads_experts_for_each):
            continue
        if _part_on_cpu(instance.experts_on_cpu, subject.headers.get(instance.model)) > MUCH:
            yield LITTLE_GAIN.at(
                subject.document.value(("instances", name, "draft")),
                f"{engine.kind} reads the experts on the CPU once for every drafted token, so that drafting gains "
                "little",
                "measure it with and without `draft`; ik_llama.cpp reads them once for all",
            )


def _part_on_cpu(share: str | int | None, header: Header | None) -> float:
    """Return the part of the layers that has its experts on the CPU; 0 if it is unknown."""
    if isinstance(share, str):
        return float(share.rstrip("%")) / 100
    layers = len(header.expert_layers) if header else 0
    return (share or 0) / layers if layers else 0


MOST_OTHER_TOKENS = 128
"""By how many tokens vocabularies may differ (llama.cpp b11434, common/speculative.cpp:30; the server ends else)."""


OTHER_TOKENS = Rule(
    "LH223",
    "A draft model has other tokens than the model that it drafts for.",
    why="The server ends when it loads them.",
    example="""
    instances:
      coder: {draft: {mtp: null, model: small, max: 8}}
    """,
    fix="take a smaller model of the same family.",
)


def check_vocabularies(subject: RigContext) -> Iterator[Finding]:
    """Report draft models with other tokens."""
    for name, instance in subject.rig.instances.items():
        draft = instance.draft
        if draft is None or draft.model is None or draft.mtp:
            continue
        served, drafts = subject.headers.get(instance.model), subject.headers.get(draft.model)
        sizes = (served.vocabulary, drafts.vocabulary) if served and drafts else (0, 0)
        if all(sizes) and abs(sizes[0] - sizes[1]) > MOST_OTHER_TOKENS:
            message = f"`{draft.model}` has {sizes[1]} tokens and `{instance.model}` {sizes[0]}: "
            message += "a draft model must have the vocabulary of the model that it drafts for"
            help_ = "take a smaller model of the same family"
            yield OTHER_TOKENS.at(subject.document.value(("instances", name, "draft", "model")), message, help_)
        elif served and drafts and (other := _other_tokens(served, drafts)):
            message = f"`{draft.model}` and `{instance.model}` {other}: a draft model must have the same tokens"
            help_ = "take a smaller model of the same family"
            yield OTHER_TOKENS.at(subject.document.value(("instances", name, "draft", "model")), message, help_)


def _other_tokens(served: Header, drafts: Header) -> str | None:
    """Return how two vocabularies of about one size differ; None if they do not, or the headers lack it."""
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


CANNOT_DO = Rule(
    "LH176",
    "The pinned version of the engine does not support a key.",
    why="It has no flag for the key yet, or a flag that supports less: llama.cpp b9093 has no `draft-mtp`.",
    example="""
    engines:
      main: {ref: b9093}
    """,
    fix="take a newer version of the engine, or leave the key out.",
)


def check_sidecar_models(subject: RigContext) -> Iterator[Finding]:
    """Report vision projectors and draft models that the engine does not support."""
    for name, instance, engine in subject.servers:
        model = subject.rig.models.get(instance.model)
        if model is None:
            continue
        where, draft = ("instances", name), instance.draft
        newer = "take a newer commit of ik_llama.cpp, or llama.cpp"
        if model.mmproj and not reads_gguf(engine):
            message = f"vLLM takes no vision projector, and model `{instance.model}` has `mmproj`"
            help_ = "leave `mmproj` out: vLLM finds a model's vision in its own files"
            yield CANNOT_DO.at(subject.document.value((*where, "model")), message, help_)
        if draft and draft.model and not reads_gguf(engine):
            place = subject.document.value((*where, "draft", "model"))
            message = "llamaherd sets no draft model for vLLM"
            yield CANNOT_DO.at(place, message, "use `draft: {mtp: N}`, or `--speculative-config` in `extra_args`")
        if draft is None:
            continue
        if draft.mtp and draft.model and flags_of(engine).knows("-mtp"):
            place = subject.document.value((*where, "draft", "model"))
            message = f"this version of {engine.kind} takes no prediction head in files of its own"
            yield CANNOT_DO.at(place, message, newer)
        if model.mmproj and loads_no_heads(engine):
            place = subject.document.value((*where, "draft"))
            message = f"this version of {engine.kind} does not draft with a vision projector of the model"
            yield CANNOT_DO.at(place, message, f"{newer}, or leave `draft` or `mmproj` out")


def loads_no_heads(engine: Engine) -> bool:
    return (version_of(engine) or "").startswith(TRAITS[engine.kind].loads_no_heads)


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
        if wrong := _mismatch(facts.task, pooling(facts.command.effective), facts.header):
            message, help_, severity = wrong
            key = "serve" if "serve" in facts.instance.model_fields_set else "model"
            place = subject.document.value(("instances", name, key))
            yield WRONG_TASK.at(place, message.format(model=facts.instance.model), help_, severity)


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
        for key in _FOR_CHATS if facts.task != "chat" else ():
            if key in facts.instance.model_fields_set and getattr(facts.instance, key) is not None:
                place = subject.document.value(("instances", name, key))
                message = f"`{key}` does nothing: `{name}` is a server of {facts.task}"
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
