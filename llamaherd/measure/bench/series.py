"""The series of requests in a measurement: quick, energy of a token, power limits, and a soak."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, hypot, inf, log
from zlib import crc32

from llamaherd.measure.bench.job import ServerProfile
from llamaherd.measure.client.requests import KINDS, Prompt, RequestSpec, SeriesProgress, Step, suite
from llamaherd.measure.results.metrics import (
    DECODE,
    ENERGY,
    FEW,
    FIRST_TOKEN,
    PREFILL,
    RESPONSE,
    STEP,
    Metric,
    by_start,
    cells_drift,
)
from llamaherd.measure.results.result import Cell, Condition, Kind, Result, Run
from llamaherd.measure.statistics import (
    NORMAL,
    Estimate,
    Ratio,
    Sample,
    estimate,
    fit_line,
    half_width,
    pooled_deviation,
    unpaired_ratio,
)

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

_PAST_END = {"ignore_eos": True}
"""If only the prompt or the length counts, the response must not end early: an empty one would be no measurement."""

_ONE_SLOT = {**_PAST_END, "id_slot": 0}
"""For requests that depend on the last one: otherwise a server with several slots may take another slot."""
_SHORT = "Hello."

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
            # Before llama.cpp reads another prompt in a slot, it saves the last one for `--cache-ram`
            # (get_available_slot in server-context.cpp): 75 to 300 ms of the time to the first token, by the length of
            # the last prompt. Before each cold prompt, the last one is the same short one.
            before = RequestSpec(None, _SHORT, ANSWERED, more=_ONE_SLOT)
            cold = RequestSpec(number, self.long, ANSWERED, salt=salt, more=_ONE_SLOT)
            warm = replace(cold, cell=number + 1, reuse=True)
            return Step((before, cold, warm), about=f"prefill of {self.prompt:,} tokens")
        kind = KINDS[number]
        prompts = self.prompts[kind]
        request = RequestSpec(number, prompts[runs % len(prompts)].text, self.tokens, salt=salt)
        return Step((request,), about=f"decode of {kind}")


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
    if condition.kind in ("embeddings", "rerank"):
        return (PREFILL, RESPONSE)
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


ENERGY_REST_SECONDS, LEAST = 12.0, 10.0
"""Seconds without a request, and of a response: a sensor that samples a quarter of the time needs as many."""

_LENGTHS = (96, 192, 384, 768, 1536, 3072, 6144, 12288, 24576)
"""Of responses: no other measurement uses these."""
_TIMES, _SPARE, _TOO_LONG = 3, 1.2, 3.0


@dataclass(frozen=True)
class Energy:
    """Three long responses, with end tokens ignored: their text does not matter."""

    prompt: Prompt
    tokens: int
    name: str = "energy"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The only condition."""
        return (Condition(kind=self.prompt.kind, generated=self.tokens, cache="cold", sampling="instance"),)

    @property
    def rule(self) -> str:
        """The criterion to stop."""
        return f"{_TIMES} responses of {self.tokens:,} tokens, of {LEAST:.0f} s or more"

    def next_step(self, so_far: SeriesProgress) -> Step | None:
        """Return one more request, until there are enough."""
        done = len(so_far.cells[0].runs)
        request = RequestSpec(0, self.prompt.text, self.tokens, salt=so_far.steps, more={"ignore_eos": True})
        return Step((request,), about=f"energy of {self.tokens:,} tokens") if done < _TIMES else None

    def share_done(self, so_far: SeriesProgress) -> float:
        """Return the share of responses."""
        return min(1.0, len(so_far.cells[0].runs) / _TIMES)


def energy_series(prompt: Prompt, known: ServerProfile) -> Energy | None:
    """Return a series with the length of an interrupted one, or a long enough one; None if the context is too small."""
    tokens = _last(prompt, known.before) or response_length(LEAST, known.decode, last=_last(prompt, known.last))
    return Energy(prompt, tokens) if tokens <= known.context // 2 else None


def _last(prompt: Prompt, conditions: Sequence[Condition]) -> int | None:
    """Return the tokens of such a response among these conditions."""
    energies = (Energy(prompt, each.generated).conditions[0] for each in conditions if each.generated in _LENGTHS)
    return next((each.generated for each in energies if each in conditions), None)


def response_length(seconds: float, decode: float | None, context: int | None = None, last: int | None = None) -> int:
    """Return the tokens of a response that takes so long at about this speed, and at most half of a `context`.

    The length of the `last` measurement is kept if it takes long enough, and not several times as long: other lengths
    cannot be compared.
    """
    fits = [each for each in _LENGTHS if context is None or each <= context // 2] or [_LENGTHS[0]]
    least = seconds * (decode or 0.0)
    if last in fits and (decode is None or least <= last <= _TOO_LONG * least):
        return last
    return next((each for each in fits if each >= _SPARE * least), fits[-1])


@dataclass(frozen=True)
class EnergyCost:
    """Joules a token: in total, and beyond what its GPUs use at rest; with the watts at rest."""

    whole: Estimate
    net: Estimate
    rest: float


def energy_cost(result: Result) -> EnergyCost | None:
    """Compute the cost over all runs that are long enough; None without any, or if the power at rest is unknown."""
    rest = result.rest.watts if result.rest else None
    if rest is None:
        return None
    long = [
        (run.joules, run.total_ms / 1000, run.predicted_n)
        for cell in result.cells
        if cell.condition.power_limit_watts is None
        for run in cell.counted
        if run.joules and run.predicted_n and run.total_ms and run.total_ms >= 1000 * LEAST
    ]
    whole = estimate([[Sample(joules, tokens) for joules, _, tokens in long]])
    beyond = [Sample(joules - rest * seconds, tokens) for joules, seconds, tokens in long]
    net = estimate([[each for each in beyond if each.amount > 0]])
    return EnergyCost(whole, net, rest) if whole and net else None


def energy_lines(result: Result) -> Iterator[str]:
    """Yield the lines of the summary."""
    if found := energy_cost(result):
        yield (
            f"{_shown(found.whole)} J a token, {_shown(found.net)} of them beyond the {found.rest:.0f} W at rest; "
            f"of {found.whole.n} responses of {LEAST:.0f} s or more"
        )


def _shown(found: Estimate) -> str:
    error = f" ({found.low:.3g} to {found.high:.3g})" if found.low and found.high else f" ({found.counted})"
    return f"{found.value:.3g}{error}"


POWER_ROUNDS, _MOST = 3, 6
SECONDS, SETTLES = 5.0, 1.0
"""Of a response, about, and before it: an energy counter moves ten times a second, and a GPU's clock follows soon."""

_KNEE = 0.95
"""The share of the fastest speed that still counts as nearly as fast."""


@dataclass(frozen=True)
class PowerSeries:
    """A long response and a long prompt under each limit, in rounds: up, down and up again, or the other way round.

    So drifts cancel out, and no limit always comes first. `answer` and `read` are seconds of one each.
    """

    prompt: Prompt
    long: str
    limits: tuple[int, ...]
    seed: str
    tokens: int
    read: int
    seconds: float = 0.0
    name: str = "power limits"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Two for each limit: the response, then the prompt."""
        return tuple(each for limit in self.limits for each in self._two(limit))

    def _two(self, limit: int) -> tuple[Condition, Condition]:
        answer = Condition(
            kind=self.prompt.kind,
            generated=self.tokens,
            cache="cold",
            sampling="instance",
            power_limit_watts=limit,
        )
        return answer, answer.model_copy(update={"kind": "long", "prompt": self.read, "generated": 0})

    @property
    def beforehand(self) -> str:
        """The announcement before it begins."""
        return (
            f"power limits: {len(self.limits)} from {self.limits[0]} to {self.limits[-1]} W, {POWER_ROUNDS} rounds, "
            f"about {max(1, round(self.seconds / 60))} min; afterwards the present limits are restored"
        )

    @property
    def rule(self) -> str:
        """The criterion to stop."""
        return f"{POWER_ROUNDS} rounds through {len(self.limits)} limits"

    def next_step(self, so_far: SeriesProgress) -> Step | None:
        """Return the next limit of a round. Limits with excluded runs get more rounds, up to a bound."""
        tried = {n: len(cell.runs) for n, cell in enumerate(so_far.cells[::2]) if not _enough(cell)}
        if not tried:
            return None
        done = min(tried.values())
        up = (done + crc32(self.seed.encode())) % 2 == 0
        number = next(each for each in sorted(tried, reverse=not up) if tried[each] == done)
        limit = self.limits[number]
        requests = (
            RequestSpec(2 * number, self.prompt.text, self.tokens, salt=2 * so_far.steps, more=_PAST_END),
            RequestSpec(2 * number + 1, self.long, ANSWERED, salt=2 * so_far.steps + 1, more=_PAST_END),
        )
        return Step(requests, rest=SETTLES, watts=limit, about=f"at {limit} W, round {done + 1}")

    def share_done(self, so_far: SeriesProgress) -> float:
        """Return the share of responses."""
        answers = so_far.cells[::2]
        return sum(min(POWER_ROUNDS, len(cell.runs)) for cell in answers) / (POWER_ROUNDS * len(answers))


def _enough(cell: Cell) -> bool:
    return len(cell.counted) >= POWER_ROUNDS or len(cell.runs) >= _MOST


def power_series(known: ServerProfile, limits: Sequence[int]) -> PowerSeries:
    """Return the series with the lengths of an interrupted one, else with lengths that take long enough."""
    tokens, read = _lengths(known.before)
    if not (tokens and read):
        tokens, read = _lengths(known.last)
        tokens = response_length(SECONDS, known.decode, known.context, tokens)
        fits = fit_lengths(POWER_ROUNDS * SECONDS * 4, known.decode, known.prefill, known.context)[1]
        read = kept_length(read, fits, [each for each in PROMPTS if each <= min(known.context // 2, 2 * fits)])
    one = tokens / (known.decode or tokens / SECONDS) + read / (known.prefill or read)
    prompt = suite().prompts["prose"][0]
    long = known.text_of(read)
    return PowerSeries(prompt, long, tuple(limits), known.seed, tokens, read, POWER_ROUNDS * len(limits) * (one + 2))


def _lengths(conditions: Sequence[Condition]) -> tuple[int | None, int | None]:
    """Return the tokens of the responses and of the long prompt of such a series among these conditions."""
    held = [each for each in conditions if each.power_limit_watts]
    tokens = next((each.generated for each in held if each.generated), None)
    return tokens, next((each.prompt for each in held if each.prompt), None)


@dataclass(frozen=True)
class PowerLevel:
    """A limit, the speed under it, and tokens for a joule."""

    watts: float
    decode: float
    per_joule: float


def power_levels(cells: Sequence[Cell]) -> tuple[PowerLevel, ...]:
    """Return the limits with both figures, in ascending order."""
    found = []
    for cell in cells:
        watts = cell.condition.power_limit_watts
        decode = estimate(by_start(cell.counted, DECODE)) if watts and cell.condition.generated else None
        energy = estimate(by_start(cell.counted, ENERGY)) if decode else None
        if watts and decode and energy:
            found.append(PowerLevel(watts, decode.value, energy.value))
    return tuple(sorted(found, key=lambda each: each.watts))


def power_lines(result: Result) -> Iterator[str]:
    """Yield the summary: the most efficient limit, and the least limit that costs hardly any speed."""
    found = power_levels(result.cells)
    if len(found) < 2:
        return
    fastest = max(each.decode for each in found)
    best = max(found, key=lambda each: each.per_joule)
    yield (
        f"most tokens a joule at {best.watts:g} W: {best.per_joule:.3g}, "
        f"{best.decode / fastest:.0%} of the fastest decode".replace("%", " %")
    )
    knee = next(each for each in found if each.decode >= _KNEE * fastest)
    yield (
        f"from {knee.watts:g} W on, decode is at least {_KNEE:.0%} of the fastest; "
        f"{knee.per_joule / found[-1].per_joule:.2f} times the tokens a joule of {found[-1].watts:g} W"
    ).replace("%", " %")


SOAK_TOKENS = 512
"""More than in other requests, so its runs have a condition of their own."""

_FEWEST_SOAK_RUNS = 8
"""Runs that a drift is computed from."""


@dataclass(frozen=True)
class Soak:
    """One prompt of code, for so many seconds of work."""

    prompt: Prompt
    seconds: float
    name: str = "soak"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The only condition."""
        return (Condition(kind=self.prompt.kind, generated=SOAK_TOKENS, cache="cold", sampling="instance"),)

    @property
    def rule(self) -> str:
        """The criterion to stop."""
        return f"{self.seconds:.0f} s of work"

    def next_step(self, so_far: SeriesProgress) -> Step | None:
        """Return the same request once more, until the time is over."""
        if self._worked(so_far) >= self.seconds:
            return None
        return Step(
            (RequestSpec(0, self.prompt.text, SOAK_TOKENS, salt=so_far.steps),), about="the same again and again"
        )

    def share_done(self, so_far: SeriesProgress) -> float:
        """Return the share of the time."""
        return min(1.0, self._worked(so_far) / self.seconds)

    @staticmethod
    def _worked(so_far: SeriesProgress) -> float:
        return sum(run.total_ms or 0.0 for run in so_far.cells[0].runs) / 1000


@dataclass(frozen=True)
class SpeedDrift:
    """How a speed changes over a time: as a share of it for all of that time, with its 95 % interval.

    `ends` is the ratio of the last quarter to the first. It is of decode, or with drafts of steps, which do not depend
    on the text. `warmer` is how much warmer the last quarter is, in degrees.
    """

    change: float
    low: float
    high: float
    ends: Ratio
    seconds: float
    runs: int
    warmer: float | None


def soak_drift(runs: Sequence[Run]) -> SpeedDrift | None:
    """Compute the drift of runs in their order; None for too few."""
    counted = [run for run in runs if run.at is not None and not run.excluded]
    metric = STEP if any(run.draft_n for run in counted) else DECODE
    found = [(run, sample) for run in counted if (sample := metric.of(run))]
    if len(found) < _FEWEST_SOAK_RUNS:
        return None
    times = [run.at or 0.0 for run, _ in found]
    span = times[-1] - times[0]
    rates = [log(sample.rate) for _, sample in found]
    line = fit_line([((at - times[0]) / span, rate) for at, rate in zip(times, rates, strict=True)]) if span else None
    quarter = len(found) // 4
    first, last = found[:quarter], found[-quarter:]
    ends = unpaired_ratio(*([[sample for _, sample in part]] for part in (first, last)), assumed=0.0)
    if line is None or ends is None:
        return None
    change, low, high = (exp(each) - 1 for each in (line.slope, line.slope - line.half, line.slope + line.half))
    return SpeedDrift(change, low, high, ends, span, len(found), _warmer(first, last))


def _warmer(first: Sequence[tuple[Run, Sample]], last: Sequence[tuple[Run, Sample]]) -> float | None:
    before, after = ([run.celsius for run, _ in part if run.celsius is not None] for part in (first, last))
    return sum(after) / len(after) - sum(before) / len(before) if before and after else None


def drift_lines(result: Result) -> Iterator[str]:
    """Yield the lines of the summary."""
    for cell in result.cells:
        found = soak_drift(cell.runs) if cell.condition.generated == SOAK_TOKENS else None
        if found is None:
            continue
        ends, heat = found.ends, "" if found.warmer is None else f", {found.warmer:+.1f} °C"
        between = f" ({' to '.join(map(_percent, ends.ends))})" if ends.ends else ""
        yield (
            f"over {found.seconds / 60:.0f} minutes, {found.runs} runs: speed changes by {100 * found.change:+.1f} % "
            f"({100 * found.low:+.1f} to {100 * found.high:+.1f}); the last quarter vs the first: "
            f"{_percent(ends.value)} %{between}{heat}"
        )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"
