"""A card: one result as a picture to post. What it shows is a value; `card_image.py` draws it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.report.charts import Bar, Pane
from llamaherd.measure.report.curves import speed_over_context
from llamaherd.measure.report.page import figure_of, kinds_of, representative
from llamaherd.measure.report.results import Figure, Measured, MeasuredCell
from llamaherd.measure.report.tables import plus_minus, rounded, short, tokens
from llamaherd.measure.results.metrics import DECODE, FIRST_TOKEN, PREFILL, Metric


@dataclass(frozen=True)
class CardFigure:
    """A large number of a card: its name, value with unit, half of its 95 % interval, and its condition."""

    name: str
    value: str
    error: str
    condition: str


@dataclass(frozen=True)
class Card:
    """A card. It has the decode speed over the context as a curve, or by kind of text as bars."""

    title: str
    hardware: str
    software: str
    figures: tuple[CardFigure, ...]
    curve: Pane | None
    bars: tuple[Bar, ...]
    doubt: str
    origin: str


def card_of(each: Measured) -> Card:
    """Return the card of a result. Raise UserError if it has no speed."""
    figures = tuple(_figures(each))
    if not figures:
        raise UserError(f"{each.label} has no measured speed to show", "measure it with `herd bench`")
    curve = speed_over_context(each)
    return Card(
        title=each.weights or each.stack or each.label,
        hardware=" · ".join(each.machine),
        software=" · ".join(filter(None, [each.engine, *each.serving])),
        figures=figures,
        curve=curve,
        bars=() if curve else tuple(_bars(each)),
        doubt=_doubt(each, curve),
        origin=" · ".join(filter(None, [_measured(each), each.id and f"result {each.id}"])),
    )


def card_result(found: Sequence[Measured]) -> Measured:
    """Return the result that a card shows: the newest complete one. Raise UserError if there are several instances."""
    names = sorted({each.label for each in found})
    if len(names) > 1:
        listed = ", ".join(names[:5])
        raise UserError("a card shows one instance", f"name one of {listed}, such as `herd report --card {names[0]}`")
    if not found:
        raise UserError("there is no result to show on a card", "measure an instance with `herd bench`")
    return max(found, key=lambda each: each.order)


def _figures(each: Measured) -> Iterator[CardFigure]:
    kinds = kinds_of([each])
    shown: tuple[tuple[str, Metric, str | None], ...] = (
        ("decode", DECODE, kinds[0] if kinds else None),
        ("prefill", PREFILL, None),
        ("first token", FIRST_TOKEN, None),
    )
    for name, metric, kind in shown:
        cell = representative(each.cells, metric, kind)
        found = cell.figure(metric) if cell else None
        if cell and found:
            yield CardFigure(name, f"{rounded(found.value)} {metric.unit}", _error(found), _condition(cell))


def _condition(cell: MeasuredCell) -> str:
    """Return the condition that matters for a speed: depth, prompt, or kind of text."""
    asked = cell.condition
    if asked.depth:
        return f"after {tokens(asked.depth)} tokens"
    return f"prompt of {tokens(asked.prompt)} tokens" if asked.prompt else str(asked.kind)


def _error(found: Figure) -> str:
    """Return half of the 95 % interval, or why there is none."""
    if found.ends is None:
        return f"{found.estimate.counted}: error unknown"
    half = (found.ends[1] - found.ends[0]) / 2
    return f"± {short(half)}" if half < found.value / 2 else "± over 50 %"


def _bars(each: Measured) -> Iterator[Bar]:
    for kind in kinds_of([each]):
        if found := figure_of(each.cells, DECODE, kind):
            low, high = found.ends or (None, None)
            yield Bar(kind, found.value, low, high, plus_minus(found))


def _doubt(each: Measured, curve: Pane | None) -> str:
    """Return the first doubt in a sentence, and how many more there are."""
    doubts = [*each.doubts, *each.notes]
    intervals = "± is a 95 % interval"
    if curve and any(point.low is None for point in curve.series[0].points):
        intervals += "; the curve has one run for each point, so its error is unknown"
    if not doubts:
        return f"{intervals}."
    more = f" ({len(doubts) - 1} more in the report)" if len(doubts) > 1 else ""
    return f"{intervals}. Doubt: {doubts[0]}{more}."


def _measured(each: Measured) -> str:
    by = "herd bench" if not each.less else each.source
    return f"measured {each.day} by {by}" if each.day else f"measured by {by}"
