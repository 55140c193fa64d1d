"""A cache is judged on a host that plays what the tool says: its real words, and every way in which it can end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.ssh import RemoteError
from llamaherd.measure.trials.divergence import Compared, compare_outputs
from llamaherd.measure.trials.trial import UnitRun
from llamaherd.memory.divergence import Reading
from tests.bench.test_divergence import OUTPUTS, REAL

READINGS = (Reading(8192, 2, 512, 4_000), Reading(4096, 2, 512, 2_000), Reading(2048, 4, 512, 2_000))
SHORT = (OUTPUTS / "text-too-short.txt").read_text(encoding="utf-8")


@dataclass
class Plays:
    """What the host says of one unit after the other."""

    says: Sequence[UnitRun | Exception]
    ran: list[tuple[str, int]] = field(default_factory=list)
    running: bool = False
    now: float = 0.0

    def run_to_end(self, unit: str, room: int) -> UnitRun:
        assert not self.running, "one at a time"
        self.running = True
        self.now += 40.0
        self.ran.append((unit, room))
        said = self.says[len(self.ran) - 1]
        if isinstance(said, Exception):
            raise said
        return said

    def stop(self) -> None:
        self.running = False

    def clock(self) -> float:
        return self.now


def unit_of(reading: Reading, seconds: int) -> str:
    return f"{reading.context} {seconds}"


def judged(host: Plays, readings: Iterable[Reading] = READINGS) -> Compared:
    return compare_outputs(host, unit_of, readings, 600.0)


def test_what_it_says_is_kept_with_the_way_it_was_read() -> None:
    host = Plays([UnitRun(well=True, says=REAL)])
    found = judged(host)
    assert found.quality
    assert (found.quality.kld.value, found.quality.kld.error) == (0.006568, 0.00014)
    assert (found.context, found.chunks, found.seconds, found.says) == (8192, 2, 40.0, "")
    assert host.ran == [("8192 300", 4_000 + (1 << 30))]
    assert not host.running


@pytest.mark.parametrize(
    "says",
    [
        "CUDA error: out of memory",
        "the system ended it for lack of RAM; ",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "there is no room in /var/tmp: 5100000000 bytes are needed, 4000000000 are free",
    ],
)
def test_where_there_is_no_room_it_reads_less_at_once(says: str) -> None:
    host = Plays([UnitRun(well=False, says=says), UnitRun(well=True, says=REAL)])
    found = judged(host)
    assert (found.context, found.seconds) == (4096, 80.0)
    assert found.quality
    assert [unit for unit, _ in host.ran] == ["8192 300", "4096 280"]


def test_it_tries_three_ways_and_no_more() -> None:
    host = Plays([UnitRun(well=False, says="out of memory")] * 3)
    found = judged(host, (*READINGS, READINGS[-1]))
    assert (found.quality, found.says, len(host.ran)) == (None, "out of memory", 3)


@pytest.mark.parametrize(
    ("ran", "says"),
    [
        (UnitRun(well=False, says="it took too long; "), "it took too long; "),
        (UnitRun(well=False, says="error: invalid argument: --mla-use"), "error: invalid argument: --mla-use"),
        (UnitRun(well=False, says=""), "it ended without a message"),
        (UnitRun(well=True, says=""), "it prints no mean divergence"),
        (UnitRun(well=True, says=SHORT), "it prints no mean divergence: perplexity: you need at least 1024 tokens"),
        (UnitRun(well=True, says=REAL.replace("0.006568", "nan")), "it prints no mean divergence"),
    ],
    ids=["never", "badly", "silently", "with nothing", "well, and wrong", "no number"],
)
def test_however_it_ends_it_is_no_figure(ran: UnitRun, says: str) -> None:
    host = Plays([ran])
    found = judged(host)
    assert found.quality is None
    assert found.says.startswith(says)
    assert not host.running


def test_where_memory_allows_nothing_no_unit_runs() -> None:
    host = Plays([])
    assert judged(host, ()).says == "in no way is there memory for it"
    assert host.ran == []


def test_what_cannot_be_planned_is_not_run() -> None:
    def refuses(_reading: Reading, _seconds: int) -> str:
        raise UserError("the model is not locked", "run `herd lock`")

    host = Plays([])
    found = compare_outputs(host, refuses, READINGS, 600.0)
    assert (found.quality, found.says) == (None, "the model is not locked")


def test_a_host_that_is_gone_says_nothing_about_the_cache() -> None:
    host = Plays([RemoteError("measuring ended halfway", "run again to resume")])
    with pytest.raises(RemoteError):
        judged(host)
