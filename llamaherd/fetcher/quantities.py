"""Sizes and durations as people read them."""

from __future__ import annotations

_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))


def show_size(size: float) -> str:
    """Bytes for people, in powers of ten: `105 GB`, `11.3 MB`."""
    unit, factor = _unit(size)
    return f"{_figure(size / factor)} {unit}" if factor > 1 else f"{size:.0f} B"


def show_part(part: int, whole: int) -> str:
    """How much of how much, in the unit of the whole: `41.2 of 105 GB`."""
    unit, factor = _unit(whole)
    return f"{_figure(part / factor)} of {_figure(whole / factor)} {unit}"


def show_duration(seconds: float) -> str:
    """Seconds for people, in two units at most: `8 s`, `4 min 05 s`, `1 h 34 min`, `2 d 3 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def _unit(size: float) -> tuple[str, int]:
    return next((each for each in _UNITS if size >= each[1]), _UNITS[-1])


def _figure(value: float) -> str:
    return f"{value:.1f}" if 0 < value < 99.95 else f"{value:.0f}"
