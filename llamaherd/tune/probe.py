"""What a candidate is asked: short answers of a few kinds and a prompt, sized so that all of it takes seconds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean

from llamaherd.bench.asking.suite import suite
from llamaherd.bench.courses.energy import length_for
from llamaherd.bench.courses.power import SECONDS
from llamaherd.bench.courses.quick import ANSWERED
from llamaherd.bench.results.metrics import ACCEPTED, DECODE, PREFILL, Metric
from llamaherd.bench.results.result import Condition, Kind, Run
from llamaherd.bench.schedule import Ask
from llamaherd.bench.statistics.intervals import rate
from llamaherd.tune.aim import Aim, Figures

_WRITING, _READING = 1.0, 10.0
"""Seconds that one answer takes of the server as it is declared, and one prompt at most: how fast it is read depends on
its length, up to what is computed at once."""
_FEWEST, _MOST = 24, 192
_FIRST, _SHORTEST, _LONGEST = 128, 512, 2048
_SEED = 7
_WARM = 12
_LEAST, _ESTIMATES = 0.1, 8
_MOST_PROMPTS = 16
"""That are read one after the other, so that together they take long enough for their energy to be known."""


@dataclass(frozen=True)
class Sizes:
    """Tokens of an answer, and of a prompt that is read for its own sake; and how many such prompts there are.

    `prefill` is how fast what is declared read when they were chosen, 0 where that is not known. With `past_end`,
    answers go on past their ends, as they are longer than what there is to say.
    """

    written: int
    read: int
    prompts: int = 1
    prefill: float = 0.0
    past_end: bool = False

    @classmethod
    def of(cls, decode: float, prefill: float, context: int, *, energy: bool = False) -> Sizes:
        """For a server that is about so fast, whose requests have so much context.

        `energy`: all is long enough for counters of energy, which move ten times a second.
        """
        read = min(_LONGEST, max(_SHORTEST, round(prefill * _READING)), context // 2)
        if energy:
            prompts = min(_MOST_PROMPTS, max(1, ceil(SECONDS * prefill / read)))
            return cls(length_for(SECONDS, decode, context), read, prompts, prefill, past_end=True)
        written = min(_MOST, max(_FEWEST, round(decode * _WRITING)))
        return cls(min(written, context // 4), read, prefill=prefill)


FIRST = Sizes(_FEWEST, _FIRST, past_end=True)
"""Before it is known how fast it is."""


@dataclass(frozen=True)
class Probe:
    """One round of requests. `text` is as long as a prompt is to be, by the server's own tokenizer."""

    aim: Aim
    sizes: Sizes
    text: str

    def conditions(self) -> tuple[Condition, ...]:
        """Of each request, by its number."""
        written = tuple(self._condition(kind) for kind in self.aim.kinds)
        return (*written, Condition(kind="long", prompt=self.sizes.read, cache="cold")) if self.aim.reads else written

    def warm_up(self) -> Ask:
        """What comes before all others, and does not count."""
        return Ask(None, suite().prompts["code"][0].text, _WARM, salt=0, more={"seed": _SEED})

    def asks(self, number: int, salts: int | None = None) -> Iterator[Ask]:
        """The requests of a round: the same ones for each candidate.

        `salts` numbers their beginnings, where one server is asked the same round more than once.
        """
        salts = number if salts is None else salts
        more = {"ignore_eos": True} if self.sizes.past_end else {}
        for cell, kind in enumerate(self.aim.kinds):
            prompts = suite().prompts[kind]
            text = prompts[number % len(prompts)].text
            yield Ask(cell, text, self.sizes.written, salt=1 + salts, more={"seed": _SEED + number, **more})
        if self.aim.reads:
            for turn in range(self.sizes.prompts):
                salt = 1 + salts * self.sizes.prompts + turn
                yield Ask(len(self.aim.kinds), self.text, ANSWERED, salt=salt, more={"seed": _SEED, **more})

    def _condition(self, kind: Kind) -> Condition:
        return Condition(kind=kind, generated=self.sizes.written, cache="cold")


def figures_of(aim: Aim, runs: Sequence[tuple[int, Run]], load: float | None, total: float | None = None) -> Figures:
    """What rounds of requests told: each run with the number of its request."""
    counted = [(cell, run) for cell, run in runs if not run.excluded]
    decode = {}
    for cell, kind in enumerate(aim.kinds):
        if (found := _rate([run for at, run in counted if at == cell], DECODE)) is not None:
            decode[kind] = found
    prefill = _rate([run for at, run in counted if at == len(aim.kinds)], PREFILL) if aim.reads else None
    accepted = _rate([run for _, run in counted], ACCEPTED)
    told = Figures(decode=decode, prefill=prefill, total=total, accepted=accepted, load=load, runs=len(counted))
    return _with_energy(told, aim, counted) if aim.of_energy else told


def _with_energy(figures: Figures, aim: Aim, counted: Sequence[tuple[int, Run]]) -> Figures:
    """With joules of a token, written by kind and read.

    Each answer has a prompt that is read, and each prompt a few tokens that are written: what those took by the last
    estimate is left out of the next one, which soon changes nothing any more.
    """
    answers = {kind: _summed([run for at, run in counted if at == cell]) for cell, kind in enumerate(aim.kinds)}
    prompts = _summed([run for at, run in counted if at == len(aim.kinds)])
    if not prompts.known or not all(each.known for each in answers.values()):
        return figures
    read, written = 0.0, dict.fromkeys(answers, 0.0)
    for _ in range(_ESTIMATES):
        written = {kind: each.of_one(each.written, read * each.read) for kind, each in answers.items()}
        read = prompts.of_one(prompts.read, fmean(written.values()) * prompts.written)
    return figures.model_copy(update={"written": written, "read": read})


@dataclass(frozen=True)
class _Taken:
    """Joules of some runs, None where those of one are not known, and their tokens."""

    joules: float | None
    read: int
    written: int

    @property
    def known(self) -> bool:
        return bool(self.joules and self.read and self.written)

    def of_one(self, tokens: int, others: float) -> float:
        """Joules of one of these tokens, where the others took so many: of all a tenth at least is theirs."""
        whole = self.joules or 0.0
        return max(whole - others, _LEAST * whole) / tokens


def _summed(runs: Sequence[Run]) -> _Taken:
    known = [run.joules for run in runs if run.joules]
    joules = sum(known) if len(known) == len(runs) else None
    return _Taken(joules, sum(run.prompt_n or 0 for run in runs), sum(run.predicted_n or 0 for run in runs))


def _rate(runs: Sequence[Run], metric: Metric) -> float | None:
    samples = [sample for run in runs if (sample := metric.of(run))]
    return rate(samples) if samples else None
