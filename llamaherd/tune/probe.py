"""What a candidate is asked: short answers of a few kinds and a prompt, sized so that all of it takes seconds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llamaherd.bench.asking.suite import suite
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


@dataclass(frozen=True)
class Sizes:
    """Tokens of an answer, and of a prompt that is read for its own sake."""

    written: int
    read: int

    @classmethod
    def of(cls, decode: float, prefill: float, context: int) -> Sizes:
        """For a server that is about so fast, whose requests have so much context."""
        written = min(_MOST, max(_FEWEST, round(decode * _WRITING)))
        read = min(_LONGEST, max(_SHORTEST, round(prefill * _READING)))
        return cls(min(written, context // 4), min(read, context // 2))


FIRST = Sizes(_FEWEST, _FIRST)
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

    def asks(self, number: int) -> Iterator[Ask]:
        """The requests of a round: the same ones for each candidate."""
        for cell, kind in enumerate(self.aim.kinds):
            prompts = suite().prompts[kind]
            text = prompts[number % len(prompts)].text
            yield Ask(cell, text, self.sizes.written, salt=1 + number, more={"seed": _SEED + number})
        if self.aim.reads:
            yield Ask(len(self.aim.kinds), self.text, ANSWERED, salt=1 + number, more={"seed": _SEED})

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
    return Figures(decode=decode, prefill=prefill, total=total, accepted=accepted, load=load, runs=len(counted))


def _rate(runs: Sequence[Run], metric: Metric) -> float | None:
    samples = [sample for run in runs if (sample := metric.of(run))]
    return rate(samples) if samples else None
