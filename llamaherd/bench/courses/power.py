"""The same under one power limit after the other: what speed is left, and what a token takes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from llamaherd.bench.asking.suite import Prompt, suite
from llamaherd.bench.courses.energy import length_for
from llamaherd.bench.courses.quick import ANSWERED, PROMPTS, fitted, kept_length
from llamaherd.bench.job import Known
from llamaherd.bench.results.metrics import DECODE, ENERGY, by_start
from llamaherd.bench.results.result import Cell, Condition, Result
from llamaherd.bench.schedule import Ask, SoFar, Step
from llamaherd.bench.statistics.intervals import estimate

ROUNDS, _MOST = 3, 6
SECONDS, SETTLES = 5.0, 1.0
"""Of an answer, about, and before it: a counter of energy moves ten times a second, and a GPU's clock follows soon."""

_KNEE = 0.95
"""Of the fastest: what is still nearly as fast."""

_GO_ON = {"ignore_eos": True}


@dataclass(frozen=True)
class PowerSeries:
    """A long answer and a long prompt under each limit, in rounds: up, down and up again, or the other way round.

    So what drifts meanwhile falls out, and no limit always comes first. `answer` and `read` are seconds of one each.
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
        """Two for each limit: the answer, then the prompt."""
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
        """What people are told before it begins."""
        return (
            f"power limits: {len(self.limits)} from {self.limits[0]} to {self.limits[-1]} W, {ROUNDS} rounds, about "
            f"{max(1, round(self.seconds / 60))} min; what GPUs are held to now comes back whatever ends this"
        )

    @property
    def rule(self) -> str:
        """When it is enough."""
        return f"{ROUNDS} rounds through {len(self.limits)} limits"

    def next_step(self, so_far: SoFar) -> Step | None:
        """The next limit of a round. Those with runs that do not count have more rounds, but not without end."""
        tried = {n: len(cell.runs) for n, cell in enumerate(so_far.cells[::2]) if not _enough(cell)}
        if not tried:
            return None
        done = min(tried.values())
        up = (done + crc32(self.seed.encode())) % 2 == 0
        number = next(each for each in sorted(tried, reverse=not up) if tried[each] == done)
        limit = self.limits[number]
        asks = (
            Ask(2 * number, self.prompt.text, self.tokens, salt=2 * so_far.steps, more=_GO_ON),
            Ask(2 * number + 1, self.long, ANSWERED, salt=2 * so_far.steps + 1, more=_GO_ON),
        )
        return Step(asks, rest=SETTLES, watts=limit, about=f"at {limit} W, round {done + 1}")

    def share_done(self, so_far: SoFar) -> float:
        """By the answers."""
        answers = so_far.cells[::2]
        return sum(min(ROUNDS, len(cell.runs)) for cell in answers) / (ROUNDS * len(answers))


def _enough(cell: Cell) -> bool:
    return len(cell.counted) >= ROUNDS or len(cell.runs) >= _MOST


def power_series(known: Known, limits: Sequence[int]) -> PowerSeries:
    """The series of a server about so fast: as one that was cut off began, else in lengths that take long enough."""
    tokens, read = _lengths(known.before)
    if not (tokens and read):
        tokens, read = _lengths(known.last)
        tokens = length_for(SECONDS, known.decode, known.context, tokens)
        fits = fitted(ROUNDS * SECONDS * 4, known.decode, known.prefill, known.context)[1]
        read = kept_length(read, fits, [each for each in PROMPTS if each <= min(known.context // 2, 2 * fits)])
    one = tokens / (known.decode or tokens / SECONDS) + read / (known.prefill or read)
    prompt = suite().prompts["prose"][0]
    long = known.text_of(read)
    return PowerSeries(prompt, long, tuple(limits), known.seed, tokens, read, ROUNDS * len(limits) * (one + 2))


def _lengths(conditions: Sequence[Condition]) -> tuple[int | None, int | None]:
    """Tokens of the answers and of the long prompt of such a series, where there is one among these."""
    held = [each for each in conditions if each.power_limit_watts]
    tokens = next((each.generated for each in held if each.generated), None)
    return tokens, next((each.prompt for each in held if each.prompt), None)


@dataclass(frozen=True)
class Level:
    """A limit, the speed that is left under it, and tokens for a joule."""

    watts: float
    decode: float
    per_joule: float


def levels(cells: Sequence[Cell]) -> tuple[Level, ...]:
    """Limits of which both is known, from the least on."""
    found = []
    for cell in cells:
        watts = cell.condition.power_limit_watts
        decode = estimate(by_start(cell.counted, DECODE)) if watts and cell.condition.generated else None
        energy = estimate(by_start(cell.counted, ENERGY)) if decode else None
        if watts and decode and energy:
            found.append(Level(watts, decode.value, energy.value))
    return tuple(sorted(found, key=lambda each: each.watts))


def power_lines(result: Result) -> Iterator[str]:
    """What people are told of it: where a token takes least, and the least limit that costs hardly any speed."""
    found = levels(result.cells)
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
