"""`--override-tensor PATTERN=BUFFER,…`: parse the patterns as the engine does, and check them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice

from llamaherd.diagnostics.findings import Rule, Severity
from llamaherd.engines.flags.effective import Conflict, EffectiveOptions, Option, ServerContext
from llamaherd.engines.flags.placement import visible_gpus
from llamaherd.text.numbers import whole_number

MOST_REPEATS = 3
"""The most unbounded repeats of a pattern that is tried here: more of them, or nested ones, may take for ever."""

_TOKEN = re.compile(
    r"\\c[A-Za-z]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\[0-9]+|\\."  # escapes
    r"|\[\^?(?:\\.|\[:\w+:\]|[^\]\\])*\]"  # classes: `]` ends one, wherever it stands
    r"|\(\?[:=!]|\(|\)|(?P<repeat>(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??)|[^\[{\\]",
    re.DOTALL,
)
_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "d": "0-9",
    "alnum": "a-zA-Z0-9",
    "w": r"\w",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "s": r"\s",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
}
_KEPT_ESCAPES = frozenset("bBdDsSwWfnrtv")


@dataclass(frozen=True)
class Override:
    """Tensors whose names a pattern matches anywhere, and the buffer that they go to: `CPU`, `CUDA0`."""

    pattern: str
    """A regular expression as C++ has it: std::regex, ECMAScript (llama.cpp b11434, llama-model-loader.cpp:1238)."""
    buffer: str

    @cached_property
    def fault(self) -> str | None:
        """The reason why the engine ends with this pattern while it loads the model; None if it accepts it."""
        try:
            _compile(self.pattern)
        except ValueError as error:
            return str(error)
        except (re.error, OverflowError, RecursionError) as error:
            return error.msg if isinstance(error, re.error) else "it is too large"
        return None

    @cached_property
    def regex(self) -> re.Pattern[str] | None:
        """The equal pattern of Python; None for a pattern with a fault, or one that may take for ever."""
        if self.fault is not None or _is_costly(self.pattern):
            return None
        return _compile(self.pattern)


def parse_overrides(text: str) -> tuple[Override, ...]:
    """Return the overrides of one value of `-ot`, in their order: for each tensor, the first that matches counts.

    The value is split at commas, and each part at its first `=`; blanks are kept (llama.cpp b11434,
    common/arg.cpp:252-284; ik_llama.cpp 8337e4cd3, common/common.cpp:849-876). Raise ValueError for a part without `=`.
    """
    found = []
    for part in text.split(","):
        pattern, equals, buffer = part.partition("=")
        if not equals:
            raise ValueError(f"`{part}` has no `=` with a buffer behind it")
        found.append(Override(pattern, buffer))
    return tuple(found)


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile the pattern as Python's `re`. Raise ValueError, re.error, OverflowError or RecursionError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `[--x]`: a later Python may read it as a difference of sets
        return re.compile(_in_python(pattern), re.ASCII)


def _in_python(pattern: str) -> str:
    """Return the pattern for Python's `re`. Raise ValueError for a pattern that ECMAScript does not have."""
    parts: list[str] = []
    opened: list[tuple[int, bool]] = []
    """The starts of open groups, and whether they are lookaheads."""
    atom: int | None = None
    """The start in `parts` of the item that a repeat would repeat."""
    here = 0
    while here < len(pattern):
        found = _TOKEN.match(pattern, here)
        if found is None:
            raise ValueError(_unclosed(pattern[here]))
        token, here = found[0], found.end()
        if found["repeat"]:
            if atom is None:
                raise ValueError(f"`{token}` has nothing before it that could be repeated")
            parts[atom:] = [f"(?:{''.join(parts[atom:])}{token})"]
        elif token.startswith("("):
            if token == "(" and pattern.startswith("?", here):
                raise ValueError(f"C++ has no `({pattern[here : here + 2]}`")
            opened.append((len(parts), token in ("(?=", "(?!")))
            parts.append(token)
            atom = None
        elif token == ")":
            if not opened:
                raise ValueError("a `)` closes nothing")
            start, ahead = opened.pop()
            atom = None if ahead else start
            parts.append(token)
        else:
            atom = None if token in ("|", "^", "$", r"\b", r"\B") else len(parts)
            parts.append(_atom(token))
    if opened:
        raise ValueError("a `(` is never closed")
    return "".join(parts)


def _atom(token: str) -> str:
    """Return an escape, a class or a character as Python writes it."""
    if token.startswith("["):
        return _class(token)
    if not token.startswith("\\"):
        return token if token in "|^$." else re.escape(token)
    if token[1] in "0123456789" and token != r"\0":
        return rf"(?:{token})"
    if token.startswith(r"\c"):
        return re.escape(chr(ord(token[2]) % 32))
    if token[1] in "xu" and len(token) == 2:
        raise ValueError(f"`{token}` must be followed by hexadecimal digits")
    return token if token[1] in _KEPT_ESCAPES or len(token) > 2 else re.escape(token[1])


def _class(token: str) -> str:
    """Return `[…]` for Python, which lacks names of POSIX such as `[:digit:]`."""
    inside = token[1:-1]
    if inside in ("", "^"):
        return r"[\s\S]" if inside else r"(?!)"
    negated, inside = ("^", inside[1:]) if inside.startswith("^") else ("", inside)
    parts = []
    for piece in re.findall(r"\[:\w+:\]|\\.|.", inside, re.DOTALL):
        if re.fullmatch(r"\\[1-9]", piece) or (piece.startswith("[:") and piece[2:-2] not in _CLASSES):
            raise ValueError(f"`{piece}` is no class of characters")
        if piece.startswith("[:"):
            parts.append(_CLASSES[piece[2:-2]])
        elif piece.startswith("\\"):
            parts.append(_atom(piece))
        else:
            parts.append(f"\\{piece}" if piece in "[&~|" else piece)
    return f"[{negated}{''.join(parts)}]"


def _unclosed(char: str) -> str:
    return {
        "[": "a `[` is never closed",
        "{": r"a `{` must be followed by a number of repeats and `}`",
        "\\": "it ends with a backslash",
    }[char]


def _is_costly(pattern: str) -> bool:
    """Return whether there are many unbounded repeats, or one of a group or of another repeat."""
    bare = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "x", pattern, flags=re.DOTALL)
    unbounded = re.findall(r"[*+]|\{\d+,\d*\}", bare)
    return len(unbounded) > MOST_REPEATS or bool(re.search(r"[)*+}?][*+{]", bare))


BUFFERS = re.compile(
    r"CPU|(?:CUDA|ROCm|Vulkan|SYCL|MUSA|CANN|MTL|OPENVINO|HTP)(?:0|[1-9][0-9]{0,3})|RPC.+|Metal|BLAS|OpenCL|GPUOpenCL|WebGPU.*|zDNN|ZenDNN|ET"
)
"""The names of the buffers that `-ot` accepts, one for each device (llama.cpp b11434, common/arg.cpp:255-262)."""
_MANY = 128
"""The layers of an unknown model."""
_MOST = 256
"""The most overrides that are compared with earlier ones: each is tried on every tensor."""
_PARTS = (
    *("attn_q", "attn_k", "attn_v", "attn_output", "attn_norm", "ffn_norm", "ffn_gate_inp"),
    *("ffn_up", "ffn_down", "ffn_gate", "ffn_up_shexp", "ffn_down_shexp", "ffn_gate_shexp"),
    *("ffn_up_exps", "ffn_down_exps", "ffn_gate_exps", "ffn_gate_up_exps"),
)


BAD_OVERRIDE = Rule(
    "LH218",
    "The engine refuses an override of tensors, or it matches nothing.",
    why="""
    The pattern is a regular expression of C++ (std::regex), searched for in the tensors' names. The buffer is `CPU`, or
    `CUDA0` and so on by the GPUs that the server uses.
    """,
    example="""
    instances:
      coder: {extra_args: ["-ot", "*exps*=CPU"]}
    """,
    fix="write the pattern or buffer of the help line. For experts, write the key `experts_on_cpu`.",
    sometimes=("warning",),
)


def find_bad_overrides(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report overrides whose pattern or buffer the engine refuses, or whose pattern matches no tensor."""
    for option in effective.every("--override-tensor"):
        try:
            overrides = parse_overrides(option.value)
        except ValueError as error:
            message, help_ = f"{option} is not taken: {error}", "write `PATTERN=CPU`, several with commas between"
            yield Conflict(BAD_OVERRIDE, (option,), message, help_)
            continue
        for override in overrides:
            if fault := _fault(override, effective, around):
                yield Conflict(BAD_OVERRIDE, (option,), *fault)


def _fault(override: Override, effective: EffectiveOptions, around: ServerContext) -> tuple[str, str, Severity] | None:
    """Return message, help and severity of the fault of one override; None without a fault."""
    if override.fault:
        message = f"`{override.pattern}` is no regular expression of C++: {override.fault}"
        return message, r"write one that finds the tensors' names, such as `blk\.1[0-9]\.ffn_.*_exps`", "error"
    card = re.fullmatch(r"CUDA([0-9]{1,4})", override.buffer)
    cards = visible_gpus(effective, around)
    if not BUFFERS.fullmatch(override.buffer) or (card and cards is not None and int(card[1]) >= cards):
        there = ["`CPU`", *(f"`CUDA{number}`" for number in range(cards or 0))]
        message = f"`{override.buffer}` is no buffer that the server has"
        return message, f"write {' or '.join(there)}" if cards is not None else "write `CPU`, `CUDA0` …", "error"
    if override.buffer.startswith("RPC") and not effective.get("--rpc"):
        message = f"`{override.buffer}` is no buffer that the server has: no `--rpc` names its host"
        return message, "write `--rpc HOST:PORT` before it", "error"
    if override.regex is None:
        return None
    found = [name for name in around.tensors if override.regex.search(name)]
    if around.experts_moved and (any("_exps" in name for name in found) or "exps" in override.pattern):
        message = f"`{override.pattern}` is about experts, of which `experts_on_cpu` decides before it"
        return message, "leave out one of the two", "error"
    if around.tensors and not found:
        message = f"`{override.pattern}` finds none of the model's {len(around.tensors)} tensors"
        return message, f"write one that finds names such as `{around.tensors[-1]}`", "warning"
    return None


OVERTAKEN = Rule(
    "LH260",
    "An earlier override sends all tensors of this one elsewhere.",
    why="Of patterns that match a tensor, the first counts: a pattern for a few tensors must stand before one for all.",
    example="""
    llama-server -m model.gguf -ot "exps=CPU" -ot "blk.[0-9].ffn_.*_exps=CUDA0"
    """,
    language="sh",
    fix="put the narrower pattern first.",
    severity="warning",
)


def find_unreached_overrides(effective: EffectiveOptions, around: ServerContext) -> Iterator[Conflict]:
    """Report overrides that have no effect because of an earlier one.

    Of several patterns that match a tensor, the first counts (llama.cpp b11434, src/llama-model-loader.cpp:1237-1262).
    """
    if effective.catalogue.kind != "llama.cpp":
        return
    names = around.tensors or _usual()
    left = set(names)
    before: tuple[Option, Override] | None = None
    sent = ((option, override) for option in effective.said for override in _sent(effective, option))
    for option, override in islice(sent, _MOST):
        found = {name for name in names if override.regex and override.regex.search(name)}
        if found and not found & left and before and not _is_reported_already(effective, option):
            one, other = f"{option}", f"{before[0]}"
            if option == before[0]:
                one, other = (f"`{each.pattern}={each.buffer}`" for each in (override, before[1]))
            message = f"{one} finds nothing: all its tensors go where {other} sends them, which comes first"
            help_ = f"put {one} before {other}: of patterns that match, the first counts"
            yield Conflict(OVERTAKEN, tuple(dict.fromkeys((option, before[0]))), message, help_)
        elif found:
            before, left = (option, override), left - found


def _is_reported_already(effective: EffectiveOptions, option: Option) -> bool:
    """Return whether the rule about the two options for experts already reports the option."""
    return option.flag == effective.catalogue.find("--n-cpu-moe") and effective.is_on("--cpu-moe")


def _sent(effective: EffectiveOptions, option: Option) -> tuple[Override, ...]:
    """Return the overrides that an option means; none for an option that moves no tensors."""
    if option.flag == effective.catalogue.find("--cpu-moe") and option.on:
        return (Override("_exps", "CPU"),)
    if option.flag == effective.catalogue.find("--n-cpu-moe") and (count := whole_number(option.value)) is not None:
        numbers = "|".join(str(number) for number in range(min(count, _MANY)))
        return (Override(rf"blk\.({numbers})\.ffn_.*_exps", "CPU"),) if numbers else ()
    if option.flag != effective.catalogue.find("--override-tensor"):
        return ()
    try:
        return parse_overrides(option.value)
    except ValueError:
        return ()


@cache
def _usual() -> tuple[str, ...]:
    """Return the names that tensors usually have."""
    of_layers = (f"blk.{layer}.{part}.weight" for layer in range(_MANY) for part in _PARTS)
    return ("token_embd.weight", "output.weight", "output_norm.weight", *of_layers)
