"""A host that plays a rig which is a law alone: how long a candidate takes to load, read and write is in the script.

What is played is no measurement of anything: it says how search, journal and end go together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import log2
from pathlib import Path

from benchmarks.tune import parzen_of, start_of
from benchmarks.tune_law import DRAFTED, UBATCH, LawRig
from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.job import PowerRange
from llamaherd.measure.bench.workloads import DEPTH_TIMES, DEPTH_TOKENS
from llamaherd.measure.client.http_client import Failure, StreamedResponse
from llamaherd.measure.client.requests import RequestSpec
from llamaherd.measure.results.result import GpuTelemetry, Run, Start, Telemetry
from llamaherd.measure.trials.divergence import Figure, Quality
from llamaherd.measure.trials.trial import NotStartedError, Variant, VariantName
from llamaherd.measure.tune.candidate import (
    KV,
    Candidate,
    Cost,
    Judged,
    Limits,
    Objective,
    Outcome,
    Outcomes,
    Precision,
    Purpose,
)
from llamaherd.measure.tune.evaluation import Evaluation
from llamaherd.measure.tune.journal import Found, Head, SearchJournal, keys_of, same_search
from llamaherd.measure.tune.search import Model, Space, Walk
from llamaherd.measure.tune.tuning import Tuning
from tests.bench.played_arms import answer
from tests.support.rigs import box

LOAD = 4.0
"""Seconds that a start takes."""
JUDGING = 40.0
"""Seconds that it takes to judge a cache."""
NOW = 350
"""Watts that its GPU is held to."""
BEGAN = "2026-11-24T15:00:00Z"


@dataclass
class Played:
    """Candidates of a rig. `fails` may have a start end with words, or an answer be none; `before` is called first.

    `costs` is the mean divergence of types of the cache; one that is not in it cannot be judged.
    Where it `tells`, its GPUs have a counter of energy, which goes by `watts`.
    `at_depth` is the share of its decode that is left at the full depth; 0 where it gives no answer there.
    `shares` are those of its speed that are left under power limits, of which it takes all that it may.
    """

    rig: LawRig
    seed: int = 0
    fails: Callable[[Candidate], str | None] = lambda _: None
    before: Callable[[], None] = lambda: None
    drafts: bool = True
    costs: Mapping[str, float] = field(default_factory=dict)
    before_judging: Callable[[str], None] = lambda _: None
    now: float = 0.0
    at_depth: Callable[[Candidate], float] = lambda _: 1.0
    deep: list[tuple[Candidate, int]] = field(default_factory=list)
    shares: Mapping[int, float] = field(default_factory=dict)
    held_to: int = NOW
    holds: list[int | None] = field(default_factory=list)
    joules: float = 0.0
    tells: bool = True
    placed: Candidate | None = None
    running: bool = False
    started: list[Candidate] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lot = random.Random(self.seed)

    def variant(self, candidate: Candidate, _load: int | None) -> Variant:
        """The candidate as it is planned: what stands in it is nobody's, as the law goes by the keys."""
        self.placed = candidate
        return Variant("C", "box/chat", box().instances[0])

    def place(self, _variant: Variant) -> None:
        assert not self.running, "one at a time"

    def start(self, _name: VariantName) -> Start:
        assert not self.running
        assert self.placed is not None
        self.before()
        self.running = True
        self.now += LOAD
        self.started.append(self.placed)
        if not self.rig.fits(self.placed):
            raise NotStartedError("box/chat", "ggml_backend_cuda: cudaMalloc failed: out of memory")
        if says := self.fails(self.placed):
            raise NotStartedError("box/chat", says)
        return Start(process=f"p{len(self.started)}", ready_seconds=LOAD)

    def stop(self) -> None:
        self.running = False

    def judge(self, candidate: Candidate, precision: Precision, seconds: float) -> Judged:
        kv = precision.kv
        assert not self.running
        assert candidate[KV] == kv
        assert seconds >= JUDGING
        self.before()
        self.before_judging(kv)
        self.now += JUDGING
        self.judged.append(kv)
        if kv not in self.costs:
            return Judged(kv=kv, says="it took too long", seconds=JUDGING)
        kld = Figure(value=self.costs[kv], error=0.0001)
        quality = Quality(kld=kld, same_top=Figure(value=99.5, error=0.1))
        return Judged(kv=kv, context=8192, chunks=2, quality=quality, seconds=JUDGING)

    def climb(self, depth: int) -> list[Run]:
        assert self.running
        assert self.placed is not None
        self.before()
        self.deep.append((self.placed, depth))
        share = self.at_depth(self.placed)
        if not share:
            raise UserError("at a depth of 65,000 tokens: it went away", "see its log")
        read = depth / self.rig.prefill(self.placed)
        written = [
            DEPTH_TOKENS / self.rig.decode(self.placed) / share * (1 + self._lot.gauss(0, 0.003))
            for _ in range(DEPTH_TIMES)
        ]
        self.now += read + sum(written)
        runs = [Run(predicted_n=DEPTH_TOKENS + 1, predicted_ms=1000 * each) for each in written]
        return [Run(prompt_n=depth, prompt_ms=1000 * read), *runs]

    def count(self, text: str) -> int:
        return len(text) // 4

    def clock(self) -> float:
        return self.now

    def request(self, wanted: RequestSpec) -> StreamedResponse | Failure:
        assert self.running
        assert self.placed is not None
        self.before()
        noise = 1 + self._lot.gauss(0, self.rig.noise)
        read = self.count(wanted.text)
        share = self.shares.get(self.held_to, 1.0)
        prompt_ms = 1000 * read / self.rig.prefill(self.placed) / share * noise
        predicted_ms = 1000 * (wanted.tokens - 1) / self.rig.decode(self.placed) / share * noise
        accepted = (wanted.tokens - 1) // 2 if self.placed[DRAFTED] and self.drafts else 0
        seconds = (prompt_ms + predicted_ms) / 1000
        self.now += seconds
        self.joules += (self.held_to if self.shares else watts(self.placed)) * seconds
        return answer(wanted.tokens, prompt_ms, predicted_ms, read, accepted)

    @contextmanager
    def gauge(self, _variant: Variant) -> Iterator[Played]:
        """What is watched while a candidate runs."""
        assert self.running
        self._mark = self.joules
        yield self

    @contextmanager
    def limited(self, variant: Variant, seconds: float) -> Iterator[tuple[Played, Played]]:
        """It is watched, and can be held to power limits; what it was held to is back afterwards."""
        assert seconds > 0
        try:
            with self.gauge(variant) as gauge:
                yield gauge, self
        finally:
            self.held_to = NOW

    @property
    def ranges(self) -> tuple[PowerRange, ...]:
        return (PowerRange("GPU-0", NOW, 100, 400),)

    def hold(self, watts: int | None) -> None:
        assert self.running
        self.before()
        self.holds.append(watts)
        self.held_to = NOW if watts is None else watts

    def rest(self, seconds: float) -> Telemetry | None:
        self.now += seconds
        return None

    def begin(self) -> float:
        self._mark = self.joules
        return self.now

    def end(self, begin: float) -> Telemetry | None:
        took = self.joules - self._mark if self.tells else None
        return Telemetry(seconds=self.now - begin, gpus=(GpuTelemetry(gpu=0, counted_joules=took),))


def watts(candidate: Candidate) -> float:
    """Of all GPUs while a candidate serves: large batches draw more, by nothing but this law."""
    return 100.0 + 80.0 * log2(int(str(candidate[UBATCH] or 512)) / 64)


class Told:
    """What was told, in words."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def began(self, number: int, seconds_left: float) -> None:
        self.lines.append(f"began {number} {seconds_left:.0f}")

    def ended(self, candidate: Candidate, outcome: Outcome, best: float | None, cost: Cost | None) -> None:
        self.lines.append(f"ended {candidate} {outcome.score} {best} {cost}")

    def judging(self, precision: Precision) -> None:
        self.lines.append(f"judging {precision.kv}")

    def confirming(self, count: int, number: int) -> None:
        self.lines.append(f"confirming {count} {number}")

    def limiting(self, watts: int, number: int) -> None:
        self.lines.append(f"limiting {watts} {number}")

    def deepening(self, candidate: Candidate, depth: int) -> None:
        self.lines.append(f"deepening {candidate} {depth}")


def head_of(rig: LawRig, purpose: Purpose = "turn", identity: str = "0" * 16, limits: Limits | None = None) -> Head:
    """What such a search begins with."""
    return Head(
        llamaherd="0",
        rig="box",
        instance="chat",
        began=BEGAN,
        identity=identity,
        aim=Objective(purpose=purpose, streams=2),
        declared=keys_of(start_of(rig)),
        quality=limits,
    )


def pass_alone(_space: Space, _trials: Outcomes) -> Walk:
    """A model that proposes nothing: the search ends with the first pass."""
    yield from ()


def search_on(
    folder: Path,
    servers: Played,
    budget: float = 600,
    purpose: Purpose = "turn",
    model: Model | None = None,
    hints: Sequence[Candidate] = (),
    limits: Limits | None = None,
    *,
    context: int = 65_536,
    climbs: bool = False,
    watts: Sequence[int] = (),
    finest: str = "",
) -> tuple[Found, Tuning]:
    """A search, gone on with where it was begun; with `limits`, coarser types of the cache are judged.

    `watts` are power limits that are tried in the end. `climbs`: the end is measured at the full depth, too.
    """
    head = head_of(servers.rig, purpose, limits=limits).model_copy(
        update={"gpus": ("big",), "watts": tuple(watts), "finest": finest}
    )
    path = same_search(folder, head)
    journal = SearchJournal.resume(path) if path else SearchJournal.begin(folder, head)

    def drafts(candidate: Candidate) -> bool:
        return candidate[DRAFTED] is not None

    gauge = servers.gauge if head.aim.of_energy else None
    evaluation = Evaluation(servers, servers.variant, head.aim, context, drafts, gauge=gauge)
    evaluation.climb = servers.climb if climbs else None
    with journal:
        told = Told()
        tuning = Tuning(
            evaluation,
            journal,
            servers.rig.space(),
            start_of(servers.rig),
            budget,
            told,
            lambda: BEGAN,
            model or parzen_of(0),
            hints,
            servers.judge if limits else None,
            servers.limited if watts else None,
        )
        return tuning.run(), tuning
