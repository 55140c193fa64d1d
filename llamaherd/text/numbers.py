"""Numbers and JSON from outside: files, command lines, hosts and servers. Each has a bound, and none is inf or nan."""

from __future__ import annotations

import json
import math
import re
from typing import Any

MOST = 2**63 - 1
"""The largest number that kernels and engines count to."""

_WHOLE = re.compile(r"0*([0-9]{1,19})")
_SIGNED = re.compile(r"\s*([-+]?)([0-9]+)\s*")
_REAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_MODE = re.compile(r"[0-7]{1,6}")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_MOST_DIGITS = 40
"""Of a number in JSON: 2^128 has 39."""


def whole(text: str, most: int = MOST) -> int | None:
    """Return the whole number that ASCII digits write; None if there is another character, or if it exceeds `most`."""
    found = _WHOLE.fullmatch(text)
    number = int(found[1]) if found else most + 1
    return number if number <= most else None


def parse_whole(text: str, most: int = MOST) -> int:
    """Return the same number. Raises ValueError instead of returning None."""
    number = whole(text, most)
    if number is None:
        raise ValueError(f"{text[:_MOST_DIGITS]!r} is not a whole number up to {most:,}")
    return number


def saturated(text: str, most: int = MOST) -> int:
    """Return the whole number that ASCII digits write, with or without a sign; `most` or `-most` if it is beyond that.

    Raises ValueError.
    """
    found = _SIGNED.fullmatch(text)
    if not found:
        raise ValueError(f"{text[:_MOST_DIGITS]!r} is not a whole number")
    number = whole(found[2], most)
    return (most if number is None else number) * (-1 if found[1] == "-" else 1)


def parse_real(text: str) -> float:
    """Return the finite number that ASCII digits write, such as `1.5e3`. Raises ValueError."""
    number = float(text) if _REAL.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text[:_MOST_DIGITS]!r} is not a finite number")
    return number


def parse_mode(text: str) -> int:
    """Return the mode of a file that octal digits write. Raises ValueError."""
    if not _MODE.fullmatch(text):
        raise ValueError(f"{text[:_MOST_DIGITS]!r} is not the mode of a file")
    return int(text, 8)


def parse_json(data: str | bytes) -> Any:
    """Return the value of a JSON document. Half a surrogate pair in a string becomes `?`.

    Raises ValueError, also for UTF-8 that is broken, nesting that is too deep, numbers that are too large, and NaN.
    """
    text = data.decode() if isinstance(data, bytes) else data
    try:
        value = json.loads(text, parse_int=_json_whole, parse_float=_json_real, parse_constant=_refuse)
        if _HALF.search(text):
            value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _json_whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("a number in it is too large")
    return int(text)


def _json_real(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> float:
    raise ValueError(f"a number in it is {text[:_MOST_DIGITS]}")
