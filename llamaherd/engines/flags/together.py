"""Options that do not go together, with each other or with what is known of the rig: rules over arguments as meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.diagnostics.rule import Rule
from llamaherd.engines.flags import vllm
from llamaherd.engines.flags.access import addresses, encrypted, openings
from llamaherd.engines.flags.clash import Around, Clash, Finder
from llamaherd.engines.flags.drafting import PARALLEL, drafting, heads, idle_settings, own_draft
from llamaherd.engines.flags.embedding import BATCH, UBATCH, short_inputs
from llamaherd.engines.flags.faults import faults
from llamaherd.engines.flags.idle import idle
from llamaherd.engines.flags.loading import loadable
from llamaherd.engines.flags.meant import Meant
from llamaherd.engines.flags.placing import TOO_MANY, attention_off, devices, idle_fit, idle_split, layer_counts, shares
from llamaherd.engines.flags.sending import overrides, overtaken
from llamaherd.engines.flags.templates import template
from llamaherd.engines.flags.values import NO_NUMBER
from llamaherd.engines.flags.visible import hidden, order

CONTEXT = ("--ctx-size",)
MOST_SLOTS = 256
"""LLAMA_MAX_SEQ (llama.cpp b11434, src/llama-cparams.h)."""
LITTLE = 4096
"""Tokens of a slot below which a context looks like one that was meant for every slot."""


def clashes(meant: Meant, around: Around | None = None) -> Iterator[Clash]:
    """Everything that does not go together in what a server is told."""
    for find in vllm.FINDERS if meant.catalogue.kind == "vllm" else FINDERS:
        yield from find(meant, around or Around())


NO_ATTENTION = Rule(
    "LH054",
    "The V cache is quantised, and flash attention is switched off.",
    why="The engine refuses to start. K alone may be quantised without it.",
    example="""
    instances:
      coder: {kv: q8_0, flash_attention: "off"}
    """,
    way_out="leave `flash_attention` out.",
)


def _attention(meant: Meant, _around: Around) -> Iterator[Clash]:
    """llama.cpp b11434, src/llama-context.cpp:3843; ik_llama.cpp 67268c8fd, src/llama.cpp:5369."""
    values, attention = meant.get("--cache-type-v"), attention_off(meant)
    if values and attention and not values.value.endswith(("f16", "f32")):
        message = f"a V cache of type `{values.value}` needs flash attention, and {attention} switches it off"
        yield Clash(NO_ATTENTION, (values, attention), message, f"leave out {attention}, or {values}")


TOO_MANY_THREADS = Rule(
    "LH060",
    "An instance has more threads than there are physical cores.",
    why="""
    SMT siblings share one core: threads on both wait for each other. On the rig [budget](../rigs/budget.md),
    sixteen threads on eight cores were eight times slower.
    """,
    example="""
    instances:
      helper: {threads: 24}
    """,
    way_out="leave `threads` out, or write at most `host.cpu.cores`.",
)


ALL_PROCESSORS = Rule(
    "LH217",
    "A server has threads on every logical processor.",
    why="`-t -1` and `-t 0` do not mean the default: they mean all of them, SMT siblings too.",
    example="""
    llama-server -m model.gguf -c 8192 -t -1
    """,
    language="sh",
    way_out="leave it out, or give the number of physical cores.",
    severity="warning",
)


def _threads(meant: Meant, around: Around) -> Iterator[Clash]:
    """Zero and less is every logical processor (llama.cpp b11434, common/arg.cpp:1520; ik 67268c8fd, common.cpp)."""
    for name in ("--threads", "--threads-batch"):
        option = meant.get(name)
        number = meant.number(name, default=1)
        if option and number <= 0 and name == "--threads":
            message = f"{option} computes on every logical processor, SMT siblings too, which slows decoding down"
            help_ = "leave it out, or give the number of physical cores"
            yield Clash(ALL_PROCESSORS, (option,), message, help_)
        if option and around.cores and number > around.cores:
            message = f"{option} are more threads than there are physical cores: {around.cores}"
            help_ = f"write {around.cores} at most: more only wait for each other, and SMT siblings are no cores"
            yield Clash(TOO_MANY_THREADS, (option,), message, help_)


SMALL_SLOTS = Rule(
    "LH214",
    "A context is shared by slots, so that each has little.",
    why="`-c` is the whole. Each of `-np` slots has its part of it, unless `--kv-unified` lets them share.",
    example="""
    llama-server -m model.gguf -c 8192 -np 4
    """,
    language="sh",
    way_out="write the context of the help line, if each request must have as much.",
    severity="note",
)


def _slots(meant: Meant, _around: Around) -> Iterator[Clash]:
    """The context is cut into slots, unless they share it (llama.cpp b11434, src/llama-context.cpp:291-308)."""
    context, slots = meant.get(*CONTEXT), meant.get(*PARALLEL)
    if slots and meant.number(*PARALLEL, default=1) > MOST_SLOTS and meant.catalogue.kind == "llama.cpp":
        message = f"{slots} are more slots than the {MOST_SLOTS} that llama.cpp serves at most"
        yield Clash(TOO_MANY, (slots,), message, f"write {MOST_SLOTS} at most")
    tokens, number = meant.number(*CONTEXT, default=0), meant.number(*PARALLEL, default=1)
    if context and tokens < 0:
        message = (
            f"{context} is taken for four thousand million tokens: below zero, a number is read from the other end"
        )
        yield Clash(NO_NUMBER, (context,), message, f"write `{context.words[0]} 0` for as many as the model has")
    if not (context and slots) or number < 2 or meant.is_on("--kv-unified"):
        return
    if 0 < tokens // number < LITTLE:
        message = f"{context} is shared by {number} slots: each request has {tokens // number} tokens"
        help_ = f"write `{context.words[0]} {tokens * number}` for {tokens} tokens each"
        yield Clash(SMALL_SLOTS, (context, slots), message, help_)


CUT_BATCH = Rule(
    "LH219",
    "More is to be computed at once than is queued.",
    why="`--ubatch-size` is cut to `--batch-size`, which is 2048 unless you set it.",
    example="""
    instances:
      coder: {ubatch: 4096}
    """,
    way_out="set both: in a rig, `batch` and `ubatch`.",
    severity="warning",
)


def _batches(meant: Meant, _around: Around) -> Iterator[Clash]:
    """No more is computed at once than is queued at once (llama.cpp b11434, src/llama-context.cpp:250)."""
    computed = meant.get("--ubatch-size")
    queued, batch = meant.number("--batch-size", default=BATCH), meant.get("--batch-size")
    number = meant.number("--ubatch-size", default=UBATCH)
    if computed and number > queued > 0:
        message = f"{computed} is cut to {queued}: no more is computed at once than `--batch-size` queues"
        options = (computed, batch) if batch else (computed,)
        besides = "" if batch else " besides"
        yield Clash(CUT_BATCH, options, message, f"write `--batch-size {number}`{besides}")


KEY_VALUE = re.compile(r"[^=,]{1,127}=(?:int:-?[0-9]+|float:[-+0-9.eE]+|bool:(?:true|false)|str:[^,]{0,127})")


BAD_METADATA = Rule(
    "LH126",
    "A replaced hyperparameter is not written as the engine wants it.",
    why="`--override-kv` takes `KEY=TYPE:VALUE`, and the type is `int`, `float`, `bool` or `str`.",
    example="""
    instances:
      coder: {extra_args: [--override-kv, "tokenizer.ggml.add_bos_token=false"]}
    """,
    way_out="write it in the form of the help line.",
)


def _metadata(meant: Meant, _around: Around) -> Iterator[Clash]:
    """KEY=TYPE:VALUE, several with commas between (llama.cpp b11434, common/common.cpp, string_parse_kv_override)."""
    for option in meant.every("--override-kv"):
        if not all(KEY_VALUE.fullmatch(part) for part in re.split(r"(?<!\\),", option.value)):
            message = f"{option} is no `KEY=TYPE:VALUE`, where the type is `int`, `float`, `bool` or `str`"
            help_ = "write one such as `tokenizer.ggml.add_bos_token=bool:false`"
            yield Clash(BAD_METADATA, (option,), message, help_)


NOT_REUSED = Rule(
    "LH222",
    "Parts of the cache are to be reused that cannot be moved.",
    why="""
    A hybrid model's state, positions of several numbers, and pictures cannot be shifted. The server says so in
    its log and reuses the common beginning alone.
    """,
    example="""
    llama-server -m model.gguf -c 8192 --mmproj mmproj.gguf --cache-reuse 256
    """,
    language="sh",
    way_out="leave it out.",
    severity="warning",
)


def _reuse(meant: Meant, around: Around) -> Iterator[Clash]:
    """The server says so in its log and goes on (llama.cpp b11434, tools/server/server-context.cpp:1312-1326)."""
    option = meant.get("--cache-reuse")
    if option is None or meant.number("--cache-reuse", default=0) <= 0:
        return
    projector = meant.get("--mmproj")
    if around.shifts is False or projector:
        because = f"beside {projector}" if projector else "for this model, whose cache cannot be moved"
        message = f"{option} does nothing {because}: only the common beginning of a prompt is used again"
        yield Clash(NOT_REUSED, (option,), message, "leave it out")


FINDERS: tuple[Finder, ...] = (
    *(_attention, idle_fit, idle_split, shares, overrides, overtaken, layer_counts, devices, _threads),
    *(loadable, heads, drafting, own_draft, idle_settings, idle, faults),
    *(_slots, _batches, short_inputs, template, _metadata, _reuse, order, hidden, addresses, encrypted, openings),
)
