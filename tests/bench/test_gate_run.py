"""A gate from its first question to what is known: what is read and measured, in which order, and what is kept.

The host is played: what its connection would tell. What real hosts do is in tests/box/measuring/test_gate_says.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.measure.trials import gate
from llamaherd.measure.trials import pair as trials_pair
from llamaherd.measure.trials.gate import GateRun, gate_pair
from llamaherd.measure.trials.trial import Trial, UnitRun
from llamaherd.plan import GatePlan
from tests.bench.played_arms import Played
from tests.bench.test_divergence import REAL
from tests.bench.test_gate_quality import plan

BEYOND = REAL.replace("0.006568", "0.106568")


@dataclass
class Host:
    """What is told of a host that plays: `said` is the tool's, `slower` B's."""

    said: UnitRun = field(default_factory=lambda: UnitRun(well=True, says=REAL))
    slower: float = 0.0
    opened: list[str] = field(default_factory=list)
    aside: int = 0

    @contextmanager
    def stand_aside(self) -> Iterator[None]:
        self.aside += 1
        yield


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    told = Host()

    class OnIt(Played):
        """One connection to it."""

        def __init__(self, trial: Trial, _cache_buster: str) -> None:
            super().__init__(1, told.slower)
            self._drained, self._trial = ExitStack(), trial
            told.opened.append("".join(each.name for each in trial.servers))
            assert bool(trial.input.scratch) is trial.replaceable is (told.opened[-1] == "C")
            assert trial.keys == ({} if trial.replaceable else {"A": "a-key", "B": "a-key"})
            assert [each.name for each in trial.stops] == ["chat"]

        def __enter__(self) -> Self:
            self._drained.enter_context(self._trial.drain())
            return self

        def __exit__(self, *_: object) -> None:
            self._drained.close()

        def run_to_end(self, unit: str, _room: int) -> UnitRun:
            assert unit.count("llama-perplexity") == 2
            self.now += 100
            return told.said

    for module in (gate, trials_pair):
        monkeypatch.setattr(module, "TrialHost", OnIt)
    monkeypatch.setenv("CHAT_KEY", "a-key")
    return told


def run(host: Host, folder: Path, *, decode: float | None = 0.03, kv: str = "q8_0", speed: bool = True) -> GateRun:
    """A gate of `kld: 0.02`, for another type of the cache."""
    limits = GatePlan(decode=decode, kld=0.02, seconds=1200)
    pair, says = gate_pair(Connect(host=LOCAL), plan(), plan(kv=kv), "chat"), list[str]()
    return GateRun(pair, limits, folder, "a test", says.append, host.stand_aside, speed)


def test_what_it_says_comes_first_and_then_how_fast(host: Host, tmp_path: Path) -> None:
    found = run(host, tmp_path).measure()
    assert host.opened == ["C", "AB"]
    assert host.aside == 2
    assert found.lets_in
    assert found.quality
    assert found.quality.verdict == "held"
    assert [line.rpartition(": ")[2] for line in found.lines] == ["held"] * 3


def test_what_says_other_things_is_not_measured(host: Host, tmp_path: Path) -> None:
    host.said = UnitRun(well=True, says=BEYOND)
    found = run(host, tmp_path).measure()
    assert host.opened == ["C"]
    assert (found.lets_in, found.rows) == (False, ())
    assert "mean KLD 0.10657 ± 0.00014" in found.lines[0]


def test_what_is_slower_is_kept_out_though_it_says_the_same(host: Host, tmp_path: Path) -> None:
    host.slower = 0.1
    found = run(host, tmp_path).measure()
    assert found.slower
    assert not found.lets_in


@pytest.mark.parametrize("case", ["no limit of speed", "its key changes as well"])
def test_without_speed_nothing_is_measured(host: Host, tmp_path: Path, case: str) -> None:
    alone = run(host, tmp_path, decode=None) if case == "no limit of speed" else run(host, tmp_path, speed=False)
    assert alone.measure().lets_in
    assert host.opened == ["C"]


def test_where_nothing_can_be_said_otherwise_nothing_is_read(host: Host, tmp_path: Path) -> None:
    found = run(host, tmp_path, kv="f16").measure()
    assert host.opened == ["AB"]
    assert found.quality is None


def test_the_same_two_are_read_once(host: Host, tmp_path: Path) -> None:
    first = run(host, tmp_path, decode=None).measure()
    again = run(host, tmp_path, decode=None).measure()
    assert host.opened == ["C"]
    assert first.quality
    assert again.quality
    assert again.quality.found.quality == first.quality.found.quality
    run(host, tmp_path, decode=None, kv="q4_0").measure()
    assert host.opened == ["C", "C"]


def test_what_could_not_be_read_is_read_again(host: Host, tmp_path: Path) -> None:
    host.said = UnitRun(well=False, says="it took too long; ")
    found = run(host, tmp_path).measure()
    assert (found.lets_in, found.lines) == (
        False,
        ("it cannot be judged, where a mean KLD of 0.02 is the most: it took too long: not judged",),
    )
    host.said = UnitRun(well=True, says=REAL)
    assert run(host, tmp_path).measure().lets_in
