"""Ways to say the same thing to different engines and versions, and which of them a given one understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from llamaherd.engines.flags.model import Catalogue, Problem

Way = tuple[str, ...]
"""Arguments. A flag may have several spellings, `--gpu-layers|-ngl`; `{}` stands for any value."""

MEANINGS: tuple[tuple[Way, ...], ...] = (
    # Loading: PR ggml-org/llama.cpp#20834 brought --load-mode; the switches went between b10867 and b10878.
    (("--load-mode|-lm", "none"), ("--no-mmap",)),
    (("--load-mode|-lm", "mmap"), ("--mmap",)),
    (("--load-mode|-lm", "mlock"), ("--mlock", "--no-mmap"), ("--no-mmap", "--mlock")),
    (("--load-mode|-lm", "mmap+mlock"), ("--mlock",), ("--load-mode|-lm", "mlock")),
    (("--load-mode|-lm", "dio"), ("--direct-io|-dio",)),
    (("--load-mode|-lm", "none"), ("--no-direct-io|-ndio",)),
    # Multi-token prediction. ik_llama.cpp: #1789 brought --spec-stage, #1908 --spec-type with settings.
    (
        ("--spec-type", "draft-mtp", "--spec-draft-n-max", "{}"),
        ("--spec-type", "mtp:n_max={},p_min=0.0"),
        ("--spec-stage", "mtp:n_max={},p_min=0.0"),
        ("--spec-stage", "mtp:n_max={},draft-p-min=0.0"),
        ("-mtp|--multi-token-prediction", "--draft-max|--draft|--draft-n", "{}"),
        ("--mtp-draft", "{}"),
    ),
    (
        ("--spec-type", "draft-mtp"),
        ("--spec-type", "mtp:n_max=1,p_min=0.0"),
        ("--spec-stage", "mtp:n_max=1,p_min=0.0"),
        ("-mtp|--multi-token-prediction",),
        ("--spec-type", "mtp"),
        ("--mtp",),
    ),
    # Drafting
    (("--spec-draft-n-max", "{}"), ("--draft-max|--draft|--draft-n", "{}")),
    (("--spec-draft-n-min", "{}"), ("--draft-min|--draft-n-min", "{}")),
    (("--spec-draft-p-min|--draft-p-min", "{}"),),
    (("--spec-draft-model|-md|--model-draft", "{}"),),
    (("--spec-draft-ngl|-ngld|--gpu-layers-draft|--n-gpu-layers-draft", "{}"),),
    (("--recurrent-ckpt-mode", "{}"), ("--spec-ckpt-mode", "{}")),
    # Thinking
    (("--reasoning", "off"), ("--chat-template-kwargs", '{"enable_thinking": false}')),
    (("--reasoning", "on"), ("--chat-template-kwargs", '{"enable_thinking": true}')),
    # Where the engines differ
    (
        ("--ctx-size|-c", "{}"),
        ("--max-model-len", "{}"),
        ("--context-size|--context-length|--context|--ctx|--ctx-len|--n-ctx|--num-ctx|--max-context", "{}"),
    ),
    (("--cache-type-k|-ctk", "{}", "--cache-type-v|-ctv", "{}"), ("--cache-type|--kv-cache-type|--kv-type", "{}")),
    (("--n-predict|-n|--predict", "{}"), ("--max-tokens|--num-predict|--max-new-tokens", "{}")),
    (("--gpu-layers|-ngl|--n-gpu-layers", "{}"), ("--num-gpu-layers|--num-gpu|--gpu-layer|--ngl", "{}")),
    (("--threads|-t", "{}"), ("--n-threads|--num-threads|--num-thread|--cpu-threads", "{}")),
    (("--parallel|-np", "{}"), ("--max-num-seqs", "{}")),
    (("--alias|-a", "{}"), ("--served-model-name", "{}")),
    (("--gpu-layers|-ngl|--n-gpu-layers", "all"), ("--gpu-layers|-ngl|--n-gpu-layers", "999")),
    (("--split-mode|-sm", "tensor"), ("--split-mode|-sm", "graph"), ("--split-mode|-sm", "attn")),
    (("--fit", "on"), ("--fit",)),
    (("--fit-target|-fitt", "{}"), ("--fit-margin", "{}")),
    (("--flash-attn|-fa", "off"), ("--no-flash-attn|-no-fa",)),
    (("--context-shift",), ("--context-shift", "on")),
    (("--ui|--webui",), ("--webui", "auto")),
    (("--no-ui|--no-webui",), ("--webui", "none")),
    (("--verbosity|-lv", "{}"), ("--log-verbosity", "{}")),
    (("--log-file", "{}"), ("--log-filename", "{}")),
    (("--ctx-checkpoints|-ctxcp|-ctx-ckpt", "{}"),),
    (("--checkpoint-min-step|-cms", "{}"), ("--checkpoint-every-n-tokens|-cpent", "{}")),
    (("--temp|--temperature", "{}"),),
    (("--hf-repo|-hf|-hfr", "{}"),),
    (("--rerank|--reranking",),),
)
"""Each meaning's ways, the one to prefer first. What no engine ever understood may be among them."""

WAYS = sorted(((way, meaning) for meaning in MEANINGS for way in meaning), key=lambda pair: -len(pair[0]))
"""Every way with its meaning, the longest first: `-mtp --draft-max 2` is one thing to say."""

NEEDLESS: dict[str, str] = {
    "-fmoe": "ik_llama.cpp fuses the experts by default (`-no-fmoe` turns it off), and llama.cpp has no such switch",
    "--fused-moe": "ik_llama.cpp fuses the experts by default, and llama.cpp has no such switch",
    "-rtr": "repacking at load is ik_llama.cpp's; llama.cpp repacks by itself (`--no-repack` turns it off)",
    "--run-time-repack": "repacking at load is ik_llama.cpp's; llama.cpp repacks by itself",
    "-ger": "grouped expert routing is ik_llama.cpp's alone",
    "-mla": "llama.cpp chooses how it computes MLA by itself",
    "-amb": "the limit of the attention buffer is ik_llama.cpp's; in llama.cpp a smaller `--ubatch-size` saves memory",
    "--cache-reuse": "only llama.cpp can reuse shifted parts of the cache; the common beginning is reused anyway",
    "--op-offload": "there is nothing to switch on: llama.cpp does so by default, ik_llama.cpp always",
    "--license": "it printed the licence",
}
"""Flags that are best left out where they are not known, and why."""

FORMERLY: dict[str, str] = {"-fmoe": "ik_llama.cpp", "--fused-moe": "ik_llama.cpp"}
"""Flags that are in no catalogue because their engine dropped them before the oldest one, and that recipes have."""


@dataclass(frozen=True)
class Translation:
    """Arguments that a catalogue does not understand, said so that it does."""

    length: int
    """How many arguments are replaced."""
    replacement: tuple[str, ...]


def translate(catalogue: Catalogue, arguments: Sequence[str], index: int) -> Translation | None:
    """What to say instead of the arguments at `index`; None if they are understood or there is no other way."""
    first = _spelling(catalogue, arguments[index]) if index < len(arguments) else ""
    for way, meaning in _by_flag().get(first, ()):
        value = _matched(catalogue, way, arguments[index : index + len(way)])
        if value is None or (way[-1].startswith("-") and _has_value(catalogue, arguments, index + len(way))):
            continue
        given = arguments[index : index + len(way)]
        known = all(catalogue.knows(one) for one, part in zip(given, way, strict=True) if part.startswith("-"))
        if known and said(catalogue, way, value):
            return None
        for other in (way, *meaning):
            if replacement := said(catalogue, other, value):
                return Translation(len(way), replacement)
    return None


def one_load_mode(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """The same, where several switches have become one `--load-mode` each, of which the last alone would count."""
    modes = [each for each in problems if each.replacement and each.replacement[0] in ("--load-mode", "-lm")]
    if len(modes) < 2:
        return tuple(problems)
    said = {part for each in modes if each.replacement for part in each.replacement[1].split("+")}
    mode = "mlock" if {"mlock", "none"} <= said else modes[-1].replacement[1] if modes[-1].replacement else "none"
    flag, first = "--load-mode", modes[0]
    merged = {first: replace(first, help=f"write `{flag} {mode}`", replacement=(flag, mode))}
    for other in modes[1:]:
        merged[other] = replace(other, help=f"leave it out: `{flag} {mode}` says both", replacement=())
    return tuple(merged.get(each, each) for each in problems)


@cache
def _by_flag() -> Mapping[str, Sequence[tuple[Way, tuple[Way, ...]]]]:
    """The ways by each spelling of the flag that they begin with, in their order: there are hundreds of arguments."""
    found: dict[str, list[tuple[Way, tuple[Way, ...]]]] = {}
    for way, meaning in WAYS:
        for spelling in way[0].split("|"):
            found.setdefault(spelling, []).append((way, meaning))
    return found


def _spelling(catalogue: Catalogue, argument: str) -> str:
    """A flag with the dashes that its catalogue writes."""
    return argument.replace("_", "-") if catalogue.dashes and argument.startswith("--") else argument


def _has_value(catalogue: Catalogue, arguments: Sequence[str], index: int) -> bool:
    """Whether the flag before `index` takes a value here and is given one."""
    flag = catalogue.find(arguments[index - 1])
    return bool(flag and flag.values and index < len(arguments) and not arguments[index].startswith("-"))


def _matched(catalogue: Catalogue, way: Way, arguments: Sequence[str]) -> str | None:
    """The value that stands for `{}` if the arguments are said that way (empty where there is none)."""
    if len(arguments) < len(way):
        return None
    value = ""
    for part, argument in zip(way, arguments, strict=True):
        if part.startswith("-"):
            if _spelling(catalogue, argument) not in part.split("|"):
                return None
        elif "{}" in part:
            before, after = part.split("{}")
            if not (argument.startswith(before) and argument.endswith(after)) or argument.startswith("--"):
                return None
            value = argument[len(before) : len(argument) - len(after)]
        elif part != argument:
            return None
    return value


def said(catalogue: Catalogue, way: Way, value: str) -> tuple[str, ...]:
    """The way in a catalogue's own spelling; empty if it does not understand it."""
    parts: list[str] = []
    wanted = 0
    flag = None
    for part in way:
        if part.startswith("-"):
            spelling = catalogue.first(*part.split("|"))
            if wanted or spelling is None:
                return ()
            flag = catalogue.find(spelling)
            wanted = len(flag.values) if flag else 0
            parts.append(spelling)
        else:
            filled = part.replace("{}", value)
            if not wanted or flag is None or flag.values[-wanted].wrong(filled) not in (None, "rest"):
                return ()
            wanted -= 1
            parts.append(filled)
    return () if wanted else tuple(parts)
