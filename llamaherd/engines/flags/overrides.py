"""`--override-tensor PATTERN=BUFFER,…`: tensors that are kept elsewhere, read and matched as the engines do it."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import cached_property

MOST_REPEATS = 3
"""Unbounded repeats in one pattern that are tried here: more of them, or nested ones, may take for ever."""

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
        """Why the engine ends with this pattern while it loads the model; None if it takes it."""
        try:
            _compile(self.pattern)
        except ValueError as error:
            return str(error)
        except (re.error, OverflowError, RecursionError) as error:
            return error.msg if isinstance(error, re.error) else "it is too large"
        return None

    @cached_property
    def regex(self) -> re.Pattern[str] | None:
        """What finds the same names here; None for a pattern with a fault, or that may take for ever to try."""
        if self.fault is not None or _is_costly(self.pattern):
            return None
        return _compile(self.pattern)


def parse_overrides(text: str) -> tuple[Override, ...]:
    """The overrides of one value of `-ot`, in their order: for each tensor, the first that matches counts.

    It is cut at commas, and each part at its first `=`; blanks are kept. Raises ValueError for a part without `=`.
    (llama.cpp b11434, common/arg.cpp:252-284; ik_llama.cpp 8337e4cd3, common/common.cpp:849-876.)
    """
    found = []
    for part in text.split(","):
        pattern, equals, buffer = part.partition("=")
        if not equals:
            raise ValueError(f"`{part}` has no `=` with a buffer behind it")
        found.append(Override(pattern, buffer))
    return tuple(found)


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile the pattern as Python's `re`. Raises ValueError, re.error, OverflowError, RecursionError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `[--x]`: a later Python may read it as a difference of sets
        return re.compile(_in_python(pattern), re.ASCII)


def _in_python(pattern: str) -> str:
    """The pattern for Python's `re`. Raises ValueError for what ECMAScript does not have."""
    parts: list[str] = []
    opened: list[tuple[int, bool]] = []
    """Where groups begin, and whether they only look ahead."""
    atom: int | None = None
    """Where in `parts` begins what a repeat would be of."""
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
    """An escape, a class or a character as Python has it."""
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
    """`[…]`, in which POSIX has names such as `[:digit:]` and Python has not."""
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
    """Whether there are many unbounded repeats, or one of a group or of another repeat."""
    bare = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "x", pattern, flags=re.DOTALL)
    unbounded = re.findall(r"[*+]|\{\d+,\d*\}", bare)
    return len(unbounded) > MOST_REPEATS or bool(re.search(r"[)*+}?][*+{]", bare))
