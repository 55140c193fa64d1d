"""Whether figures can be of a server at all: what nobody could have measured is told in a sentence, and not drawn."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.bench.results.result import Result
from llamaherd.diagnostics.findings import UserError
from llamaherd.report.measured import Measured, MeasuredCell, measured

_LEAST, _MOST = 1e-9, 1e13
"""Of any figure, in its unit."""


def believed(result: Result, name: str) -> Measured:
    """What is told of a result in a file of this name. Raises UserError where its figures are none."""
    try:
        each = measured(result)
        sane = all(value is None or value == 0 or _LEAST <= value <= _MOST for value in _values(each))
    except (ArithmeticError, ValueError):
        sane = False
    if not sane:
        raise UserError(f"{name} holds figures that nobody can have measured", "leave it out, or mend it")
    return each


def _values(each: Measured) -> Iterator[float | None]:
    yield each.context
    for peak in each.peaks:
        yield from (peak.held_bytes, peak.planned_bytes)
    for cell in each.cells:
        yield from _of_cell(cell)


def _of_cell(cell: MeasuredCell) -> Iterator[float | None]:
    asked = cell.condition
    yield from (asked.depth, asked.prompt, asked.generated, asked.concurrency, asked.context, asked.power_limit_watts)
    yield from (cell.watts, cell.most_watts, cell.joules, cell.total.value if cell.total else None)
    yield from (figure.value for figure in cell.figures)
    for run in cell.runs:
        yield from (run.decode, run.step)
