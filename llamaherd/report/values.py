"""Values as a report writes them: four digits, an interval, how many. Pure."""

from __future__ import annotations

from llamaherd.report.measured import Figure, MeasuredCell

NONE = "-"
"""Where nothing was measured."""


def number(value: float) -> str:
    """Four digits, or all that stand before the point."""
    digits = len(f"{abs(value):.0f}")
    return f"{value:,.{max(0, 4 - digits)}f}"


def figure(each: Figure | None) -> str:
    """A value with its interval: `249.3 (247.2 to 251.4)`, or `249.3 (n = 2, too few)`."""
    if each is None:
        return NONE
    if each.ends is None:
        few = f" ({each.estimate.counted})" if each.estimate.n > 1 else ""
        return f"{number(each.value)}{few}"
    low, high = map(number, each.ends)
    return f"{number(each.value)} ({low} to {high})"


def plus_minus(each: Figure | None) -> str:
    """A value with half of its interval: `249.3 ± 2.1`. One wider than the value is not told in digits."""
    if each is None or each.ends is None:
        return figure(each)
    low, high = each.ends
    half = (high - low) / 2
    return f"{number(each.value)} ± {short(half) if half < each.value / 2 else 'over 50 %'}"


def short(value: float) -> str:
    """Two digits of an error are enough."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def share(value: float | None) -> str:
    """A share in percent."""
    return NONE if value is None else f"{100 * value:.1f} %"


def optional(value: float | None) -> str:
    """A number that may not be known."""
    return NONE if value is None else number(value)


def counted(cell: MeasuredCell) -> str:
    """How many independent values the figures of a cell are made of."""
    if not cell.figures:
        return NONE
    most = max((each.estimate for each in cell.figures), key=lambda each: each.n)
    return f"{most.n} {most.unit}s" if most.unit == "start" else str(most.n)


def tokens(value: float) -> str:
    """Tokens of a context: `4K`, `198K`, `1M`."""
    for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:,.0f}"
