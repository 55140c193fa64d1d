"""Spellings of one meaning in different engines and versions, and the origin of a flag that a version lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from llamaherd.diagnostics.findings import Rule
from llamaherd.engines.flags.definitions import Catalogue, Problem

Spelling = tuple[str, ...]
"""Arguments. A flag may have several spellings, `--gpu-layers|-ngl`; `{}` stands for any value."""

MEANINGS: tuple[tuple[Spelling, ...], ...] = (
    # Loading: PR ggml-org/llama.cpp#20834 brought --load-mode; the switches went between b10867 and b10878.
    (("--load-mode|-lm", "none"), ("--no-mmap",)),
    (("--load-mode|-lm", "mmap"), ("--mmap",)),
    (("--load-mode|-lm", "mlock"), ("--mlock", "--no-mmap"), ("--no-mmap", "--mlock")),
    (("--load-mode|-lm", "mmap+mlock"), ("--mlock",), ("--load-mode|-lm", "mlock")),
    (("--load-mode|-lm", "dio"), ("--direct-io|-dio",)),
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
"""The spellings of each meaning, the preferred one first. Some of them were never accepted by any engine."""

WAYS = sorted(((way, meaning) for meaning in MEANINGS for way in meaning), key=lambda pair: -len(pair[0]))
"""Every spelling with its meaning, the longest first: `-mtp --draft-max 2` has one meaning."""

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
    "--no-direct-io": "direct I/O is off by default",
    "-ndio": "direct I/O is off by default",
}
"""Flags to leave out if the version lacks them, with the reasons."""

FORMERLY: dict[str, str] = {"-fmoe": "ik_llama.cpp", "--fused-moe": "ik_llama.cpp"}
"""Flags that are in no catalogue because their engine dropped them before the oldest one, and that recipes have."""

GONE_SINCE: Mapping[str, str] = dict.fromkeys(("--defrag-thold", "-dt"), "b12347")
"""Flags of the newest catalogue that llama.cpp removed later, and in which build
(ggml-org/llama.cpp/releases/tag/b12347, #30565)."""

SWITCHES: Mapping[str, str] = {
    "--mmap": "mmap",
    "--no-mmap": "none",
    "--mlock": "lock",
    **dict.fromkeys(("--direct-io", "-dio"), "dio"),
    **dict.fromkeys(("--no-direct-io", "-ndio"), "no dio"),
}
"""The meaning of each switch that `--load-mode` replaced."""
_MAPPING: Mapping[str, str] = {mode: mode for mode in ("auto", "none", "mmap")} | {
    "mlock": "none",
    "mmap+mlock": "mmap",
}
"""The part of a mode that concerns mapping."""
LOAD_MODE = ("--load-mode", "-lm")


@dataclass(frozen=True)
class Translation:
    """Arguments that a version does not accept, in a spelling that it accepts."""

    length: int
    """The number of arguments that are replaced."""
    replacement: tuple[str, ...]


@dataclass(frozen=True)
class _Loading:
    """The arguments that concern loading, by their index."""

    modes: Mapping[int, str]
    """Switches, and modes."""
    given: Mapping[int, str]
    """Each correct `--load-mode`, with its value."""
    mode: str
    """The mode that all of them mean together."""

    @property
    def kept(self) -> bool:
        """True if the mode is written correctly and takes effect."""
        return bool(self.given) and self.modes[max(self.given)] == self.mode

    def way_out(self, problem: Problem, *, first: bool) -> Problem:
        """Return the problem with its help: the first switch is replaced by the mode, if the mode is not set."""
        written = f"`--load-mode {self.mode}`"
        loses = self.mode == "dio" and "lock" in self.modes[problem.index]
        if first and not self.kept:
            given = " and ".join(f"`{each}`" for each in dict.fromkeys(self.given.values()))
            way_out = f"write {written}" + (", which cannot lock besides" if loses else "")
            way_out += f", and leave {given} out" if given else ""
            return replace(problem, help=way_out, replacement=("--load-mode", self.mode))
        says = "cannot lock besides" if loses else "means both" if len(self.modes) == 2 else "means all of it"
        return replace(problem, help=f"leave it out: {written} {says}", replacement=())


def translate(catalogue: Catalogue, arguments: Sequence[str], index: int) -> Translation | None:
    """Return the replacement of the arguments at `index`; None if they are accepted or have none."""
    first = _spelling(catalogue, arguments[index]) if index < len(arguments) else ""
    for way, meaning in _by_flag().get(first, ()):
        if len(way) > 1 and all(part in SWITCHES for part in way):
            continue  # each switch is reported by itself, and `load_mode` combines their meanings
        value = _matched(catalogue, way, arguments[index : index + len(way)])
        if value is None or (way[-1].startswith("-") and _has_value(catalogue, arguments, index + len(way))):
            continue
        given = arguments[index : index + len(way)]
        known = all(catalogue.knows(one) for one, part in zip(given, way, strict=True) if part.startswith("-"))
        if known and spell_way(catalogue, way, value):
            return None
        for other in (way, *meaning):
            if replacement := spell_way(catalogue, other, value):
                return Translation(len(way), replacement)
    return None


def load_mode(catalogue: Catalogue, modes: Sequence[str]) -> str:
    """Return the mode that switches and modes mean together; of several modes, the last takes effect.

    To llama.cpp b9592 the switches were three things: of `--mmap` and `--no-mmap` the last counted, `--mlock` locked
    either way, and direct I/O took the place of mapping. No mode has direct I/O and locks; direct I/O is kept.
    """
    explicit = [index for index, each in enumerate(modes) if each not in SWITCHES]
    parts = [SWITCHES.get(each, each) for index, each in enumerate(modes) if index not in explicit[:-1]]
    if [each for each in parts if each in ("dio", "no dio")][-1:] == ["dio"]:
        return "dio"
    mapping = next((_MAPPING[each] for each in reversed(parts) if each in _MAPPING), "auto")
    wanted: tuple[str, ...] = ("mmap+mlock", "mlock")
    if not any("lock" in each for each in parts):
        wanted = (mapping, "mmap")
    elif mapping == "none" or (mapping == "auto" and catalogue.knows("--mlock")):
        wanted = ("mlock",)  # a version in which the switch is deprecated takes it for this mode
    return next((each for each in wanted if spell_way(catalogue, ("--load-mode", each), "")), wanted[-1])


def one_load_mode(catalogue: Catalogue, arguments: Sequence[str], problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the problems with one `--load-mode` for all switches and for any mode that is set as well."""
    becoming = {each.index: mode for each in problems if (mode := _mode_instead(each))}
    if not becoming:
        return tuple(problems)
    loading = _loading(catalogue, arguments, {each.index for each in problems}, becoming)
    if len(loading.modes) < 2:
        return tuple(problems)
    return tuple(
        loading.way_out(each, first=each.index == min(becoming)) if _mode_instead(each) else each for each in problems
    )


def _loading(
    catalogue: Catalogue, arguments: Sequence[str], wrong: Collection[int], becoming: Mapping[int, str]
) -> _Loading:
    """Return the arguments that concern loading, of which some are wrong and some become a mode."""
    modes: dict[int, str] = {}
    given: dict[int, str] = {}
    for index, argument in enumerate(arguments):
        name = _spelling(catalogue, argument).partition("=")[0]
        if index in wrong and name in SWITCHES:
            modes[index] = name
        elif index in becoming:
            modes[index] = becoming[index]
        elif name in LOAD_MODE and _has_value(catalogue, arguments, index + 1):
            modes[index] = arguments[index + 1]
            given[index] = f"{argument} {arguments[index + 1]}"
    return _Loading(modes, given, load_mode(catalogue, tuple(modes.values())))


def _mode_instead(problem: Problem) -> str:
    """Return the mode of the `--load-mode` in its help; empty without one."""
    match problem.replacement:
        case (flag, mode) if flag in LOAD_MODE:
            return mode
    return ""


@cache
def _by_flag() -> Mapping[str, Sequence[tuple[Spelling, tuple[Spelling, ...]]]]:
    """Return the spellings by the flag that they begin with, in their order: there are hundreds of arguments."""
    found: dict[str, list[tuple[Spelling, tuple[Spelling, ...]]]] = {}
    for way, meaning in WAYS:
        for spelling in way[0].split("|"):
            found.setdefault(spelling, []).append((way, meaning))
    return found


def _spelling(catalogue: Catalogue, argument: str) -> str:
    """Return a flag with the dashes of its catalogue."""
    return argument.replace("_", "-") if catalogue.dashes and argument.startswith("--") else argument


def _has_value(catalogue: Catalogue, arguments: Sequence[str], index: int) -> bool:
    """Return whether the flag before `index` takes a value and has one."""
    flag = catalogue.find(arguments[index - 1])
    return bool(flag and flag.values and index < len(arguments) and not arguments[index].startswith("-"))


def _matched(catalogue: Catalogue, way: Spelling, arguments: Sequence[str]) -> str | None:
    """Return the value of `{}` if the arguments have this spelling (empty if there is no `{}`), else None."""
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


def spell_way(catalogue: Catalogue, way: Spelling, value: str) -> tuple[str, ...]:
    """Return the arguments in a catalogue's own spelling; empty if the version does not accept them."""
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


UNKNOWN_FLAG = Rule(
    "LH100",
    "No known engine has such a flag.",
    why="""
    It is misspelt, or was made up: the engine does not start. `--mtp-draft` is an example. It is a warning where not
    all flags of the version are known. It is a note where the version is newer than the catalogues: the built engine
    decides, before a server is switched.
    """,
    example="""
    instances:
      coder: {extra_args: [--mtp-draft, "2"]}
    """,
    fix="write what the help line gives: a key of the inventory, or the right spelling.",
    sometimes=("warning", "note"),
)


REMOVED_FLAG = Rule(
    "LH101",
    "This version of the engine no longer has a flag, or does not have it yet.",
    why="""
    llama.cpp renamed and removed several in 2026: `--no-mmap` became `--load-mode none`, `--draft-max` became
    `--spec-draft-n-max`. It is a warning where not all flags of the version are known.
    """,
    example="""
    instances:
      coder: {extra_args: --draft-min 2}
    """,
    fix="write the spelling of this version, which the help line gives.",
    sometimes=("warning",),
)


FOREIGN_FLAG = Rule(
    "LH102",
    "A flag is another engine's.",
    why="llama.cpp and ik_llama.cpp have one origin and many flags that only one of them has.",
    example="""
    instances:
      coder: {extra_args: [-rtr]}
    """,
    fix="write this engine's name of it. Leave it out where the engine does so by itself. Or use the other engine.",
    sometimes=("warning",),
)


def flag_origin(catalogue: Catalogue, other: Sequence[Catalogue], spelling: str) -> tuple[Rule, str]:
    """Return the rule about an unknown flag, and its origin as a part of a sentence."""
    here, there = (
        [one for one in other if (one.kind == catalogue.kind) is same and one.knows(spelling)] for same in (True, False)
    )
    if here:
        return REMOVED_FLAG, f"{here[-1]} has it, {catalogue} does not"
    if there:
        kinds = " and ".join(sorted({one.kind for one in there}))
        return FOREIGN_FLAG, f"it is a flag of {kinds}"
    if former := FORMERLY.get(spelling):
        return REMOVED_FLAG if former == catalogue.kind else FOREIGN_FLAG, f"it was a flag of {former}"
    return UNKNOWN_FLAG, "no known engine has it"
