"""Energy of a token beyond rest: a long rest, and answers that are long enough for counters and gauges. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llamaherd.bench.asking.suite import Prompt
from llamaherd.bench.job import Known
from llamaherd.bench.results.result import Condition, Result
from llamaherd.bench.schedule import Ask, SoFar, Step
from llamaherd.bench.statistics.intervals import Estimate, Sample, estimate

REST, LEAST = 12.0, 10.0
"""Seconds without a request, and of an answer: a gauge that looks at a quarter of the time needs as many."""

_LENGTHS = (96, 192, 384, 768, 1536, 3072, 6144, 12288, 24576)
"""Of answers: none that anything else is measured with."""
_TIMES, _SPARE, _TOO_LONG = 3, 1.2, 3.0


@dataclass(frozen=True)
class Energy:
    """Three long answers, which marks of an end do not end: what they say is no matter here."""

    prompt: Prompt
    tokens: int
    name: str = "energy"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """One."""
        return (Condition(kind=self.prompt.kind, generated=self.tokens, cache="cold", sampling="instance"),)

    @property
    def rule(self) -> str:
        """When it is enough."""
        return f"{_TIMES} answers of {self.tokens:,} tokens, of {LEAST:.0f} s or more"

    def next_step(self, so_far: SoFar) -> Step | None:
        """One more."""
        done = len(so_far.cells[0].runs)
        ask = Ask(0, self.prompt.text, self.tokens, salt=so_far.steps, more={"ignore_eos": True})
        return Step((ask,), about=f"energy of {self.tokens:,} tokens") if done < _TIMES else None

    def share_done(self, so_far: SoFar) -> float:
        """By the answers."""
        return min(1.0, len(so_far.cells[0].runs) / _TIMES)


def long_enough(prompt: Prompt, known: Known) -> Energy | None:
    """Answers as one that was cut off began, or that take long enough; None where no context has room for them."""
    tokens = _last(prompt, known.before) or length_for(LEAST, known.decode, last=_last(prompt, known.last))
    return Energy(prompt, tokens) if tokens <= known.context // 2 else None


def _last(prompt: Prompt, conditions: Sequence[Condition]) -> int | None:
    """Tokens of such an answer among these."""
    energies = (Energy(prompt, each.generated).conditions[0] for each in conditions if each.generated in _LENGTHS)
    return next((each.generated for each in energies if each in conditions), None)


def length_for(seconds: float, decode: float | None, context: int | None = None, last: int | None = None) -> int:
    """Tokens of an answer that takes so long at about this speed; where a context is named, half of it at most.

    That of the `last` measurement is kept where it takes so long, and not several times as long: other lengths are not
    compared with each other.
    """
    fits = [each for each in _LENGTHS if context is None or each <= context // 2] or [_LENGTHS[0]]
    least = seconds * (decode or 0.0)
    if last in fits and (decode is None or least <= last <= _TOO_LONG * least):
        return last
    return next((each for each in fits if each >= _SPARE * least), fits[-1])


@dataclass(frozen=True)
class Cost:
    """Joules a token: all, and beyond what its GPUs take at rest; with the watts at rest."""

    whole: Estimate
    net: Estimate
    rest: float


def cost(result: Result) -> Cost | None:
    """Of all runs that are long enough; None where there are none, or nobody knows what is taken at rest."""
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
    return Cost(whole, net, rest) if whole and net else None


def cost_lines(result: Result) -> Iterator[str]:
    """What people are told of it."""
    if found := cost(result):
        yield (
            f"{_shown(found.whole)} J a token, {_shown(found.net)} of them beyond the {found.rest:.0f} W at rest; "
            f"of {found.whole.n} answers of {LEAST:.0f} s or more"
        )


def _shown(found: Estimate) -> str:
    error = f" ({found.low:.3g} to {found.high:.3g})" if found.low and found.high else f" ({found.counted})"
    return f"{found.value:.3g}{error}"
