"""Depths in one prefill and several requests at once, of a real llama.cpp, as a user asks `herd bench` for them."""

from __future__ import annotations

import pytest

from llamaherd.measure.bench.workloads import Ladder, total_speed
from llamaherd.measure.results.result import Condition, Result
from llamaherd.measure.results.store import read_result, result_files
from tests.box.bench import Bench

LADDER = Ladder((512, 1024, 2048))
# Other tests use the same two processors: what is in the way of a good figure is none of these tests' business.
HOWEVER = ("--time", "20s", "--anyway", "--depth", "512,1k,2k,32k", "--concurrency", "2")


@pytest.fixture(scope="module")
def measured(converged: Bench) -> tuple[Result, str]:
    """What `herd bench` has measured, and said."""
    ended = converged.herd("bench", "box/chat", *HOWEVER)
    assert ended.code == 0, ended.output
    (path, *_) = result_files(converged.folder / "results", "box", "chat")
    return read_result(path), ended.output


def runs(result: Result, condition: Condition) -> list[int]:
    (cell,) = [cell for cell in result.cells if cell.condition == condition]
    assert {run.excluded for run in cell.runs} == {None}, cell
    return [run.cache_n or 0 for run in cell.runs]


def test_a_ladder_costs_one_prefill(measured: tuple[Result, str]) -> None:
    """Each answer takes from the cache all that was there, but for the last token that was written."""
    result, _ = measured
    cached = [runs(result, condition) for condition in LADDER.conditions]
    assert cached == [
        [0],
        [0, 639, 767],
        [895],
        [895, 1151, 1279],
        [1407],
        [1407, 2175, 2303],
    ]
    read = sum(run.prompt_n or 0 for cell in result.cells if cell.condition in LADDER.conditions for run in cell.runs)
    assert read == 512 + (1024 - 895) + (2048 - 1407)


def test_depths_beyond_the_context_are_left_out(measured: tuple[Result, str]) -> None:
    result, said = measured
    assert "has room for 8,192 tokens: 32,768 deep is left out" in said
    assert max(cell.condition.depth for cell in result.cells) == 2048


def test_limits_of_gpus_that_are_not_there(converged: Bench) -> None:
    ended = converged.herd("bench", "box/chat", "--anyway", "--power", "200W,300W")
    assert ended.code == 2, ended.output
    assert "chat is on no GPU that this host reports\n  help: measure without `--power`" in ended.output


def test_two_at_once(measured: tuple[Result, str]) -> None:
    """This server has one slot: one of two waits. Some answers of this small model are too short to count."""
    result, said = measured
    (cell,) = [cell for cell in result.cells if cell.condition.concurrency == 2]
    found = total_speed(cell.runs, 2)
    assert found, cell
    assert found.tokens_per_second.value > 1
    assert "the server has 1 slot: of 2 requests at once, 1 wait" in said
    assert "2 at once: " in said
