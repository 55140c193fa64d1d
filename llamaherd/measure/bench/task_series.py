"""Measure a server of embeddings or rerank: one input, its longest input, and many inputs in one request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llamaherd.engines.flags.task import Task
from llamaherd.measure.bench.series import FEWEST_RUNS, MOST_RUNS, is_narrow
from llamaherd.measure.client.requests import (
    MOST_CACHE_BUSTERS,
    RequestSpec,
    SeriesProgress,
    Step,
    cache_buster,
    long_text_of,
)
from llamaherd.measure.results.result import Condition, Kind

MANY, PART, LONGEST = 16, 128, 2048
"""Inputs of a request with many, the tokens of each, and the most tokens of the long input."""
SPECIAL = 8
"""Tokens that a tokenizer may add around a text, or around a query and a document."""
QUERY = "Which of these texts is about the weather?"
_LENGTHS = (LONGEST, 1024, 512, 256, 128, 64, 32, 16)
_KINDS: dict[Task, Kind] = {"embeddings": "embeddings", "rerank": "rerank"}


@dataclass(frozen=True)
class TaskSeries:
    """Requests of one input, of the longest input and of many inputs. The cell with the fewest runs is next.

    `texts` are the inputs by their tokens, and `session` makes the beginnings of inputs differ from all others.
    """

    task: Task
    lengths: tuple[int, ...]
    texts: dict[int, str] = field(repr=False)
    seconds: float
    session: str
    name: str = "inputs"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """One for each length of a single input, and one for many inputs."""
        kind, many = _KINDS[self.task], self.lengths[0]
        alone = [Condition(kind=kind, prompt=tokens, cache="cold", sampling="instance") for tokens in self.lengths]
        return (*alone, Condition(kind=kind, prompt=many, concurrency=MANY, cache="cold", sampling="instance"))

    @property
    def rule(self) -> str:
        """The criterion to stop."""
        return (
            f"{FEWEST_RUNS} to {MOST_RUNS} requests of each, until its interval is within a quarter of the margin, or "
            f"{self.seconds:.0f} s are over"
        )

    def next_step(self, so_far: SeriesProgress) -> Step | None:
        """Return a request of the cell with the fewest runs; None if all are measured, or the time is over."""
        if so_far.seconds_left <= 0:
            return None
        opened = {number: len(cell.runs) for number, cell in enumerate(so_far.cells) if not self._done(so_far, number)}
        if not opened:
            return None
        number = min(opened, key=lambda each: opened[each])
        condition = self.conditions[number]
        body = task_body(self.task, self._inputs(condition, so_far.steps))
        return Step((RequestSpec(number, "", 0, more=body),), about=str(condition))

    def share_done(self, so_far: SeriesProgress) -> float:
        """Return the share of the requests or of the time, whichever is larger."""
        done = [
            1.0 if self._done(so_far, number) else min(0.95, len(cell.runs) / MOST_RUNS)
            for number, cell in enumerate(so_far.cells)
        ]
        return min(1.0, max(sum(done) / len(done), 1 - max(0.0, so_far.seconds_left) / self.seconds))

    def warm_up_request(self, number: int) -> RequestSpec:
        """Return a request of the longest input, which begins unlike those that count."""
        text = cache_buster(self.session, MOST_CACHE_BUSTERS - 1 - number) + self.texts[self.lengths[-1]]
        return RequestSpec(None, "", 0, more=task_body(self.task, [text]))

    def _done(self, so_far: SeriesProgress, number: int) -> bool:
        cell = so_far.cells[number]
        return len(cell.runs) >= MOST_RUNS or (len(cell.counted) >= FEWEST_RUNS and is_narrow(cell))

    def _inputs(self, condition: Condition, step: int) -> list[str]:
        text, first = self.texts[condition.prompt or self.lengths[0]], step * MANY
        numbers = range(first, first + condition.concurrency)
        return [cache_buster(self.session, number % MOST_CACHE_BUSTERS) + text for number in numbers]


def task_body(task: Task, inputs: Sequence[str]) -> dict[str, object]:
    """Return the body of a request, without the model's name."""
    return {"query": QUERY, "documents": list(inputs)} if task == "rerank" else {"input": list(inputs)}


def task_series(task: Task, longest: int, seconds: float, session: str, count: Callable[[str], int]) -> TaskSeries:
    """Return the series of a server whose inputs have at most `longest` tokens.

    `count` returns the tokens of a text. The part of a query counts as part of its input.
    """
    room = [each for each in _LENGTHS if each <= longest] or [_LENGTHS[-1]]
    lengths = tuple(dict.fromkeys((min(PART, room[0]), room[0])))
    before = SPECIAL + max(count(cache_buster(session, number)) for number in range(MANY))
    before += count(QUERY) if task == "rerank" else 0
    texts = {tokens: long_text_of(max(1, tokens - before), count) for tokens in lengths}
    return TaskSeries(task, lengths, texts, seconds, session)
