"""What an owner expects, held against results: by whole intervals, and never by what nobody has measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.inventory.schema import Expect
from llamaherd.measure.results.comparison import JudgedFigure, judge_expectations
from llamaherd.measure.results.result import Cell, Condition, GpuTelemetry, Result, Run, Telemetry
from tests.bench.made import result, run

CLOSE, APART = (99.0, 100.0, 101.0), (80.0, 100.0, 120.0)


def decoded(*speeds: float, seconds: float = 0, watts: tuple[float, ...] = (), **more: str | int) -> Cell:
    """A condition in which each answer was written at one of these speeds, while GPUs took so much."""
    gpus = tuple(GpuTelemetry(gpu=number, counted_joules=each * seconds) for number, each in enumerate(watts))
    condition = Condition.model_validate({"kind": "code", "generated": 256, **more})
    telemetry = Telemetry(seconds=seconds, gpus=gpus) if seconds else None
    return Cell(condition=condition, runs=tuple(run(speed) for speed in speeds), telemetry=telemetry)


def read(*speeds: float, prompt: int = 8192, kind: str = "long", **more: str | int) -> Cell:
    """A condition in which prompts were read at these speeds."""
    runs = tuple(Run(prompt_n=prompt, prompt_ms=1000 * prompt / speed) for speed in speeds)
    return Cell(condition=Condition.model_validate({"kind": kind, "prompt": prompt, **more}), runs=runs)


def of(*cells: Cell, **expect: float) -> tuple[JudgedFigure, ...]:
    """What is said of these, for such an expectation."""
    return judge_expectations(result().model_copy(update={"cells": cells}), Expect.model_validate(expect))


def one(*cells: Cell, **expect: float) -> JudgedFigure:
    """The same, of the only figure."""
    (only,) = of(*cells, **expect)
    return only


@pytest.mark.parametrize(
    ("speeds", "expected", "outcome"),
    [
        (CLOSE, 90, "met"),
        (CLOSE, 110, "below"),
        # What was measured once, and is expected since: two percent less is no less.
        ((99.9, 100.0, 100.1), 100, "met"),
        ((99.9, 100.0, 100.1), 101.5, "met"),
        ((99.9, 100.0, 100.1), 103, "below"),
        (CLOSE, 102, "not known yet"),
        (APART, 110, "not known yet"),
        (APART, 90, "not known yet"),
        ((100.0,), 50, "not known yet"),
        ((100.0,), 500, "not known yet"),
        ((), 100, "not measured"),
    ],
)
def test_the_whole_interval_decides(speeds: tuple[float, ...], expected: float, outcome: str) -> None:
    found = one(decoded(*speeds), decode=expected)
    assert (found.figure, found.unit, found.expected, found.outcome) == ("decode", "t/s", expected, outcome)
    assert found.missed == (outcome == "below")


def test_how_much_is_missing_is_told() -> None:
    found = one(decoded(*CLOSE), decode=125)
    assert str(found) == "below by 20.0 %"
    assert found.off == pytest.approx(-0.2, abs=1e-4)
    assert found.value == pytest.approx(100, rel=1e-3)
    assert found.low is not None
    assert found.high is not None
    assert 97 < found.low < 99 < 101 < found.high < 103
    assert found.where == "code, 256 out"


def test_more_are_asked_for_only_where_more_would_tell() -> None:
    assert one(decoded(100.0), decode=50).more == 2
    apart = one(decoded(*APART), decode=90)
    assert apart.more is not None
    assert 3 < apart.more < 30
    assert one(decoded(*APART), decode=100.1 / 0.98).more is None
    assert one(decoded(*CLOSE), decode=90).more is None


def test_as_many_more_as_are_asked_for_tell_it() -> None:
    """Twenty-five runs with the spread of three are what was asked for, more or less."""
    few = one(decoded(*APART), decode=90)
    assert few.more is not None
    many = (APART * 20)[: 3 + few.more + 3]
    assert one(decoded(*many), decode=90).outcome == "met"


def test_it_counts_where_it_writes_fastest() -> None:
    """Drafts make code faster than prose: who expects what code reaches has not been told less by prose."""
    found = one(decoded(50.0, 50.1, 50.2, kind="prose"), decoded(*CLOSE), decode=95)
    assert (found.outcome, found.where) == ("met", "code, 256 out")


def test_two_runs_that_are_far_apart_are_not_what_is_expected_of() -> None:
    wild = decoded(300.0, 1500.0, kind="prose")
    assert one(wild, decoded(*CLOSE), decode=110).outcome == "below"
    assert (one(wild, decode=110).outcome, one(wild, decode=2000).outcome) == ("not known yet", "not known yet")


@pytest.mark.parametrize(
    "other", [{"concurrency": 4}, {"depth": 32768}, {"power_limit_watts": 400}], ids=["at once", "depth", "power"]
)
def test_other_conditions_than_those_of_an_instance_do_not_count(other: dict[str, int]) -> None:
    condition = Condition(kind="code", generated=256).model_copy(update=other)
    cell = decoded(900.0, 901.0, 902.0, seconds=30, watts=(900.0,)).model_copy(update={"condition": condition})
    assert [each.outcome for each in of(cell, decode=95, power=100)] == ["not measured", "not measured"]
    assert one(cell, decoded(*CLOSE), decode=95).value == pytest.approx(100, rel=1e-3)


def test_runs_that_do_not_count_do_not_count_here() -> None:
    cell = decoded(10.0, *CLOSE)
    runs = (cell.runs[0].model_copy(update={"excluded": "ended early"}), *cell.runs[1:])
    assert one(cell.model_copy(update={"runs": runs}), decode=95).outcome == "met"


def test_prefill_is_that_of_long_prompts() -> None:
    short = read(400.0, 401.0, 402.0, prompt=200, kind="code")
    long = read(2000.0, 2001.0, 2002.0)
    warm = read(9000.0, 9001.0, 9002.0, cache="warm")
    found = one(short, long, warm, prefill=2000)
    assert (found.figure, found.outcome, found.where) == ("prefill", "met", "long, 8,192 in")
    assert one(short, long, warm, prefill=2100).outcome == "below"
    assert one(short, prefill=400).outcome == "met"
    assert one(warm, prefill=400).outcome == "not measured"


@pytest.mark.parametrize(
    ("seconds", "watts", "expected", "outcome"),
    [
        (30, (200.0, 150.0), 400, "met"),
        (30, (200.0, 150.0), 350, "met"),
        # As far as sensors can tell.
        (30, (200.0, 150.0), 340, "met"),
        (30, (200.0, 150.0), 330, "above"),
        (3, (200.0, 150.0), 100, "not known yet"),
        (30, (), 100, "not measured"),
        (0, (), 100, "not measured"),
    ],
)
def test_power_is_that_of_all_gpus(seconds: float, watts: tuple[float, ...], expected: float, outcome: str) -> None:
    found = one(decoded(*CLOSE, seconds=seconds, watts=watts), power=expected)
    assert (found.figure, found.unit, found.outcome) == ("power", "W", outcome)
    assert found.missed == (outcome == "above")


def test_power_is_over_all_kinds_of_text() -> None:
    cells = [decoded(*CLOSE, seconds=10, watts=(100.0,)), decoded(*CLOSE, kind="prose", seconds=30, watts=(300.0,))]
    found = one(*cells, power=200)
    assert found.value == pytest.approx(250)
    assert (found.where, str(found)) == ("40 s", "above by 25.0 %")


def test_a_gpu_that_does_not_tell_leaves_power_unmeasured() -> None:
    telemetry = Telemetry(seconds=30, gpus=(GpuTelemetry(gpu=0, counted_joules=900), GpuTelemetry(gpu=1)))
    cell = decoded(*CLOSE).model_copy(update={"telemetry": telemetry})
    assert one(cell, power=20).outcome == "not measured"


def test_nothing_is_said_where_nothing_is_expected() -> None:
    assert judge_expectations(result(run()), None) == ()
    assert of(decoded(*CLOSE)) == ()
    figures = [each.figure for each in of(decoded(*CLOSE), decode=1, prefill=1, power=1)]
    assert figures == ["decode", "prefill", "power"]


@given(st.lists(st.floats(1, 1000), max_size=6), st.floats(1, 1000))
def test_an_expectation_is_missed_only_beyond_the_interval(speeds: list[float], expected: float) -> None:
    found = one(decoded(*speeds), decode=expected)
    if found.outcome == "below":
        assert found.high is not None
        assert found.high < expected
    if found.outcome == "met":
        assert found.low is not None
        assert found.low >= 0.98 * expected * (1 - 1e-9)
    assert (found.value is None) == (not speeds)


def test_a_result_that_was_cut_off_is_judged_by_what_it_has() -> None:
    cut: Result = result(*(run(speed) for speed in CLOSE), ended=None)
    assert judge_expectations(cut, Expect(decode=90))[0].outcome == "met"
