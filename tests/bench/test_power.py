"""A series over power limits: its order, what it tells, what a GPU takes, and that limits are let go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isclose

import pytest

from llamaherd.measure.bench.job import PowerRange, ServerProfile
from llamaherd.measure.bench.series import POWER_ROUNDS, PowerSeries, power_levels, power_lines, power_series
from llamaherd.measure.client.requests import SeriesProgress, suite
from llamaherd.measure.results.result import Cell, Run
from tests.bench.made import result

LIMITS = (200, 250, 300)
SERIES = PowerSeries(suite().prompts["prose"][0], "long", LIMITS, "a", 384, 2048)


def run(decode: float, joules: float) -> Run:
    return Run(predicted_n=385, predicted_ms=384_000 / decode, total_ms=5000.0, joules=385 * joules)


def order(series: PowerSeries, excluded: Sequence[int] = ()) -> list[int]:
    """The limits that are asked under, until it is enough; runs of some never count."""
    cells = [Cell(condition=each) for each in series.conditions]
    found: list[int] = []
    while step := series.next_step(SeriesProgress(tuple(cells), 0.0, len(found))):
        assert step.watts
        found.append(step.watts)
        why = "somebody else" if step.watts in excluded else None
        for request in step.requests:
            assert request.cell is not None
            assert cells[request.cell].condition.power_limit_watts == step.watts
            more = (*cells[request.cell].runs, run(100, 1).model_copy(update={"excluded": why}))
            cells[request.cell] = cells[request.cell].model_copy(update={"runs": more})
    assert series.share_done(SeriesProgress(tuple(cells), 0.0, 0)) == 1
    return found


@pytest.mark.parametrize("seed", ["a", "b", "c", "d"])
def test_limits_go_up_and_down(seed: str) -> None:
    """What drifts evenly is in each limit alike: the middle of two rounds is the same for all."""
    found = order(replace(SERIES, seed=seed))
    up, down = list(LIMITS), list(reversed(LIMITS))
    assert [found[n : n + 3] for n in range(0, 9, 3)] in ([up, down, up], [down, up, down])


def test_by_lot_some_begin_with_the_most() -> None:
    assert {order(replace(SERIES, seed=seed))[0] for seed in "abcdefgh"} == {200, 300}


def test_what_does_not_count_is_tried_again_but_not_without_end() -> None:
    found = order(SERIES, excluded=(250,))
    assert [found.count(each) for each in LIMITS] == [POWER_ROUNDS, 2 * POWER_ROUNDS, POWER_ROUNDS]


def test_no_request_begins_as_another() -> None:
    cells = tuple(Cell(condition=each) for each in SERIES.conditions)
    steps = [SERIES.next_step(SeriesProgress(cells, 0.0, number)) for number in range(5)]
    salts = [request.salt for step in steps if step for request in step.requests]
    assert len(set(salts)) == len(salts) == 10


def test_one_that_was_cut_off_is_gone_on_with() -> None:
    known = ServerProfile(60, "a", 8192, 80.0, 1000.0, lambda tokens: "x" * tokens)
    first = power_series(known, LIMITS)
    assert (first.tokens, first.read) == (768, 2048)
    faster = replace(known, decode=300.0, before=first.conditions)
    assert power_series(faster, LIMITS).conditions == first.conditions
    assert power_series(replace(known, decode=300.0), LIMITS).conditions != first.conditions


def test_lengths_are_those_of_the_last_series_where_they_will_do() -> None:
    known = ServerProfile(60, "a", 8192, 80.0, 1000.0, lambda tokens: "x" * tokens)
    last = power_series(known, LIMITS).conditions
    for speed in (140.0, 60.0):
        assert power_series(replace(known, decode=speed, last=last), LIMITS).conditions == last
    faster = power_series(replace(known, decode=300.0, last=last), LIMITS)
    assert (faster.tokens, faster.read) == (3072, 2048)
    slower = power_series(replace(known, prefill=20.0, last=last), LIMITS)
    assert (slower.tokens, slower.read) == (768, 256)


def test_a_small_context_has_room() -> None:
    found = power_series(ServerProfile(60, "a", 1024, 500.0, 9000.0, lambda tokens: "x" * tokens), LIMITS)
    assert found.tokens <= 512
    assert found.read <= 512


def test_it_tells_the_knee() -> None:
    """Decode gets 4 % slower from 300 to 250 W, and 20 % to 200 W."""
    figures = {200: (80.0, 1.6), 250: (96.0, 1.8), 300: (100.0, 2.4)}
    cells = tuple(
        Cell(condition=each, runs=tuple(run(*figures[int(each.power_limit_watts or 0)]) for _ in range(3)))
        for each in SERIES.conditions[::2]
    )
    found = power_levels(cells)
    assert [each.watts for each in found] == [200, 250, 300]
    assert isclose(found[0].decode, 80)
    assert isclose(found[0].per_joule, 1 / 1.6)
    best, knee = power_lines(result(cells=cells))
    assert best == "most tokens a joule at 200 W: 0.625, 80 % of the fastest decode"
    assert knee == ("from 250 W on, decode is at least 95 % of the fastest; 1.33 times the tokens a joule of 300 W")
    assert not list(power_lines(result(cells=cells[:1])))


def test_what_a_gpu_takes() -> None:
    gpu = PowerRange.parse("gpu GPU-3090 280.00 100.00 366.00")
    assert (gpu.now, gpu.least, gpu.most) == (280, 100, 366)
    assert gpu.refuses((100, 366)) is None
    for wrong in ((99, 300), (300, 367)):
        why = gpu.refuses(wrong)
        assert why
        assert "takes power limits from 100 to 366 W" in why.message
    laptop = PowerRange.parse("gpu GPU-5090 -  ").refuses((100,))
    assert laptop
    assert "takes no power limit" in laptop.message
    untold = PowerRange.parse("gpu GPU-1 280  ")
    assert untold.refuses((100, 2000)) is None
