"""Checks of the options for drafting: what drafts, for how many slots, and settings without effect."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.diagnostics.findings import Rule
from llamaherd.engines.flags.effective import Conflict, EffectiveOptions, Option, ServerContext

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


def find_ignored_heads(meant: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report heads for several slots: ik_llama.cpp drops them, llama.cpp multiplies their states.

    ik_llama.cpp 8337e4cd3, common/speculative.cpp:2083.
    """
    head = _head(meant)
    slots = meant.get(*PARALLEL)
    number = meant.number(*PARALLEL, default=-1)
    if head is None:
        return
    if meant.catalogue.kind == "ik_llama.cpp":
        if slots and number > 1:
            message = f"ik_llama.cpp drops MTP when it serves more than one slot, and {slots} requests {number}"
            yield Conflict(NO_MTP, (slots, head), message, f"write `{slots.words[0]} 1`, or leave out {head}")
    elif number < 0:
        drafted = meant.number("--spec-draft-n-max", default=3)
        copies = AUTOMATIC_SLOTS * (1 + max(0, drafted))
        message = f"without `--parallel` there are {AUTOMATIC_SLOTS} slots, and with {head} a hybrid model's state "
        message += f"is held {copies} times"
        help_ = f"add `--parallel 1` for one user: {1 + max(0, drafted)} copies"
        yield Conflict(MANY_STATES, (slots or head,), message, help_)


def _head(meant: EffectiveOptions) -> Option | None:
    """Return the option that lets a model's own head draft."""
    if switch := meant.get("-mtp"):
        return switch
    kinds = meant.every("--spec-type", "--spec-stage")
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


def find_missing_draft_type(meant: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report a draft model without its type, which it needs since b9246 unless it is a head (common/arg.cpp:568)."""
    kinds = meant.catalogue.find("--spec-type")
    typed = bool(kinds and kinds.values and kinds.values[-1].wrong("draft-simple") is None)
    if meant.catalogue.kind != "llama.cpp" or not typed:
        return
    chosen, model = meant.get("--spec-type"), meant.get(*DRAFT_MODEL)
    if meant.get("--spec-default") or (chosen and chosen.value != "none"):
        return
    heads = ("mtp", "nextn", "eagle", "dflash", "dspark")
    if model and not any(name in model.value.lower() for name in heads):
        message = f"{model} alone drafts nothing: {meant.catalogue} needs the method of drafting"
        yield Conflict(DRAFTS_NOTHING, (model,), message, "add `--spec-type draft-simple`")
        return
    count = meant.get("--spec-draft-n-max")
    if count and model is None and not meant.get("--spec-draft-hf", "--hf-repo-draft"):
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


def find_own_draft(meant: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report a model that drafts for itself: it computes every token twice."""
    model, served = meant.get(*DRAFT_MODEL), meant.get("--model")
    if model and served and model.value == served.value:
        message = f"{model} is the model that is served: it would draft for itself, and each token cost twice as much"
        yield Conflict(OWN_DRAFT, (model, served), message, f"name a much smaller model, or leave out {model}")


def find_useless_draft_settings(meant: EffectiveOptions, _around: ServerContext) -> Iterator[Conflict]:
    """Report settings of drafting without effect (llama.cpp b11434, common/speculative.cpp:439-468)."""
    if meant.catalogue.kind != "llama.cpp":
        return
    kinds, model = meant.get("--spec-type"), meant.get(*DRAFT_SOURCES)
    names = kinds.value.split(",") if kinds else []
    alone = next((name for name in names if name in BY_MODEL), None)
    if kinds and alone and model is None:
        message = f"{kinds} drafts nothing: `{alone}` needs a draft model, and none is named"
        yield Conflict(DRAFTS_NOTHING, (kinds,), message, "add `-md` with one, or leave it out")
    if kinds and model and names and all(name.startswith("ngram") for name in names):
        message = f"{model} is loaded and drafts nothing: {kinds} drafts from the text alone"
        help_ = f"leave out {model}, or write `--spec-type draft-simple`"
        yield Conflict(DRAFTS_NOTHING, (model, kinds), message, help_)
    about = next((option for name in OF_DRAFT_MODEL if (option := meant.get(name))), None)
    if about and model is None and not alone:
        message = f"{about} is about a model that drafts, and none is named"
        yield Conflict(DRAFTS_NOTHING, (about,), message, "add `-md` with one, or leave it out")
    cache = meant.get("--spec-draft-type-k", "--cache-type-k-draft") or meant.get(
        "--spec-draft-type-v", "--cache-type-v-draft"
    )
    if cache and kinds is None and model is None and not meant.get("--spec-default"):
        message = f"{cache} is about drafting, and nothing drafts"
        yield Conflict(DRAFTS_NOTHING, (cache,), message, "add `--spec-type` with a way to draft, or leave it out")
    least, most = meant.get("--spec-draft-n-min"), meant.number("--spec-draft-n-max", default=3)
    if least and meant.number("--spec-draft-n-min", default=0) > most:
        message = f"{least} throws every draft away: no more than {most} tokens are drafted at once"
        yield Conflict(DRAFTS_NOTHING, (least,), message, f"write {most} at most, or leave it out")
