"""Options that do not go together, with each other or with what is known of the rig: rules over arguments as meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.flags import codes
from llamaherd.flags.access import encrypted, openings
from llamaherd.flags.clash import Around, Clash, Rule
from llamaherd.flags.meant import Meant, Option
from llamaherd.flags.model import Flag
from llamaherd.flags.placing import attention_off, fit, overrides, shares, split

CONTEXT, PARALLEL = ("--ctx-size",), ("--parallel",)
DRAFT_MODEL = ("--spec-draft-model", "--model-draft")
AUTOMATIC_SLOTS = 4
"""What llama.cpp serves with unless it is told (b11434, tools/server/server.cpp:168-173)."""
MOST_SLOTS = 256
"""LLAMA_MAX_SEQ (llama.cpp b11434, src/llama-cparams.h)."""
LITTLE = 4096
"""Tokens of a slot below which a context looks like one that was meant for every slot."""
BATCH, UBATCH = 2048, 512
"""What both engines compute at once unless they are told (llama.cpp b11434, common/arg.cpp:1672-1679)."""


def clashes(meant: Meant, around: Around | None = None) -> Iterator[Clash]:
    """Everything that does not go together in what a server is told."""
    if meant.catalogue.kind == "vllm":
        return
    for rule in RULES:
        yield from rule(meant, around or Around())


def _attention(meant: Meant, _around: Around) -> Iterator[Clash]:
    """llama.cpp b11434, src/llama-context.cpp:3843; ik_llama.cpp 67268c8fd, src/llama.cpp:5369."""
    values, attention = meant.get("--cache-type-v"), attention_off(meant)
    if values and attention and not values.value.endswith(("f16", "f32")):
        message = f"a V cache of type `{values.value}` needs flash attention, and {attention} switches it off"
        yield Clash(codes.NO_ATTENTION, (values, attention), message, f"leave out {attention}, or {values}")


def _threads(meant: Meant, around: Around) -> Iterator[Clash]:
    """Zero and less is every logical processor (llama.cpp b11434, common/arg.cpp:1520; ik 67268c8fd, common.cpp)."""
    for name in ("--threads", "--threads-batch"):
        option = meant.get(name)
        number = meant.number(name, default=1)
        if option and number <= 0 and name == "--threads":
            message = f"{option} computes on every logical processor, SMT siblings too, which slows decoding down"
            help_ = "leave it out, or give the number of physical cores"
            yield Clash(codes.ALL_PROCESSORS, (option,), message, help_, "warning")
        if option and around.cores and number > around.cores:
            message = f"{option} are more threads than there are physical cores: {around.cores}"
            help_ = f"write {around.cores} at most: more only wait for each other, and SMT siblings are no cores"
            yield Clash(codes.TOO_MANY_THREADS, (option,), message, help_)


def _mtp(meant: Meant, _around: Around) -> Iterator[Clash]:
    """ik drops it with several slots (8337e4cd3, common/speculative.cpp:2083); llama.cpp multiplies its states."""
    head = _head(meant)
    slots = meant.get(*PARALLEL)
    number = meant.number(*PARALLEL, default=-1)
    if head is None:
        return
    if meant.catalogue.kind == "ik_llama.cpp":
        if slots and number > 1:
            message = f"ik_llama.cpp drops MTP when it serves more than one slot, and {slots} asks for {number}"
            yield Clash(codes.NO_MTP, (slots, head), message, f"write `{slots.words[0]} 1`, or leave out {head}")
    elif number < 0:
        drafted = meant.number("--spec-draft-n-max", default=3)
        copies = AUTOMATIC_SLOTS * (1 + max(0, drafted))
        message = f"without `--parallel` there are {AUTOMATIC_SLOTS} slots, and with {head} a hybrid model's state "
        message += f"is held {copies} times"
        help_ = f"add `--parallel 1` for one user: {1 + max(0, drafted)} copies"
        yield Clash(codes.MANY_STATES, (slots or head,), message, help_, "note")


def _head(meant: Meant) -> Option | None:
    """What makes a model's own head draft."""
    if switch := meant.get("-mtp"):
        return switch
    kinds = meant.every("--spec-type", "--spec-stage")
    return next((each for each in kinds if each.value.split(":")[0] in ("mtp", "draft-mtp")), None)


def _drafting(meant: Meant, _around: Around) -> Iterator[Clash]:
    """A model that drafts wants its type since b9246; a file that is a head tells it by itself (common/arg.cpp:568)."""
    kinds = meant.catalogue.find("--spec-type")
    typed = bool(kinds and kinds.values and kinds.values[-1].wrong("draft-simple") is None)
    if meant.catalogue.kind != "llama.cpp" or not typed:
        return
    chosen, model = meant.get("--spec-type"), meant.get(*DRAFT_MODEL)
    if meant.get("--spec-default") or (chosen and chosen.value != "none"):
        return
    heads = ("mtp", "nextn", "eagle", "dflash", "dspark")
    if model and not any(name in model.value.lower() for name in heads):
        message = f"{model} alone drafts nothing: {meant.catalogue} wants to be told how"
        yield Clash(codes.DRAFTS_NOTHING, (model,), message, "add `--spec-type draft-simple`", "warning")
        return
    count = meant.get("--spec-draft-n-max")
    if count and model is None and not meant.get("--spec-draft-hf", "--hf-repo-draft"):
        message = f"{count} drafts nothing: neither a way to draft nor a model that does is named"
        help_ = "add `--spec-type draft-mtp` for a model with a prediction head, or leave it out"
        yield Clash(codes.DRAFTS_NOTHING, (count,), message, help_, "warning")


def _slots(meant: Meant, _around: Around) -> Iterator[Clash]:
    """The context is cut into slots, unless they share it (llama.cpp b11434, src/llama-context.cpp:291-308)."""
    context, slots = meant.get(*CONTEXT), meant.get(*PARALLEL)
    if slots and meant.number(*PARALLEL, default=1) > MOST_SLOTS and meant.catalogue.kind == "llama.cpp":
        message = f"{slots} are more slots than the {MOST_SLOTS} that llama.cpp serves at most"
        yield Clash(codes.TOO_MANY, (slots,), message, f"write {MOST_SLOTS} at most")
    tokens, number = meant.number(*CONTEXT, default=0), meant.number(*PARALLEL, default=1)
    if not (context and slots) or number < 2 or meant.is_on("--kv-unified"):
        return
    if 0 < tokens // number < LITTLE:
        message = f"{context} is shared by {number} slots: each request has {tokens // number} tokens"
        help_ = f"write `{context.words[0]} {tokens * number}` for {tokens} tokens each"
        yield Clash(codes.SMALL_SLOTS, (context, slots), message, help_, "note")


def _batches(meant: Meant, _around: Around) -> Iterator[Clash]:
    """No more is computed at once than is queued at once (llama.cpp b11434, src/llama-context.cpp:250)."""
    computed = meant.get("--ubatch-size")
    queued, batch = meant.number("--batch-size", default=BATCH), meant.get("--batch-size")
    number = meant.number("--ubatch-size", default=UBATCH)
    if computed and number > queued > 0:
        message = f"{computed} is cut to {queued}: no more is computed at once than `--batch-size` queues"
        options = (computed, batch) if batch else (computed,)
        yield Clash(codes.CUT_BATCH, options, message, f"write `--batch-size {number}` besides", "warning")


def _template(meant: Meant, _around: Around) -> Iterator[Clash]:
    option = meant.get("--chat-template")
    if option is None or "{" in option.value:
        return
    if option.value.endswith((".jinja", ".jinja2", ".j2", ".txt")) or option.value.startswith(("/", "./", "~")):
        message = f"{option} takes the path itself for the template"
        yield Clash(codes.PATH_AS_TEXT, (option,), message, f"write `--chat-template-file {option.value}`")


KEY_VALUE = re.compile(r"[^=,]{1,127}=(?:int:-?[0-9]+|float:[-+0-9.eE]+|bool:(?:true|false)|str:[^,]{0,127})")


def _metadata(meant: Meant, _around: Around) -> Iterator[Clash]:
    """KEY=TYPE:VALUE, several with commas between (llama.cpp b11434, common/common.cpp, string_parse_kv_override)."""
    for option in meant.every("--override-kv"):
        if not all(KEY_VALUE.fullmatch(part) for part in re.split(r"(?<!\\),", option.value)):
            message = f"{option} is no `KEY=TYPE:VALUE`, where the type is `int`, `float`, `bool` or `str`"
            help_ = "write one such as `tokenizer.ggml.add_bos_token=bool:false`"
            yield Clash(codes.BAD_METADATA, (option,), message, help_)


def _reuse(meant: Meant, around: Around) -> Iterator[Clash]:
    """The server says so in its log and goes on (llama.cpp b11434, tools/server/server-context.cpp:1312-1326)."""
    option = meant.get("--cache-reuse")
    if option is None or meant.number("--cache-reuse", default=0) <= 0:
        return
    projector = meant.get("--mmproj")
    if around.shifts is False or projector:
        because = f"beside {projector}" if projector else "for this model, whose cache cannot be moved"
        message = f"{option} does nothing {because}: only the common beginning of a prompt is used again"
        yield Clash(codes.NOT_REUSED, (option,), message, "leave it out", "warning")


def _order(meant: Meant, _around: Around) -> Iterator[Clash]:
    """CUDA counts the fastest card first, nvidia-smi by place on the bus (CUDA C++ Programming Guide, appendix)."""
    chosen = meant.environment.get("CUDA_VISIBLE_DEVICES", "")
    numbers = [part.strip() for part in chosen.split(",") if part.strip()]
    ordered = meant.environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if ordered or not all(number.isdigit() for number in numbers) or numbers in ([], ["0"]):
        return
    index = list(meant.environment).index("CUDA_VISIBLE_DEVICES")
    option = Option(Flag(()), (f"CUDA_VISIBLE_DEVICES={chosen}",), (chosen,), True, "environment", index)
    message = f"{option} may be other cards than nvidia-smi's: CUDA counts the fastest first"
    yield Clash(codes.CUDA_ORDER, (option,), message, "add `CUDA_DEVICE_ORDER=PCI_BUS_ID`, or name UUIDs", "note")


RULES: tuple[Rule, ...] = (
    *(_attention, fit, split, shares, overrides, _threads, _mtp, _drafting),
    *(_slots, _batches, _template, _metadata, _reuse, _order, encrypted, openings),
)
