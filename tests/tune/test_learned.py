"""What others learn from a search that has come to its end: who is told of it, and what."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from llamaherd.inventory.schema import Instance
from llamaherd.measure.tune.candidate import with_keys
from llamaherd.measure.tune.journal import Fingerprint, candidate_of, searches
from llamaherd.measure.tune.result import (
    MOST,
    PriorResult,
    prior_result_json,
    prior_result_lines,
    prior_results,
    results_of_machine,
    results_of_model,
    search_result,
)
from tests.support.examples import fleet
from tests.tune.kept import GIB, MODEL, keep, like

CARD = ("RTX 3090", 24)
HEADER = "a" * 16


def for_model(
    results: Path,
    engine: str = "llama.cpp",
    header: str = HEADER,
    gpus: tuple[int, ...] = (24,),
    context: int = 32_768,
    parallel: int = 1,
) -> list[PriorResult]:
    return results_of_model(prior_results(results), engine, header, [size * GIB for size in gpus], context, parallel)


def test_what_was_found_is_told_with_its_figure_and_where_it_is_from(tmp_path: Path) -> None:
    search = keep(tmp_path / "results", like(CARD))
    (found,) = for_model(tmp_path / "results")
    after = search_result(search).after
    assert after
    assert after.ratio
    first, second, *lines = prior_result_lines(found)
    assert first.startswith(search.head.aim.shown(after.score))
    assert f"{100 * (after.ratio.value - 1):+.1f} %" in first
    assert "duo/worker (RTX 3090, 12 cores)" in first
    (file,) = searches(tmp_path / "results", "duo", "worker")
    assert str(file.relative_to(tmp_path)) in second
    assert "2026-11-24" in second
    assert MODEL in second
    assert search.found
    keys = yaml.safe_load("\n".join(lines))
    assert keys["threads"] == search.found.keys["threads"]
    assert prior_result_json(found)["keys"]["threads"] == keys["threads"]


def test_what_is_proposed_can_be_written_under_an_instance(tmp_path: Path) -> None:
    keep(tmp_path / "results", like(CARD))
    (found,) = for_model(tmp_path / "results")
    worker = fleet().rigs["duo"].instances["worker"]
    data = worker.model_dump(exclude_none=True) | yaml.safe_load("\n".join(found.lines))
    assert Instance.model_validate(data) == with_keys(worker, found.standing.candidate)


def test_nothing_is_said_of_what_is_not_alike(tmp_path: Path) -> None:
    results = tmp_path / "results"
    keep(results, like(CARD))
    keep(results, like(), "cpu/worker")
    assert for_model(results)
    assert for_model(results, engine="ik_llama.cpp") == []
    assert for_model(results, header="b" * 16) == []
    assert for_model(results, gpus=(12,)) == for_model(results, gpus=(24, 24)) == for_model(results, gpus=()) == []
    assert for_model(results, context=65_536) == for_model(results, parallel=2) == []


def test_sizes_are_as_they_are_sold(tmp_path: Path) -> None:
    """A driver says 24564 MiB of a 4090, and people 24G."""
    odd = like(("RTX 4090", 24))
    gpus = [{"model": "RTX 4090", "memory_bytes": 24_564 << 20}]
    keep(tmp_path / "results", Fingerprint.model_validate(odd.model_dump() | {"gpus": tuple(gpus)}))
    assert len(for_model(tmp_path / "results")) == 1


def test_of_several_rigs_the_best_one_is_told_for_each_purpose(tmp_path: Path) -> None:
    results = tmp_path / "results"
    keep(results, like(CARD), "duo/worker", 1)
    keep(results, like(CARD, cores=16), "six/worker", 5)
    keep(results, like(CARD), "duo/worker", 1, purpose="decode", began="2026-11-24T16:00:00Z")
    found = for_model(results)
    assert sorted(each.aim.purpose for each in found) == ["decode", "turn"]
    turn = next(each for each in found if each.aim.purpose == "turn")
    every = [each for each in prior_results(results) if each.aim.purpose == "turn"]
    assert len(every) == 2
    assert turn.score == max(each.score for each in every)


def test_a_later_search_of_an_instance_counts_alone(tmp_path: Path) -> None:
    keep(tmp_path / "results", like(CARD), seed=1)
    keep(tmp_path / "results", like(CARD), seed=5, began="2026-11-25T15:00:00Z")
    (found,) = prior_results(tmp_path / "results")
    assert "20261125" in found.file.name


@pytest.mark.parametrize("likeness", [like(CARD), None], ids=["goes on still", "of before"])
def test_nothing_is_learned_from_one_that(tmp_path: Path, likeness: Fingerprint | None) -> None:
    keep(tmp_path / "results", likeness, ended=likeness is None)
    (tmp_path / "results/duo/other").mkdir()
    (tmp_path / "results/duo/other/tune-20260101T000000Z.jsonl").write_bytes(b"no search\n")
    assert prior_results(tmp_path / "results") == []
    assert prior_results(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("gpus", "cores", "told"),
    [
        ([CARD], 12, True),
        ([("RTX 3090 Ti", 24), CARD], 12, True),
        ([("RTX 3090 Ti", 24)], 12, False),
        ([CARD], 8, False),
        ([], 12, False),
    ],
    ids=["the same", "one of two", "another", "fewer cores", "none"],
)
def test_a_host_is_alike_by_its_gpus_and_cores(
    tmp_path: Path, gpus: list[tuple[str, int]], cores: int, *, told: bool
) -> None:
    keep(tmp_path / "results", like(CARD))
    keep(tmp_path / "results", like(), "cpu/worker")
    seen = [(name, size * GIB) for name, size in gpus]
    assert [each.rig for each in results_of_machine(prior_results(tmp_path / "results"), seen, cores)] == (
        ["duo"] if told else []
    )


def test_two_of_a_kind_need_two(tmp_path: Path) -> None:
    keep(tmp_path / "results", like(CARD, CARD))
    every = prior_results(tmp_path / "results")
    assert results_of_machine(every, [("RTX 3090", 24 * GIB)], 12) == []
    (found,) = results_of_machine(every, [("RTX 3090", 24 * GIB)] * 3, 12)
    assert "(2 RTX 3090, 12 cores)" in next(iter(prior_result_lines(found)))


def test_no_more_are_told_than_anybody_reads(tmp_path: Path) -> None:
    for at in range(6):
        keep(tmp_path / "results", like(CARD, model=f"model-{at}"), f"duo/worker-{at}")
    assert len(results_of_machine(prior_results(tmp_path / "results"), [("RTX 3090", 24 * GIB)], 12)) == MOST


def test_where_nothing_was_better_that_is_said(tmp_path: Path) -> None:
    search = keep(tmp_path / "results", like(CARD))
    (file,) = searches(tmp_path / "results", "duo", "worker")
    declared = candidate_of(search.head.declared)
    *lines, _ = file.read_bytes().splitlines(keepends=True)
    assert search.found
    same = search.found.model_copy(update={"keys": search.head.declared})
    file.write_bytes(b"".join(lines) + same.model_dump_json().encode() + b"\n")
    (each,) = for_model(tmp_path / "results")
    assert (each.declared, each.standing.candidate) == (True, declared)
    assert next(iter(prior_result_lines(each))).endswith(": as declared there")
