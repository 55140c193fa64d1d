"""What is wrong or doubtful in a result by its own figures: said of ours as of everybody else's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt

from llamaherd.bench.results.metrics import DECODE, STEP
from llamaherd.bench.results.result import Cell, Result, Run
from llamaherd.bench.statistics.intervals import standard_deviation

_PREFIX = 0.8
"""Less than this share of a prompt in the time to the first token, and some of it was cached."""

_FEWEST, _TOGETHER = 5, 0.9
"""Runs, and their correlation, from which on the text is what the spread is of."""

_FLAT, _SPAN = 0.05, 4
"""A speed that changes by less than this share over contexts so many times as long is not of those contexts."""


def doubts(result: Result) -> tuple[str, ...]:
    """All that is doubtful in a result: one sentence each."""
    return tuple(_doubts(result))


def _doubts(result: Result) -> Iterator[str]:
    if result.provenance.host.swapped_bytes:
        yield "part of the server was in swap: no figure here says how fast it is"
    for cell in result.cells:
        yield from _warm(cell)
        yield from _of_the_text(cell)
    yield from _cached(result.cells)
    yield from _allocated(result.cells)
    counted = [len(cell.counted) for cell in result.cells if cell.runs]
    if counted and max(counted) == 1:
        yield "each condition was measured once: no error is known, and no small difference can be told"


def _warm(cell: Cell) -> Iterator[str]:
    most = max((run.cache_n or 0 for run in cell.counted), default=0)
    if cell.condition.cache == "cold" and most:
        yield f"{cell.condition}: {most:,} tokens came from a cache, though it was to be cold"


def _cached(cells: Sequence[Cell]) -> Iterator[str]:
    """Prefill and time to the first token that cannot be of the same request; told of the one that is most so."""
    found = [(implied / prompt, run) for run, implied, prompt in _first_tokens(cells) if implied < _PREFIX * prompt]
    if not found:
        return
    _, worst = min(found, key=lambda each: each[0])
    also = f" The same goes for {len(found) - 1} others." if len(found) > 1 else ""
    yield (
        f"a time to the first token of {(worst.first_token_ms or 0) / 1000:.1f} s is that of "
        f"{_read_until_first(worst) or 0:,.0f} tokens at the prefill speed beside it, and not of {worst.prompt_n:,}: "
        f"most came from a cache, or it is of another prompt.{also}"
    )


def _first_tokens(cells: Sequence[Cell]) -> Iterator[tuple[Run, float, int]]:
    for cell in cells:
        for run in cell.counted:
            if run.prompt_n and (implied := _read_until_first(run)):
                yield run, implied, run.prompt_n


def _read_until_first(run: Run) -> float | None:
    """As many tokens of the prompt as are read until the first token comes."""
    rate = run.prompt_per_second
    if run.prompt_n and run.prompt_ms:
        rate = 1000 * run.prompt_n / run.prompt_ms
    return rate * run.first_token_ms / 1000 if rate and run.first_token_ms else None


def _of_the_text(cell: Cell) -> Iterator[str]:
    """Where drafts decide how fast a run was, its text does, and the machine is steadier than it looks."""
    drafted = [(run, sample) for run in cell.counted if run.acceptance is not None and (sample := DECODE.of(run))]
    rates, accepted = [each.rate for _, each in drafted], [run.acceptance or 0.0 for run, _ in drafted]
    if len(drafted) < _FEWEST or (together := correlation(rates, accepted)) is None or together < _TOGETHER:
        return
    steps = [sample.rate for run, _ in drafted if (sample := STEP.of(run))]
    steady = ""
    if len(steps) == len(drafted):
        times = [1000 / each for each in steps]
        steady = f", while a step takes {_mean(times):.2f} ms in all of them (± {_share(times):.1%})"
    yield (
        f"{cell.condition}: the spread of ± {_share(rates):.1%} is of the text and not of the machine: speed goes with "
        f"the accepted drafts (r = {together:.3f}){steady}"
    )


def _allocated(cells: Sequence[Cell]) -> Iterator[str]:
    """Contexts that were allocated, and not filled: the speed is that of an empty one in all of them."""
    speeds = {
        cell.condition.context: _mean([sample.rate for run in cell.counted if (sample := DECODE.of(run))])
        for cell in cells
        if cell.condition.context and any(DECODE.of(run) for run in cell.counted)
    }
    if len(speeds) < 3 or max(speeds) < _SPAN * min(speeds):
        return
    if min(speeds.values()) > (1 - _FLAT) * max(speeds.values()):
        yield (
            f"decode is as fast with a context of {max(speeds):,} tokens as with {min(speeds):,}: these were "
            "allocated, and hardly any of them were in the cache. It says nothing of the speed at that depth"
        )


def correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """How closely two go together, from -1 to 1; None where one of them does not change."""
    mean_a, mean_b = _mean(a), _mean(b)
    along = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    squares = sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)
    return along / sqrt(squares) if squares > 0 else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _share(values: Sequence[float]) -> float:
    """The standard deviation as a share of the mean."""
    return (standard_deviation(values) or 0.0) / _mean(values)
