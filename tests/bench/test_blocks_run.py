"""A comparison in blocks, played: two servers whose times are in the script, by a clock that it alone moves on.

What is played is no measurement of anything: it says how the loop, the journals and the verdicts go together.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from llamaherd.bench.arms.blocks import BlockDone, Blocks, Ended
from llamaherd.bench.arms.cells import asks, conditions, long_tokens
from llamaherd.bench.arms.results import Pair
from llamaherd.bench.arms.units import ArmName
from llamaherd.bench.asking.client import Answer, Failure, failure
from llamaherd.bench.asking.stream import Piece, Timings, Usage
from llamaherd.bench.asking.suite import suite
from llamaherd.bench.comparing.compare import Comparison, compare
from llamaherd.bench.results.metrics import DECODE, PREFILL, STEP
from llamaherd.bench.results.result import Cell, Condition, Method, Result, Start
from llamaherd.bench.results.store import read_result, result_files
from llamaherd.bench.schedule import Ask
from llamaherd.diagnostics.findings import UserError
from tests.bench.made import result

CODE = conditions(["code"], 8192)
USUAL = conditions(["code", "prose", "prefill"], 8192)
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
        self.running: ArmName | None = None
        self.starts: list[ArmName] = []
        self.asked: dict[ArmName, list[Ask]] = {"A": [], "B": []}
        self._pace = {"A": 1.0, "B": 1 / (1 - slower) * (1 + step)}
        self._drafts, self._start_error, self._run_error = drafts, start_error, run_error
        self.fails: Callable[[int], Failure | None] = lambda _: None

    def start(self, name: ArmName) -> Start:
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

    def ask(self, wanted: Ask) -> Answer | Failure:
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


def answer(tokens: int, prompt_ms: float, predicted_ms: float, prompt: int, accepted: int) -> Answer:
    """What the client makes of an answer of llama.cpp."""
    drafted = (accepted + 10) if accepted else None
    timings = Timings(0, prompt, prompt_ms, tokens, predicted_ms, drafted, accepted or None)
    return Answer(
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


def begun(arm: ArmName, asked: tuple[Condition, ...], session: str) -> Result:
    cells = tuple(Cell(condition=each) for each in asked)
    method = Method(client="controller", seed=session, series=session, arm="A" if arm == "A" else "B", rule="played")
    second = {"A": "01", "B": "00"}[arm]
    return result(began=f"2026-11-23T20:15:{second}Z", cells=cells, method=method, suite=suite().ref)


def the_next_day(asked: tuple[Condition, ...]) -> tuple[Result, Result]:
    """What the same command begins with a day later."""
    a, b = begun("A", asked, "new"), begun("B", asked, "new")
    at = {"began": "2026-11-24T00:00:01Z"}
    return a.model_copy(update=at), b.model_copy(update=at | {"began": "2026-11-24T00:00:00Z"})


def pair_of(folder: Path, asked: tuple[Condition, ...], session: str = "s") -> Pair:
    return Pair(folder / "results", begun("A", asked, session), begun("B", asked, session))


def measured(
    folder: Path, servers: Played, asked: tuple[Condition, ...] = CODE, budget: float = 36_000, session: str = "s"
) -> tuple[Ended, Comparison, list[BlockDone]]:
    pair, told = pair_of(folder, asked, session), list[BlockDone]()
    try:
        ended = Blocks(servers, pair.journals, asked, pair.session, budget, told.append).measured()
        paths = pair.finish("2026-11-23T21:00:00Z")
    finally:
        pair.close()
    return ended, compare(*map(read_result, paths)), told


def verdicts(found: Comparison) -> dict[str, str]:
    return {row.metric.name: row.judgement.verdict for row in found.rows if row.judgement}


@pytest.mark.parametrize("seed", range(20))
def test_five_percent_slower_is_slower_within_eight_blocks(seed: int, tmp_path: Path) -> None:
    ended, found, told = measured(tmp_path, Played(seed, slower=0.05), session=f"s{seed}")
    assert ended == "known"
    assert verdicts(found)["decode"] == "slower"
    assert len(told) <= 8


@pytest.mark.parametrize("seed", range(20))
def test_one_percent_of_a_step_is_told_within_six_starts(seed: int, tmp_path: Path) -> None:
    """The speed itself goes with the text of each answer, by ten percent and more: a step does not."""
    servers = Played(seed, step=0.01, drafts=True, start_error=0.001, run_error=0.001)
    _, _, told = measured(tmp_path, servers, budget=200.0, session=f"s{seed}")
    said = [verdicts(each.so_far).get("step") for each in told]
    assert "slower" in said[:6]
    assert not {"faster", "same"} & set(said)


@pytest.mark.parametrize("seed", range(40))
def test_an_unchanged_server_is_never_slower(seed: int, tmp_path: Path) -> None:
    ended, found, _ = measured(tmp_path, Played(seed), USUAL, session=f"s{seed}")
    assert ended == "known"
    of = [row.judgement.verdict for row in found.rows if row.judgement and row.metric in (DECODE, PREFILL, STEP)]
    assert set(of) == {"same"}


def test_both_are_asked_the_same_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    servers = Played(1)
    _, found, told = measured(tmp_path, servers, USUAL)
    assert servers.asked["A"] == servers.asked["B"]
    texts = [(each.text, each.salt) for each in servers.asked["A"]]
    assert len(set(texts)) == len(texts)
    assert not any(each.reuse for each in servers.asked["A"])
    assert [(each.a.n, each.a.unit) for each in found.rows[:1]] == [(len(told), "start")]


def test_each_comes_first_as_often(tmp_path: Path) -> None:
    """At the margin itself nothing is known for long."""
    servers = Played(3, slower=0.02)
    _, _, told = measured(tmp_path, servers, budget=8 * 30.0)
    assert len(told) >= 4
    assert sorted(each.order for each in told[:4]) == ["AB", "AB", "BA", "BA"]
    assert "".join(servers.starts) == "".join(each.order for each in told)


def test_the_budget_ends_it_before_a_block_that_would_not_fit(tmp_path: Path) -> None:
    servers = Played(5)
    ended, found, told = measured(tmp_path, servers, USUAL, budget=1.0)
    assert (ended, len(told)) == ("spent", 1)
    assert set(verdicts(found).values()) == {"not known yet"}


def test_a_run_that_was_cut_off_goes_on_with_its_blocks(tmp_path: Path) -> None:
    servers = Played(6)
    servers.fails = lambda number: failure("cut", "the connection was cut") if number == 13 else None
    with pytest.raises(UserError, match="the connection was cut"):
        measured(tmp_path, servers)
    assert servers.running is None
    kept = sorted((tmp_path / "results").rglob("*.jsonl"))
    before = {path.name: read_result(path) for path in kept}
    assert len(before) == 2
    ended, found, told = measured(tmp_path, Played(7), session="another")
    assert (ended, verdicts(found)["decode"]) == ("known", "same")
    assert told[0].number == 2
    assert not list((tmp_path / "results").rglob("*.jsonl"))
    after = read_result(next(iter((tmp_path / "results").rglob("*.json"))))
    assert after.method.series == "s"
    assert {run.block for cell in after.cells for run in cell.runs} >= {0, 1, 2}


@pytest.mark.parametrize("session", ["s", "t", "u", "v"])
def test_the_newest_result_is_that_of_what_is_declared(session: str, tmp_path: Path) -> None:
    """Also where only one arm had begun when it was cut off."""
    servers = Played(6)
    servers.fails = lambda number: failure("cut", "the connection was cut") if number == 3 else None
    with pytest.raises(UserError):
        measured(tmp_path, servers, session=session)
    assert len(list((tmp_path / "results").rglob("*.jsonl"))) == 1
    again = Pair(tmp_path / "results", *the_next_day(CODE))
    assert (again.resumed, again.session) == (True, session)
    Blocks(Played(6), again.journals, CODE, again.session, 36_000).measured()
    again.finish("2026-11-23T21:00:00Z")
    again.close()
    newest, older = map(read_result, result_files(tmp_path / "results", "duo", "chat"))
    assert (newest.method.arm, older.method.arm) == ("A", "B")


def test_other_servers_begin_anew(tmp_path: Path) -> None:
    servers = Played(6)
    servers.fails = lambda number: failure("cut", "the connection was cut") if number == 13 else None
    with pytest.raises(UserError):
        measured(tmp_path, servers)
    pair = Pair(tmp_path / "results", *the_next_day(USUAL))
    assert (pair.resumed, pair.session) == (False, "new")
    pair.close()
    assert len(list((tmp_path / "results").rglob("*.jsonl"))) == 2, "those without a run are gone"


def test_an_answer_without_a_token_is_kept_and_does_not_count(tmp_path: Path) -> None:
    servers = Played(8)
    servers.fails = lambda number: failure("empty", "nothing came") if number == 3 else None
    _, found, _ = measured(tmp_path, servers)
    assert [each for each in (*found.notes_a, *found.notes_b) if "nothing came" in each] == [
        "1 run does not count: nothing came"
    ]


def test_what_is_asked_is_by_the_cells_that_were_chosen() -> None:
    assert [str(each) for each in USUAL] == ["code, 128 out", "prose, 128 out", "long, 1,024 in"]
    assert [str(each) for each in conditions(["prefill", "prefill"], 512)] == ["long, 256 in"]
    assert long_tokens(CODE) is None
    assert [each.cell for each in asks(CODE, "", 0)] == [None, 0, 0, 0]
