"""Courses of a session: each run is kept at once, whatever ends them, and none while somebody else is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.ssh import RemoteError
from llamaherd.measure.bench.job import WorkloadContext, seconds_left
from llamaherd.measure.client.http_client import Target
from llamaherd.measure.client.requests import Served
from llamaherd.measure.meter.meter import HostSnapshot
from llamaherd.measure.results.result import Run
from llamaherd.measure.results.store import read_result
from tests.bench.test_session import CHAT, Stand, Stands, Twice, runs_on_disk, stand

__all__ = ["stand"]

SERVED = Served(Target("http://127.0.0.1:9"), Target("http://127.0.0.1:9"), CHAT, "a-model")


@dataclass
class Walk(Twice):
    """Three runs, and then perhaps no more of this server. `kept` is what was on the disk before each."""

    at: Stand | None = None
    ends: bool = False
    one_by_one: bool = True

    def runs(self, road: WorkloadContext) -> Iterator[tuple[int, Run]]:
        assert road.served is SERVED
        assert road.session == "salts"
        for number in range(3):
            assert self.at is None or runs_on_disk(self.at) == number
            yield 0, Run(at=round(road.clock(), 3), predicted_n=16, predicted_ms=15.0)
        if self.ends:
            raise UserError("the connection was cut", "see the log")


def test_each_run_is_kept_at_once(stand: Stands) -> None:
    at = stand(Walk())
    at.session.run_workload(Walk(at=at), SERVED)
    (cell,) = read_result(at.journal.path).cells
    assert [(run.start, run.excluded) for run in cell.runs] == [(0, None)] * 3
    assert at.meter.snapshots == 1


def test_where_it_ends_what_there_is_stays(stand: Stands) -> None:
    at = stand(Walk())
    with pytest.raises(UserError, match="the connection was cut; the measurements so far are kept in ") as error:
        at.session.run_workload(Walk(ends=True), SERVED)
    assert error.value.help == "see the log"
    assert runs_on_disk(at) == 3


def test_a_host_that_is_lost_ends_it(stand: Stands, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> HostSnapshot:
        raise RemoteError("the connection to the host is gone", "see the host")

    at = stand(Walk())
    monkeypatch.setattr(at.meter, "snapshot", lost)
    with pytest.raises(UserError, match="the connection to the host is gone; the measurements so far are kept in "):
        at.session.run_workload(Walk(), SERVED)
    assert runs_on_disk(at) == 3


def test_nothing_counts_while_somebody_else_is_there(stand: Stands) -> None:
    at = stand(Walk())
    at.meter.requests = 1
    at.session.run_workload(Walk(), SERVED)
    (cell,) = at.journal.result.cells
    assert len(cell.runs) == 3
    assert not cell.counted


def test_it_is_looked_who_is_there_where_nothing_is_asked(stand: Stands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several requests at once some are always ours: then it is looked in the end alone."""
    monkeypatch.setattr("llamaherd.measure.bench.session._LOOK_EVERY", 0.0)
    for one_by_one, snapshots in ((True, 4), (False, 1)):
        at = stand(Walk())
        at.session.run_workload(Walk(one_by_one=one_by_one), SERVED)
        assert at.meter.snapshots == snapshots


def test_about_how_long_it_takes() -> None:
    assert seconds_left(0.25, 10) == pytest.approx(30)
    assert (seconds_left(0, 10), seconds_left(1, 10)) == (0, 0)
