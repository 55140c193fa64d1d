"""How far the machine of a result wandered while it was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llamaherd.bench.results.metrics import DECODE, PREFILL
from llamaherd.bench.results.result import Cell
from llamaherd.bench.statistics.wandering import FEWEST, Seen, wandering


def wandered(cells: Sequence[Cell], prompts: bool) -> float:
    """By its answers, however many kinds of text there are, or by its cold prompts; where these are few, by both.

    What holds back one of them may leave the other alone, and prompts differ several times as much by chance.
    """
    cold = [cell for cell in cells if cell.condition.cache != "warm"]
    own = [seen for cell in cold if bool(cell.condition.prompt) == prompts for seen in _seen(cell)]
    return wandering(own if len(own) >= FEWEST else [seen for cell in cold for seen in _seen(cell)])


def _seen(cell: Cell) -> Iterator[Seen]:
    metric = PREFILL if cell.condition.prompt else DECODE
    for run in cell.counted:
        if run.at is not None and (sample := metric.of(run)):
            yield Seen(run.at, str(cell.condition), sample)
