"""Plan the quick measurement: decode by kind of text, prefill, and time to first token."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import hypot, inf, log

from llamaherd.measure.bench.job import ServerProfile
from llamaherd.measure.client.requests import RequestSpec, SeriesProgress, Step
from llamaherd.measure.client.suite import KINDS, Prompt, suite
from llamaherd.measure.results.metrics import DECODE, FEW, FIRST_TOKEN, PREFILL, STEP, Metric, by_start, cells_drift
from llamaherd.measure.results.result import Cell, Condition, Kind
from llamaherd.measure.statistics import NORMAL, estimate, half_width, pooled_deviation

FEWEST_RUNS, MOST_RUNS = 3, 100
"""Runs of a cell: before its interval counts, and at most."""
NARROW = 4
"""An interval must be narrower to each side than this part of a margin.

If two measurements were each as wide as half of the margin, their ratio would be too wide for the verdict `same`.
"""
ANSWERED = FEW
"""Tokens that are requested if only the prompt counts: a single one may be a mark without text."""
TOKENS, PROMPTS = (256, 128, 64, 32), (2048, 1024, 512, 256)
"""Lengths of responses and of the long prompt, the usual one first; the others are for slow servers."""

_GO_ON = {"ignore_eos": True}
"""If only the prompt counts, an empty response would be no measurement."""

_TASK = 250
"""Tokens of a task of our suite, about."""

_FOR_ANSWERS, _FOR_PROMPTS = 0.6, 0.25
"""Shares of the time that the fewest runs may take."""

_AT_MOST = 0.95
"""Share of the time that they may take together with the lengths of the last measurement."""


@dataclass(frozen=True)
class Quick:
    """One cell for each kind of text, and two for the long prompt: cold and warm, always one after the other.

    The cell with the fewest runs is next, at random among several: so a drift affects all cells equally.
    `answer_seconds` and `long_seconds` estimate how long one of each takes.
    """

    prompts: Mapping[Kind, Sequence[Prompt]]
    long: str
    seed: str
    seconds: float
    tokens: int = TOKENS[0]
    prompt: int = PROMPTS[0]
    answer_seconds: float = 0.0
    long_seconds: float = 0.0
    name: str = "quick"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Five kinds of text, and the long prompt cold and warm."""
        kinds = [Condition(kind=kind, generated=self.tokens, cache="cold", sampling="instance") for kind in KINDS]
        cold = Condition(kind="long", prompt=self.prompt, cache="cold", sampling="instance")
        return (*kinds, cold, cold.model_copy(update={"cache": "warm"}))

    @property
    def rule(self) -> str:
        """The criterion to stop."""
        return (
            f"{FEWEST_RUNS} to {MOST_RUNS} runs of each, until its interval is within a quarter of the margin, or "
            f"{self.seconds:.0f} s are over"
        )

    def next_step(self, so_far: SeriesProgress) -> Step | None:
        """Return a run of the cell with the fewest; None if each interval is narrow enough, or the time is over."""
        cells = [number for number, _ in self._open(so_far)]
        if not cells:
            return None
        runs = {number: len(so_far.cells[number].runs) for number in cells}
        number = min(cells, key=lambda each: (runs[each], self._lot(runs[each], each)))
        return self._step(number, runs[number], so_far.steps)

    def share_done(self, so_far: SeriesProgress) -> float:
        """Return the share of the most runs, or of the time, whichever is larger."""
        opened = dict(self._open(so_far))
        done = [min(0.95, opened[each] / MOST_RUNS) if each in opened else 1.0 for each in range(len(KINDS) + 1)]
        return max(sum(done) / len(done), 1 - max(0.0, so_far.seconds_left) / self.seconds)

    def _open(self, so_far: SeriesProgress) -> list[tuple[int, int]]:
        """Return the cells that need more runs and have the time for one, with the number of their runs."""
        found = []
        drift = cache(lambda prompts: cells_drift(so_far.cells, prompts))
        for number, cell in enumerate(so_far.cells[: len(KINDS) + 1]):
            alike = so_far.cells[: len(KINDS)] if number < len(KINDS) else ()
            if len(cell.runs) >= MOST_RUNS or so_far.seconds_left <= self._seconds_of(number, so_far.cells):
                continue
            # The other cells and drift only widen an interval: a cell that is too wide by itself needs neither.
            known = len(cell.counted) >= FEWEST_RUNS and is_narrow(cell)
            if not known or not is_narrow(cell, alike, drift(bool(cell.condition.prompt))):
                found.append((number, len(cell.runs)))
        return found

    def _seconds_of(self, number: int, cells: Sequence[Cell]) -> float:
        """Return how long one more run takes, by the runs so far."""
        if number < len(KINDS):
            return _mean_seconds(cells[number]) or self.answer_seconds
        return sum(_mean_seconds(each) for each in cells[number : number + 2]) or self.long_seconds

    def _lot(self, runs: int, cell: int) -> bytes:
        return hashlib.sha256(f"{self.seed}:{runs}:{cell}".encode()).digest()

    def _step(self, number: int, runs: int, salt: int) -> Step:
        if number == len(KINDS):
            cold = RequestSpec(number, self.long, ANSWERED, salt=salt, more=_GO_ON)
            warm = replace(cold, cell=number + 1, reuse=True)
            return Step((cold, warm), about=f"prefill of {self.prompt:,} tokens")
        kind = KINDS[number]
        prompts = self.prompts[kind]
        ask = RequestSpec(number, prompts[runs % len(prompts)].text, self.tokens, salt=salt)
        return Step((ask,), about=f"decode of {kind}")


def quick_series(known: ServerProfile) -> Quick:
    """Return the quick measurement of a server: as an interrupted one began, or in lengths that fit into the time.

    The lengths of the last measurement are kept if possible: other lengths cannot be compared.
    """
    fits = fit_lengths(known.seconds, known.decode, known.prefill, known.context)
    tokens, prompt = lengths_of(known.before)
    if not (tokens and prompt):
        tokens, prompt = _kept(known, fits)
    answer, whole = _seconds_of_each((tokens, prompt), known)
    return Quick(suite().prompts, known.text_of(prompt), known.seed, known.seconds, tokens, prompt, answer, whole)


def lengths_of(conditions: Iterable[Condition]) -> tuple[int | None, int | None]:
    """Return the tokens of the responses and of the long prompt of a quick measurement among these conditions."""
    # Other series have conditions of their own: none is of one request at a time with such a length.
    alone = [each for each in conditions if each.concurrency == 1 and not each.depth and not each.power_limit_watts]
    tokens = {each.generated for each in alone if each.kind in KINDS and each.generated in TOKENS}
    prompts = {each.prompt for each in alone if each.kind == "long" and each.cache == "warm" and each.prompt in PROMPTS}
    return (tokens.pop() if len(tokens) == 1 else None), (prompts.pop() if len(prompts) == 1 else None)


def _kept(known: ServerProfile, fits: tuple[int, int]) -> tuple[int, int]:
    """Return the last lengths if the fewest runs fit into the time, and they are at most one step too short.

    Otherwise a server whose speed lies between two lengths would alternate between them, and one that became much
    slower would get no verdict.
    """
    tokens, prompt = lengths_of(known.last)
    room = [each for each in PROMPTS if each <= known.context // 2]
    last = kept_length(tokens, fits[0], TOKENS), kept_length(prompt, fits[1], room)
    answer, whole = _seconds_of_each(last, known)
    return last if FEWEST_RUNS * (len(KINDS) * answer + whole) <= _AT_MOST * known.seconds else fits


def kept_length(last: int | None, fits: int, lengths: Sequence[int]) -> int:
    """Return the last length, if it is one of these and at least half as long as what fits; else what fits."""
    return next((each for each in lengths if each == last and 2 * each >= fits), fits)


def _seconds_of_each(lengths: tuple[int, int], known: ServerProfile) -> tuple[float, float]:
    """Estimate how long a response and the long prompt take."""
    decode, prefill = known.decode or inf, known.prefill or inf
    return lengths[0] / decode + _TASK / prefill, lengths[1] / prefill


def fit_lengths(seconds: float, decode: float | None, prefill: float | None, context: int) -> tuple[int, int]:
    """Return the lengths of responses and of the long prompt whose fewest runs fit into a time, at these speeds."""
    read = prefill or inf
    each = _FOR_ANSWERS * seconds / (FEWEST_RUNS * len(KINDS)) - _TASK / read
    whole = _FOR_PROMPTS * seconds / FEWEST_RUNS
    tokens = next((most for most in TOKENS if most <= (decode or inf) * max(0.0, each)), TOKENS[-1])
    fits = [most for most in PROMPTS if most <= context // 2] or [PROMPTS[-1]]
    return tokens, next((most for most in fits if most <= read * whole), fits[-1])


def judged_metrics(condition: Condition) -> tuple[Metric, ...]:
    """Return the metrics that a condition is meant for: these are shown, and judged."""
    if condition.generated:
        return (DECODE, STEP)
    return (FIRST_TOKEN,) if condition.cache == "warm" else (PREFILL, FIRST_TOKEN)


def is_narrow(cell: Cell, alike: Sequence[Cell] = (), drift: float = 0.0) -> bool:
    """Check that the interval of what a cell measures is a part of the margin; of a step, if there are drafts.

    It is as wide as by the spread of all cells that are `alike`, because three runs of one of them may lie close
    together by luck. The `drift` of the machine so far widens it.
    """
    metrics = judged_metrics(cell.condition)
    drafted = any(run.draft_n for run in cell.counted)
    relevant = [metric for metric in metrics if metric is not (DECODE if drafted else STEP)]
    return all(_half(cell, alike, metric, drift) <= log(1 + (metric.margin or 0.0) / NARROW) for metric in relevant)


def _half(cell: Cell, alike: Sequence[Cell], metric: Metric, drift: float) -> float:
    """Return how far an interval goes to either side, as a logarithm; infinite if it is unknown."""
    found = estimate(by_start(cell.counted, metric))
    if found is None or found.low is None or found.high is None:
        return inf
    rates = [[log(run.rate) for start in by_start(each.counted, metric) for run in start] for each in alike]
    usual = pooled_deviation(*rates)
    freedom = sum(len(each) - 1 for each in rates if each)
    half = log(found.high / found.low) / 2
    if usual is not None:
        half = max(half, half_width(usual, found.n, freedom))
    return hypot(half, NORMAL * drift)


def _mean_seconds(cell: Cell) -> float:
    times = [run.total_ms / 1000 for run in cell.runs if run.total_ms]
    return sum(times) / len(times) if times else 0.0
