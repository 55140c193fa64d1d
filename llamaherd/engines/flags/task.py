"""What a server does: its task (chat, embeddings or rerank), and drafting."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.diagnostics.findings import Rule
from llamaherd.engines.flags.effective import Conflict, EffectiveOptions, Option, ServerContext
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


def server_task(effective: EffectiveOptions) -> Task:
    """Return what a server with these arguments and this environment is for.

    llama.cpp serves `/v1/rerank` where embeddings are on and the last pooling type is `rank` (b11434,
    common/arg.cpp:3487-3500, tools/server/server-context.cpp:5505). vLLM's runner decides, and its `--convert`.
    """
    if effective.text("--runner") == "pooling" or effective.text("--convert") in ("embed", "classify"):
        return "rerank" if effective.text("--convert") == "classify" else "embeddings"
    if not any(option.on for option in effective.every(*_EMBEDDING, *_RERANKING)):
        return "chat"
    return "rerank" if pooling(effective) == "rank" else "embeddings"


def pooling(effective: EffectiveOptions) -> str | None:
    """Return the pooling type that a server is started with; None leaves it to the model."""
    said = [option for option in effective.every(*_POOLING, *_RERANKING) if option.on]
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


def find_short_inputs(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report embeddings of inputs that are longer than a batch.

    llama.cpp b11434, tools/server/server-context.cpp:446-473, 3396-3407; ik_llama.cpp 8337e4cd3,
    examples/server/server-context.cpp:3911-3919.
    """
    option = next((each for each in effective.every(*_EMBEDDING, *_RERANKING) if each.on), None)
    context = effective.number("--ctx-size", default=0)
    queued = effective.number("--batch-size", default=BATCH)
    computed = effective.number("--ubatch-size", default=UBATCH)
    most = min(queued, computed or queued)
    slots = effective.number("--parallel", default=1)
    longest = context if slots < 1 or effective.is_on("--kv-unified") else context // slots
    longest = min(longest, around.trained or longest)
    if option is None or not 0 < most < longest:
        return
    pools = pooling(effective) or around.pools
    splits = _splits(effective, around, pools)
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


def _splits(effective: EffectiveOptions, around: ServerContext, pools: str | None) -> bool | None:
    """Return whether a long input is computed in parts; None where that depends on a model that is not known."""
    if effective.catalogue.kind != "llama.cpp" or around.cached is False:
        return False
    if pools == "rank":
        return around.causal
    return None if pools is None else pools == "last"


PARALLEL = ("--parallel",)
DRAFT_MODEL = ("--spec-draft-model", "--model-draft")
DRAFT_SOURCES = (*DRAFT_MODEL, "--spec-draft-hf", "--hf-repo-draft")
AUTOMATIC_SLOTS = 4
"""The default number of slots of llama.cpp (b11434, tools/server/server.cpp:168-173)."""
BY_MODEL = ("draft-simple", "draft-eagle3", "draft-dflash", "draft-dspark")
"""Ways to draft that need a draft model (llama.cpp b11434, common/speculative.cpp:239, :554, :1026)."""
OF_DRAFT_MODEL = (
    *("--spec-draft-ngl", "--n-gpu-layers-draft", "--spec-draft-device", "--device-draft"),
    *("--spec-draft-cpu-moe", "--spec-draft-n-cpu-moe", "--override-tensor-draft", "--spec-draft-threads"),
)
"""Options of the draft model alone (common_base_params_to_speculative, common/speculative.cpp:2520-2550)."""


NO_MTP = Rule(
    "LH023",
    "ik_llama.cpp would drop speculative decoding.",
    why="It does so without a warning when it serves more than one slot.",
    example="""
    engines:
      main: {kind: ik_llama.cpp, ref: main, flags: 8337e4cd3}
    instances:
      coder: {draft: {mtp: 2}, parallel: 2}
    """,
    fix="set `parallel: 1`, or leave `draft` out, or use llama.cpp.",
)


MANY_STATES = Rule(
    "LH213",
    "The automatic number of slots multiplies what drafting holds.",
    why="""
    llama.cpp serves four slots by default. A model with recurrent layers, such as Qwen3.5, holds its state once for
    each slot and each drafted token.
    """,
    example="""
    llama-server -m model.gguf -c 8192 --spec-type draft-mtp --spec-draft-n-max 3
    """,
    language="sh",
    fix="write `--parallel 1`, or as many slots as there are users.",
    severity="note",
)


def find_ignored_heads(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report heads for several slots: ik_llama.cpp drops them, llama.cpp multiplies their states.

    ik_llama.cpp 8337e4cd3, common/speculative.cpp:2083.
    """
    head = _head(effective)
    slots = effective.get(*PARALLEL)
    number = effective.number(*PARALLEL, default=-1)
    if head is None:
        return
    if effective.catalogue.kind == "ik_llama.cpp":
        if slots and number > 1:
            message = f"ik_llama.cpp drops MTP when it serves more than one slot, and {slots} requests {number}"
            yield Conflict(NO_MTP, (slots, head), message, f"write `{slots.words[0]} 1`, or leave out {head}")
    elif number < 0:
        drafted = effective.number("--spec-draft-n-max", default=3)
        copies = AUTOMATIC_SLOTS * (1 + max(0, drafted))
        message = f"without `--parallel` there are {AUTOMATIC_SLOTS} slots, and with {head} a hybrid model's state "
        message += f"is held {copies} times"
        help_ = f"add `--parallel 1` for one user: {1 + max(0, drafted)} copies"
        yield Conflict(MANY_STATES, (slots or head,), message, help_)


def _head(effective: EffectiveOptions) -> Option | None:
    """Return the option that lets a model's own head draft."""
    if switch := effective.get("-mtp"):
        return switch
    kinds = effective.every("--spec-type", "--spec-stage")
    return next((each for each in kinds if each.value.split(":")[0] in ("mtp", "draft-mtp")), None)


DRAFTS_NOTHING = Rule(
    "LH212",
    "Drafting is configured, and has no effect.",
    why="llama.cpp since b9246 needs the method of drafting: without that, it loads the model and does not use it.",
    example="""
    llama-server -m big.gguf -md small.gguf -c 8192 -np 1
    """,
    language="sh",
    fix="""
    add `--spec-type draft-simple` for a draft model, `draft-mtp` for a prediction head. In a rig, write the key
    `draft`.
    """,
    severity="warning",
)


def find_missing_draft_type(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report a draft model without its type, which it needs since b9246 unless it is a head (common/arg.cpp:568)."""
    if effective.catalogue.kind != "llama.cpp" or not effective.catalogue.accepts("--spec-type", "draft-simple"):
        return
    chosen, model = effective.get("--spec-type"), effective.get(*DRAFT_MODEL)
    if effective.get("--spec-default") or (chosen and chosen.value != "none"):
        return
    heads = ("mtp", "nextn", "eagle", "dflash", "dspark")
    if model and not any(name in model.value.lower() for name in heads):
        message = f"{model} alone drafts nothing: {effective.catalogue} needs the method of drafting"
        yield Conflict(DRAFTS_NOTHING, (model,), message, "add `--spec-type draft-simple`")
        return
    count = effective.get("--spec-draft-n-max")
    if count and model is None and not effective.get("--spec-draft-hf", "--hf-repo-draft"):
        message = f"{count} drafts nothing: neither a way to draft nor a model that does is named"
        help_ = "add `--spec-type draft-mtp` for a model with a prediction head, or leave it out"
        yield Conflict(DRAFTS_NOTHING, (count,), message, help_)


OWN_DRAFT = Rule(
    "LH029",
    "A model would draft for itself.",
    why="""
    A model that drafts must be smaller than the one it drafts for. The same model takes its memory twice, and
    nothing is faster.
    """,
    example="""
    instances:
      helper: {draft: {model: small}}
    """,
    fix="""
    name a smaller model of the same vocabulary, or write `draft: {mtp: 2}` where the model has a prediction head.
    """,
)


def find_own_draft(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report a model that drafts for itself: it computes every token twice."""
    model, served = effective.get(*DRAFT_MODEL), effective.get("--model")
    if model and served and model.value == served.value:
        message = f"{model} is the model that is served: it would draft for itself, and each token cost twice as much"
        yield Conflict(OWN_DRAFT, (model, served), message, f"name a much smaller model, or leave out {model}")


def find_useless_draft_settings(effective: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report settings of drafting without effect (llama.cpp b11434, common/speculative.cpp:439-468)."""
    if effective.catalogue.kind != "llama.cpp":
        return
    kinds, model = effective.get("--spec-type"), effective.get(*DRAFT_SOURCES)
    names = kinds.value.split(",") if kinds else []
    alone = next((name for name in names if name in BY_MODEL), None)
    if kinds and alone and model is None:
        message = f"{kinds} drafts nothing: `{alone}` needs a draft model, and none is named"
        yield Conflict(DRAFTS_NOTHING, (kinds,), message, "add `-md` with one, or leave it out")
    if kinds and model and names and all(name.startswith("ngram") for name in names):
        message = f"{model} is loaded and drafts nothing: {kinds} drafts from the text alone"
        help_ = f"leave out {model}, or write `--spec-type draft-simple`"
        yield Conflict(DRAFTS_NOTHING, (model, kinds), message, help_)
    about = next((option for name in OF_DRAFT_MODEL if (option := effective.get(name))), None)
    if about and model is None and not alone:
        message = f"{about} is about a model that drafts, and none is named"
        yield Conflict(DRAFTS_NOTHING, (about,), message, "add `-md` with one, or leave it out")
    keys = effective.get("--spec-draft-type-k", "--cache-type-k-draft")
    cache = keys or effective.get("--spec-draft-type-v", "--cache-type-v-draft")
    if cache and kinds is None and model is None and not effective.get("--spec-default"):
        message = f"{cache} is about drafting, and nothing drafts"
        yield Conflict(DRAFTS_NOTHING, (cache,), message, "add `--spec-type` with a way to draft, or leave it out")
    least, most = effective.get("--spec-draft-n-min"), effective.number("--spec-draft-n-max", default=3)
    if least and effective.number("--spec-draft-n-min", default=0) > most:
        message = f"{least} throws every draft away: no more than {most} tokens are drafted at once"
        yield Conflict(DRAFTS_NOTHING, (least,), message, f"write {most} at most, or leave it out")
