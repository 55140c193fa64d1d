"""Measure the energy of a token, and speed and energy under power limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from llamaherd.measure.bench.job import ServerProfile
from llamaherd.measure.bench.quick import ANSWERED, PROMPTS, fit_lengths, kept_length
from llamaherd.measure.client.requests import RequestSpec, SeriesProgress, Step
from llamaherd.measure.client.suite import Prompt, suite
from llamaherd.measure.results.metrics import DECODE, ENERGY, by_start
from llamaherd.measure.results.result import Cell, Condition, Result
from llamaherd.measure.statistics import Estimate, Sample, estimate

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
        ask = RequestSpec(0, self.prompt.text, self.tokens, salt=so_far.steps, more={"ignore_eos": True})
        return Step((ask,), about=f"energy of {self.tokens:,} tokens") if done < _TIMES else None

    def share_done(self, so_far: SeriesProgress) -> float:
        """Return the share of responses."""
        return min(1.0, len(so_far.cells[0].runs) / _TIMES)


def energy_series(prompt: Prompt, known: ServerProfile) -> Energy | None:
    """Return a series with the length of an interrupted one, or a long enough one; None if the context is too small."""
    tokens = _last(prompt, known.before) or answer_length(LEAST, known.decode, last=_last(prompt, known.last))
    return Energy(prompt, tokens) if tokens <= known.context // 2 else None


def _last(prompt: Prompt, conditions: Sequence[Condition]) -> int | None:
    """Return the tokens of such a response among these conditions."""
    energies = (Energy(prompt, each.generated).conditions[0] for each in conditions if each.generated in _LENGTHS)
    return next((each.generated for each in energies if each in conditions), None)


def answer_length(seconds: float, decode: float | None, context: int | None = None, last: int | None = None) -> int:
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

_GO_ON = {"ignore_eos": True}


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
        asks = (
            RequestSpec(2 * number, self.prompt.text, self.tokens, salt=2 * so_far.steps, more=_GO_ON),
            RequestSpec(2 * number + 1, self.long, ANSWERED, salt=2 * so_far.steps + 1, more=_GO_ON),
        )
        return Step(asks, rest=SETTLES, watts=limit, about=f"at {limit} W, round {done + 1}")

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
        tokens = answer_length(SECONDS, known.decode, known.context, tokens)
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
