"""A run from an answer: what the engine counted where it tells, what the client saw where not, and why not to count it.

Pure.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from llamaherd.bench.results.result import Condition, Run

if TYPE_CHECKING:
    from llamaherd.bench.asking.client import Answer

_HALF = 0.5
"""Of the tokens that were asked for: an answer that is shorter is no run of that length."""

_STOPPED: dict[str | None, Literal["end", "length", "word"]] = {
    "stop": "end",
    "eos": "end",
    "length": "length",
    "limit": "length",
    "word": "word",
}


def run_of(answer: Answer, condition: Condition, *, at: float, start: int = 0, block: int | None = None) -> Run:
    """The run that an answer is, under the condition that it was asked for."""
    timings, usage = answer.timings, answer.usage
    engine = timings is not None and timings.predicted_ms is not None and timings.predicted_n is not None
    client_ms = answer.last_token_ms - answer.first_token_ms
    cached = timings.cache_n if timings and timings.cache_n is not None else usage.cached if usage else None
    run = Run(
        at=round(at, 3),
        start=start,
        block=block,
        prompt_n=timings.prompt_n if timings and engine else _new_tokens(answer),
        cache_n=cached,
        prompt_ms=timings.prompt_ms if timings and engine else answer.first_token_ms,
        predicted_n=timings.predicted_n if timings and engine else usage.completion if usage else None,
        predicted_ms=timings.predicted_ms if timings and engine else client_ms or None,
        draft_n=timings.draft_n if timings else None,
        draft_n_accepted=timings.draft_n_accepted if timings else None,
        first_token_ms=answer.first_token_ms,
        total_ms=answer.total_ms,
        pieces_ms=_gaps(answer),
        characters=len(answer.text),
        clock="engine" if engine else "client",
        stopped=_STOPPED.get(answer.finish),
    )
    return run.model_copy(update={"excluded": why_not(run, condition)})


def why_not(run: Run, condition: Condition) -> str | None:
    """Why a run says nothing of its condition; None where it does."""
    if condition.cache == "cold" and run.cache_n:
        return f"{run.cache_n:,} tokens of the prompt came from a cache"
    if run.predicted_n is None:
        return "the server does not tell how many tokens it wrote"
    if ended_early(run, condition):
        return f"it ended after {run.predicted_n:,} of {condition.generated:,} tokens"
    return None


def ended_early(run: Run, condition: Condition) -> bool:
    """Whether an answer is too short for its condition, as the model had no more to say."""
    return (run.predicted_n or 0) < _HALF * (condition.generated or 0)


def _new_tokens(answer: Answer) -> int | None:
    """Tokens of the prompt that had to be read."""
    if answer.usage is None or answer.usage.prompt is None:
        return None
    return max(0, answer.usage.prompt - (answer.usage.cached or 0))


def _gaps(answer: Answer) -> tuple[float, ...]:
    """What passed between pieces: with drafts, several tokens come in one."""
    times = [piece.at for piece in answer.pieces]
    return tuple(round(later - earlier, 2) for earlier, later in pairwise(times))
