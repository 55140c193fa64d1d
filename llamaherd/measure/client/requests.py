"""Define the requests of a series, send them, and turn each answer into a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, Protocol

from llamaherd.measure.client.http_client import Answer, Failure, Patience, Target, stream_answer
from llamaherd.measure.client.suite import cache_buster
from llamaherd.measure.results.result import Cell, Condition, Run


@dataclass(frozen=True)
class RequestSpec:
    """One request, and the cell of its series that its run belongs to; None: it is asked, and not kept.

    `salt` numbers the beginning that goes before its text: the same number is the same beginning, within a measurement.
    None: there is none. With `reuse`, what the server has in its cache is taken. `more` goes into the request's body.
    """

    cell: int | None
    text: str
    tokens: int
    salt: int | None = None
    reuse: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """Requests that belong to each other: one after another, or all `at_once`. `rest` are seconds without any before.

    `watts` is what each GPU is held to meanwhile; None: what it is held to anyway. `about` is what people are told that
    is being done.
    """

    asks: tuple[RequestSpec, ...]
    at_once: bool = False
    rest: float = 0.0
    block: int | None = None
    watts: int | None = None
    about: str = ""


@dataclass(frozen=True)
class SeriesProgress:
    """What there is of a series: its cells with their runs, in its own order, and how much time it has left.

    `steps` counts those since this program began: numbers of salts come from it, as each program has its own salts.
    """

    cells: tuple[Cell, ...]
    seconds_left: float
    steps: int


class Series(Protocol):
    """Measurements that belong together. The conductor asks for a step, does it, and asks again."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Its cells: an ask names them by their place here."""
        ...

    @property
    def rule(self) -> str:
        """When it is enough, said beforehand."""
        ...

    def next_step(self, so_far: SeriesProgress) -> Step | None:
        """What is to be done next; None when it is enough."""
        ...

    def share_done(self, so_far: SeriesProgress) -> float:
        """How much of it is done, from 0 to 1, as far as can be known."""
        ...


def chat_body(model: str, ask: RequestSpec, session: str) -> dict[str, Any]:
    """A chat of one message. `cache_prompt` is what llama.cpp and ik_llama.cpp go by; others do not know it."""
    before = "" if ask.salt is None else cache_buster(session, ask.salt)
    return {
        "model": model,
        "messages": [{"role": "user", "content": before + ask.text}],
        "max_tokens": ask.tokens,
        "stream_options": {"include_usage": True},
        "cache_prompt": ask.reuse,
        **ask.more,
    }


_GRACE, _LEAST, _SILENCE = 60.0, 300.0, 60.0
"""Seconds: beyond the time that is left, at least, and between two pieces."""


@dataclass(frozen=True)
class Requests:
    """A server, where it takes chats, the name of its model, and what the beginnings of this program go by."""

    target: Target
    path: str
    model: str
    salts: str

    def send(self, wanted: RequestSpec, seconds_left: float) -> Answer | Failure:
        """One request and its answer."""
        most = max(_LEAST, seconds_left + _GRACE)
        return stream_answer(
            self.target,
            self.path,
            chat_body(self.model, wanted, self.salts),
            Patience(first=most, silence=_SILENCE, total=most),
        )


_HALF = 0.5
"""Of the tokens that were asked for: an answer that is shorter is no run of that length."""

_STOPPED: dict[str | None, Literal["end", "length", "word"]] = {
    "stop": "end",
    "eos": "end",
    "length": "length",
    "limit": "length",
    "word": "word",
}


def run_from_answer(
    answer: Answer, condition: Condition, *, at: float, start: int = 0, block: int | None = None
) -> Run:
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
    return run.model_copy(update={"excluded": exclusion_reason(run, condition)})


def exclusion_reason(run: Run, condition: Condition) -> str | None:
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
