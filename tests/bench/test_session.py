"""Steps that are done, against a server that plays answers: what of them is kept, and what does not count.

The meter is played as well: no host is watched here. tests/box/measuring/test_bench.py has real ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.ssh import RemoteError
from llamaherd.inventory.schema import Connect
from llamaherd.measure.bench.job import Job
from llamaherd.measure.bench.series import Quick
from llamaherd.measure.bench.session import Session, WatchedServer
from llamaherd.measure.client.http_client import Target
from llamaherd.measure.client.requests import Requests, RequestSpec, SeriesProgress, Step, suite
from llamaherd.measure.meter.meter import HostSnapshot, Meter, Watch, host_snapshot
from llamaherd.measure.meter.readings import Counters, Readings
from llamaherd.measure.meter.usage import Clocks
from llamaherd.measure.results.result import Cell, Condition, Result, Start
from llamaherd.measure.results.store import Journal, read_result
from tests.bench.meter_lines import figures, gpu, readings, seen
from tests.bench.played import Part, Played, answer
from tests.bench.test_meter_look import ON_OLD, PLAN

CHAT = "/v1/chat/completions"
PROCESS = {"server": {"pid": 77, "spec": ON_OLD.spec, "started": 5}}


class PlayedMeter:
    """What is heard of a host on which nothing happens; `requests` of somebody else are there in the next look."""

    error = None
    clocks = Clocks(0.0, 0.0)

    def __init__(self) -> None:
        self.readings: Readings = readings(gpu(101), figures(101), seen(102), **PROCESS)
        self.requests, self.snapshots, self.marks, self.lost_at = 0, 0, 0, 0

    def mark(self, name: str) -> None:
        self.marks += 1
        if self.marks == self.lost_at:
            raise RemoteError("the connection to box was lost", "look whether the host is up")
        self.readings.counters.append(Counters(k="count", t=time.monotonic() + 1, mark=name, mj={}, uj={}))

    def snapshot(self) -> HostSnapshot:
        self.snapshots += 1
        found = host_snapshot(readings(gpu(101), figures(101), seen(102, in_flight=self.requests), **PROCESS))
        assert found
        return found


@dataclass
class Told:
    """Who is told."""

    lines: list[str] = field(default_factory=list)

    def report(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, share: float, seconds_left: float, about: str) -> None:
        assert 0 <= share <= 1
        assert seconds_left >= 0
        assert about


@dataclass
class Twice:
    """A series of one cell: two requests, each in a step of its own or both at once."""

    reuse: bool = False
    name: str = "twice"
    rule: str = "two runs"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return (Condition(kind="code", generated=16, cache="warm" if self.reuse else "cold"),)

    def next_step(self, so_far: SeriesProgress) -> Step | None:
        request = RequestSpec(0, "text", 16, salt=so_far.steps, reuse=self.reuse)
        return Step((request,), about="a test") if len(so_far.cells[0].runs) < 2 else None

    def share_done(self, so_far: SeriesProgress) -> float:
        return len(so_far.cells[0].runs) / 2


@dataclass
class Stand:
    """A session with all that it needs."""

    session: Session
    journal: Journal
    meter: PlayedMeter
    told: Told
    server: Played


def timings(**more: Any) -> dict[str, Any]:
    return {"cache_n": 0, "prompt_n": 9, "prompt_ms": 5.0, "predicted_n": 16, "predicted_ms": 15.0} | more


Stands = Callable[..., Stand]


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stands]:
    """Makes them; a script plays the answers."""
    made: list[Stand] = []

    def make(
        series: Quick | Twice,
        script: Callable[[dict[str, Any]], list[Part]] | None = None,
        hold: Callable[[int | None], None] | None = None,
        **more: Any,
    ) -> Stand:
        server = Played(script or (lambda _: answer(16, 0.001, 0.0001, timings=timings(**more)))).__enter__()
        job = Job(Connect(host="127.0.0.1"), PLAN, ON_OLD, tmp_path, 60.0, "a test")
        result = Result(
            llamaherd="0",
            rig="duo",
            instance="chat",
            began="2026-11-23T20:15:00Z",
            starts=(Start(process="77@5"),),
            cells=tuple(Cell(condition=each) for each in series.conditions),
        )
        meter, told = PlayedMeter(), Told()
        watch = Watch(cast(Meter, meter), ())
        journal = Journal.begin(tmp_path / str(len(made)), result)
        requests = Requests(Target(server.url, "a-key"), CHAT, "a-model", "salts")
        until = time.monotonic() + 60
        session = Session(requests, journal, told, until, WatchedServer(job, watch, hold=hold))
        made.append(Stand(session, journal, meter, told, server))
        return made[-1]

    yield make
    for each in made:
        each.journal.close()
        each.server.__exit__(None, None, None)


def runs_on_disk(at: Stand) -> int:
    return sum(len(cell.runs) for cell in read_result(at.journal.path).cells)


def test_each_run_is_in_the_journal_at_once(stand: Stands) -> None:
    kept: list[int] = []

    def script(_: dict[str, Any]) -> list[Part]:
        kept.append(runs_on_disk(at))
        return answer(16, 0.001, 0.0001, timings=timings())

    at = stand(Twice(), script)
    at.session.run([Twice()])
    assert [*kept, runs_on_disk(at)] == [0, 1, 2]


def test_requests_are_as_they_must_be(stand: Stands) -> None:
    at = stand(Twice())
    at.session.run([Twice()])
    (path, headers, first), (_, _, second) = at.server.requests
    assert (path, headers["authorization"]) == (CHAT, "Bearer a-key")
    assert (first["model"], first["max_tokens"], first["cache_prompt"]) == ("a-model", 16, False)
    texts = [body["messages"][0]["content"] for body in (first, second)]
    assert texts[0] != texts[1]
    assert all(text.endswith("text") for text in texts)
    assert "temperature" not in first


@dataclass
class Limited(Twice):
    """The same with GPUs held to 200 W, then to 300 W."""

    def next_step(self, so_far: SeriesProgress) -> Step | None:
        step = super().next_step(so_far)
        return replace(step, watts=200 + 100 * len(so_far.cells[0].runs)) if step else None


def test_gpus_are_held_to_limits_before_each_step_and_let_go(stand: Stands) -> None:
    told = list[int | None]()
    stand(Limited(), hold=told.append).session.run([Twice(), Limited()])
    assert told == []  # both runs are there by now
    stand(Limited(), hold=told.append).session.run([Limited()])
    assert told == [200, 300, None]


def test_a_limit_that_is_not_held_ends_it(stand: Stands) -> None:
    def hold(watts: int | None) -> None:
        if watts == 300:
            raise UserError("GPU GPU-1 is not held to 300 W: Insufficient Permissions", "see there")

    at = stand(Limited(), hold=hold)
    with pytest.raises(UserError, match="not held to 300 W: Insufficient Permissions; the measurements so far are"):
        at.session.run([Limited()])
    assert runs_on_disk(at) == 1


def test_what_was_measured_beside_somebody_else_does_not_count(stand: Stands) -> None:
    at = stand(Twice())
    at.meter.requests = 1
    at.session.run([Twice()])
    assert at.meter.snapshots == 1
    assert {run.excluded for run in at.journal.result.cells[0].runs} == {
        f"meanwhile {ON_OLD.name} serves 1 request of other clients"
    }
    assert at.told.lines == [f"busy: {ON_OLD.name} serves 1 request of other clients"]


def test_warm_without_anything_from_the_cache_does_not_count(stand: Stands) -> None:
    at = stand(Twice(reuse=True))
    at.session.run([Twice(reuse=True)])
    assert {run.excluded for run in at.journal.result.cells[0].runs} == {"nothing of the prompt came from the cache"}
    at = stand(Twice(reuse=True), cache_n=7)
    at.session.run([Twice(reuse=True)])
    assert {run.excluded for run in at.journal.result.cells[0].runs} == {None}


def test_another_start_ends_it(stand: Stands) -> None:
    at = stand(Twice())
    last = at.meter.readings.figures[-1]
    at.meter.readings.figures.append(last.model_copy(update={"server": {}}))
    with pytest.raises(UserError, match="ended, or was restarted, while it was measured; the measurements so far are"):
        at.session.run([Twice()])
    assert not at.journal.result.cells[0].runs


def test_an_answer_that_breaks_off_ends_it_and_what_was_there_stays(stand: Stands) -> None:
    whole = answer(16, 0.001, 0.0001, timings=timings())
    answers = iter([whole, whole[:4]])
    at = stand(Twice(), lambda _: next(answers))
    with pytest.raises(UserError, match="are kept in"):
        at.session.run([Twice()])
    assert runs_on_disk(at) == 1


def test_a_host_that_is_lost_ends_it_and_what_was_there_stays(stand: Stands) -> None:
    at = stand(Twice())
    at.meter.lost_at = 3
    with pytest.raises(UserError, match="was lost; the measurements so far are kept in"):
        at.session.run([Twice()])
    assert runs_on_disk(at) == 1


def test_all_of_the_quick_one(stand: Stands) -> None:
    """Answers are counted by the engine that is played: all of the same speed, so that the fewest are enough."""
    quick = Quick(suite().prompts, "a long text", "seed", 60.0, 16, 256)

    def script(body: dict[str, Any]) -> list[Part]:
        tokens = 20 if body["max_tokens"] == 16 else 8
        cached = {"cache_n": 250, "prompt_n": 1} if body["cache_prompt"] else {"prompt_n": 256}
        told = timings(predicted_n=tokens, predicted_ms=10.0 * tokens, prompt_ms=100.0, **cached)
        return answer(tokens, 0.001, 0.0001, timings=told)

    at = stand(quick, script)
    at.session.run([quick])
    cells = at.journal.result.cells
    assert all(len(cell.counted) >= 3 for cell in cells)
    assert [len(cell.runs) for cell in cells[:5]] == [3] * 5
    assert {run.cache_n for run in cells[6].runs} == {250}
