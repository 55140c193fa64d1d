"""Arms of known speed, played by a clock that they alone move on. It is no measurement of anything."""

from __future__ import annotations

import random
from collections.abc import Callable

from llamaherd.measure.client.http_client import Failure, Piece, StreamedResponse, Timings, Usage
from llamaherd.measure.client.requests import RequestSpec, suite
from llamaherd.measure.results.result import Cell, Condition, Method, Result, Start
from llamaherd.measure.trials.trial import VariantName
from tests.bench.made import result

LOAD = 10.0
"""Seconds that a start takes."""


class Played:
    """Arms of known speed, each run of which is off by a little, and each start by a little of its own.

    The whole machine gets slower while it is measured, by a few percent in all, as its case warms up.
    """

    def __init__(
        self,
        seed: int,
        slower: float = 0.0,
        *,
        step: float = 0.0,
        drafts: bool = False,
        start_error: float = 0.004,
        run_error: float = 0.005,
    ) -> None:
        self.lot = random.Random(seed)
        self.now = 0.0
        self.running: VariantName | None = None
        self.starts: list[VariantName] = []
        self.asked: dict[VariantName, list[RequestSpec]] = {"A": [], "B": []}
        self._pace = {"A": 1.0, "B": 1 / (1 - slower) * (1 + step)}
        self._drafts, self._start_error, self._run_error = drafts, start_error, run_error
        self.fails: Callable[[int], Failure | None] = lambda _: None

    def start(self, name: VariantName) -> Start:
        assert self.running is None, "one arm at a time"
        self.running = name
        self.starts.append(name)
        self.now += LOAD
        self._of_start = self.lot.gauss(1.0, self._start_error)
        return Start(process=f"{name}{len(self.starts)}", ready_seconds=LOAD)

    def stop(self) -> None:
        self.running = None

    def count(self, text: str) -> int:
        return len(text) // 4

    def clock(self) -> float:
        return self.now

    def request(self, wanted: RequestSpec) -> StreamedResponse | Failure:
        assert self.running
        self.asked[self.running].append(wanted)
        if failed := self.fails(sum(map(len, self.asked.values()))):
            return failed
        warm = 1 + 0.04 * min(1.0, self.now / 3600)
        noise = self._of_start * self.lot.gauss(1.0, self._run_error)
        pace = self._pace[self.running] * warm * noise
        prompt_ms = 1.0 * self.count(wanted.text) * pace
        accepted = self.lot.randint(60, 90) if self._drafts else 0
        steps = wanted.tokens - 1 - min(accepted, wanted.tokens - 2)
        predicted_ms = 10.0 * steps * pace
        self.now += (prompt_ms + predicted_ms) / 1000
        return answer(wanted.tokens, prompt_ms, predicted_ms, self.count(wanted.text), wanted.tokens - 1 - steps)


def answer(tokens: int, prompt_ms: float, predicted_ms: float, prompt: int, accepted: int) -> StreamedResponse:
    """What the client makes of an answer of llama.cpp."""
    drafted = (accepted + 10) if accepted else None
    timings = Timings(0, prompt, prompt_ms, tokens, predicted_ms, drafted, accepted or None)
    return StreamedResponse(
        connect_ms=0.1,
        first_token_ms=prompt_ms + 1,
        last_token_ms=prompt_ms + predicted_ms,
        total_ms=prompt_ms + predicted_ms + 1,
        pieces=(Piece(prompt_ms + 1, 3), Piece(prompt_ms + predicted_ms, 3)),
        text="played",
        finish="length",
        timings=timings,
        usage=Usage(prompt, 0, tokens),
    )


def begun(arm: VariantName, asked: tuple[Condition, ...], session: str) -> Result:
    cells = tuple(Cell(condition=each) for each in asked)
    method = Method(client="controller", seed=session, series=session, arm="A" if arm == "A" else "B", rule="played")
    second = {"A": "01", "B": "00"}[arm]
    return result(began=f"2026-11-23T20:15:{second}Z", cells=cells, method=method, suite=suite().ref)
