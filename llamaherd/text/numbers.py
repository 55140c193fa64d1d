"""Numbers and quantities as text: parse them within bounds, and show sizes, durations and rates."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from typing import Any

MOST = 2**63 - 1
"""The largest number that kernels and engines count to."""

_WHOLE = re.compile(r"0*([0-9]{1,19})")
_SIGNED = re.compile(r"\s*([-+]?)([0-9]+)\s*")
_REAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_MODE = re.compile(r"[0-7]{1,6}")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_MOST_DIGITS = 40
"""The most digits of a number in JSON: 2^128 has 39."""


def whole_number(text: str, most: int = MOST) -> int | None:
    """Return the whole number that ASCII digits write; None if there is another character, or if it exceeds `most`."""
    found = _WHOLE.fullmatch(text)
    number = int(found[1]) if found else most + 1
    return number if number <= most else None


def parse_whole(text: str, most: int = MOST) -> int:
    """Return the same number. Raise ValueError instead of returning None."""
    number = whole_number(text, most)
    if number is None:
        raise ValueError(f"{text[:_MOST_DIGITS]!r} is not a whole number up to {most:,}")
    return number


def clamped_number(text: str, most: int = MOST) -> int:
    """Return the whole number that ASCII digits write, with or without a sign; `most` or `-most` if it is beyond that.

    Raise ValueError.
    """
    found = _SIGNED.fullmatch(text)
    if not found:
        raise ValueError(f"{text[:_MOST_DIGITS]!r} is not a whole number")
    number = whole_number(found[2], most)
    return (most if number is None else number) * (-1 if found[1] == "-" else 1)


def parse_real(text: str) -> float:
    """Return the finite number that ASCII digits write, such as `1.5e3`. Raise ValueError."""
    number = float(text) if _REAL.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text[:_MOST_DIGITS]!r} is not a finite number")
    return number


def parse_mode(text: str) -> int:
    """Return the mode of a file that octal digits write. Raise ValueError."""
    if not _MODE.fullmatch(text):
        raise ValueError(f"{text[:_MOST_DIGITS]!r} is not the mode of a file")
    return int(text, 8)


def parse_json(data: str | bytes) -> Any:
    """Return the value of a JSON document. Half a surrogate pair in a string becomes `?`.

    Raise ValueError, also for UTF-8 that is broken, nesting that is too deep, numbers that are too large, and NaN.
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


_FACTOR = {
    "": 1,
    "k": 1000,
    "m": 1000**2,
    "g": 1000**3,
    "t": 1000**4,
    "ki": 1024,
    "mi": 1024**2,
    "gi": 1024**3,
    "ti": 1024**4,
}


_LEAST_MIB = 4096
"""A number without a unit is MiB from here on: there are no such GB."""
_LEAST_BYTES = 10**6
"""A number without a unit is bytes if it has as many digits as sizes in bytes have."""


def parse_size(text: object) -> int:
    """Return the bytes of `16GB`, `512MiB`, `24G` (GB is 10^9, GiB is 2^30). Raise ValueError."""
    written = str(text) if isinstance(text, str | int) else ""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]i?)?(b?)\s*", written, re.IGNORECASE | re.ASCII)
    if not match:
        raise ValueError(f"`{text}` is no size; write it like 16GB or 512MiB")
    size = round(float(match[1]) * _FACTOR[(match[2] or "").lower()])
    if not match[2] and not match[3] and 0 < size < _LEAST_BYTES:
        # A value such as `ram: 192` never means bytes.
        meant = f"`{text}GB` meant, or `{text}MiB`" if size < _LEAST_MIB else f"`{text}MiB` meant"
        raise ValueError(f"`{text}` has no unit; is {meant}?")
    return size


_LEAST_RATE = 10_000
"""Bytes per second, below which a bare number is one of something else."""


def parse_data_rate(text: object) -> int:
    """Return the bytes per second of `8MB/s`, `500k`, `64Mbit/s`, `64Mbps`. Raise ValueError."""
    written = str(text) if isinstance(text, str | int) and not isinstance(text, bool) else ""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([kKmMgG]i?)?(B/s|B|/s|bit/s|bit|bps)?\s*", written, re.ASCII)
    if not match:
        raise ValueError(f"`{text}` is no speed; write it like 8MB/s, or 64Mbit/s where bits are meant")
    if match[2] is None and match[3] is None and float(match[1]) < _LEAST_RATE:
        raise ValueError(f"`{written.strip()}` has no unit; is `{written.strip()}MB/s` meant?")
    bits = (match[3] or "").startswith("b")
    return round(float(match[1]) * _FACTOR[(match[2] or "").lower()] / (8 if bits else 1))


def parse_hours(text: object) -> str:
    """Return a part of the day, `7:00-23:00`, as `07:00-23:00`; it may go past midnight. Raise ValueError."""
    match = re.fullmatch(r"\s*(\d{1,2}):([0-5]\d)\s*-\s*(\d{1,2}):([0-5]\d)\s*", str(text), re.ASCII)
    begin, end = (int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])) if match else (1440, 0)
    if begin >= 1440 or end > 1440 or begin == end:
        raise ValueError(f"`{text}` is no part of a day; write it like 07:00-23:00")
    return "-".join(f"{minutes // 60 % 24:02}:{minutes % 60:02}" for minutes in (begin, end))


_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def parse_duration(text: object) -> int:
    """Return the seconds of `90s`, `45m`, `45 min`, `2h`. Raise ValueError."""
    match = re.fullmatch(r"\s*(\d{1,5})\s*(s|m|min|h)\s*", str(text), re.ASCII)
    if not match:
        raise ValueError(f"`{text}` is no time; write it like 45m, 90s or 2h")
    return int(match[1]) * _SECONDS[match[2]]


def parse_days(text: object) -> int:
    """Return the days of `30d`, `4w`. Raise ValueError."""
    match = re.fullmatch(r"\s*(\d{1,4})\s*([dw])\s*", str(text), re.ASCII)
    if not match:
        raise ValueError(f"`{text}` is no number of days; write it like 30d or 4w")
    return int(match[1]) * (7 if match[2] == "w" else 1)


_LEAST_LOSS, _MOST_LOSS = 0.5, 50
"""Percent. Less cannot be measured, and more is not a loss any more."""


def parse_loss(text: object) -> float:
    """Return the share that `-3%` takes away, 0.03. Raise ValueError."""
    match = re.fullmatch(r"\s*-(\d{1,2}(?:\.\d{1,3})?)\s*%\s*", str(text), re.ASCII)
    if not match:
        raise ValueError(f"`{text}` is no loss; write it like -3%")
    if not _LEAST_LOSS <= float(match[1]) <= _MOST_LOSS:
        raise ValueError(f"`{text}` is not between -{_LEAST_LOSS}% and -{_MOST_LOSS}%; write it like -3%")
    return round(float(match[1]) / 100, 6)


def show_size(size: int) -> str:
    """Return bytes in powers of ten: `253 MB`."""
    for unit, factor in (("TB", 1000**4), ("GB", 1000**3), ("MB", 1000**2), ("kB", 1000)):
        if size >= factor:
            value = size / factor
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"
    return f"{size} B"


def utc_stamp(at: datetime) -> str:
    """Return a moment of UTC in the format of results: `2026-11-23T20:15:01Z`."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def show_seconds(seconds: float) -> str:
    """Return seconds in words: `3.2 s`, `4 min 05 s`."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def show_hours(seconds: float) -> str:
    """Return a long time in words, to the next minute: `1 min`, `2 h 10 min`, `3 d 4 h`."""
    minutes = max(1, -int(-seconds // 60))
    if minutes >= 2 * 24 * 60:
        return f"{minutes // (24 * 60)} d {minutes // 60 % 24} h"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def parse_watts(text: object) -> int:
    """Return the watts of `320W`, `320 W` or 320. Raise ValueError."""
    return _number(text, "W", "watts; write it like 320W")


def parse_megahertz(text: object) -> int:
    """Return the megahertz of `1800MHz` or 1800. Raise ValueError."""
    return _number(text, "MHz", "megahertz; write it like 1800MHz")


def parse_percent(text: object) -> int:
    """Return the percent of `70%`, `70 %` or 70. Raise ValueError."""
    return _number(text, "%", "percent; write it like 70%")


def _number(text: object, unit: str, what: str) -> int:
    written = str(text) if isinstance(text, str | int) and not isinstance(text, bool) else ""
    match = re.fullmatch(rf"\s*(\d{{1,6}})\s*(?:{unit})?\s*", written, re.IGNORECASE | re.ASCII)
    if not match:
        raise ValueError(f"`{text}` is no number of {what}")
    return int(match[1])


def show_mib(size: int) -> str:
    """Return bytes in the unit of `nvidia-smi`: `8,192 MiB`."""
    return f"{size / (1 << 20):,.0f} MiB"
