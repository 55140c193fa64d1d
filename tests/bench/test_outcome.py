"""What a measurement says beside what is expected, and beside the last one."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from llamaherd.inventory.schema import Expect
from llamaherd.measure.results.comparison import UNSEEN_STARTS, compare_results
from llamaherd.measure.results.comparison_table import MeasurementOutcome, measurement_outcome, print_outcome
from llamaherd.measure.results.result import (
    BY_URL,
    Cell,
    Condition,
    GpuTelemetry,
    Peak,
    Result,
    Run,
    SuiteRef,
    Telemetry,
)
from tests.bench.made import result, run

SUITE = SuiteRef(name="llamaherd", sha256="a" * 64)
SPREAD = (0.999, 1.0, 1.001, 1.0005)


def measured(speed: float, *, runs: int = 4, **more: Any) -> Result:
    return result(*(run(speed * each) for each in SPREAD[:runs]), suite=SUITE, ended="2026-11-23T20:18:00Z", **more)


def text(found: MeasurementOutcome) -> str:
    to = Console(file=io.StringIO(), width=200)
    print_outcome(found, to)
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


@pytest.mark.parametrize(("speed", "fine"), [(100.0, True), (95.0, False), (105.0, True), (99.9, True)])
def test_slower_than_before_is_not_fine(speed: float, fine: bool) -> None:
    assert measurement_outcome(measured(speed), None, measured(100.0)).fine == fine


def test_two_runs_make_no_verdict() -> None:
    found = measurement_outcome(measured(50.0, runs=2), None, measured(100.0))
    assert found.fine
    assert "too few runs" in text(found)


def test_two_runs_that_are_far_apart_have_no_interval() -> None:
    said = text(
        measurement_outcome(result(run(600.0), run(1900.0), suite=SUITE, ended="2026-11-23T20:18:00Z"), None, None)
    )
    assert "912.0, n = 2, too few" in said
    assert " to " not in said


def test_starts_that_a_url_cannot_see_are_said_to_be_that() -> None:
    now, before = (measured(speed) for speed in (99.0, 100.0))
    assert "about" in text(measurement_outcome(now, None, before))
    assert UNSEEN_STARTS not in text(measurement_outcome(now, None, before))
    now, before = (each.model_copy(update={"rig": BY_URL}) for each in (now, before))
    assert UNSEEN_STARTS in text(measurement_outcome(now, None, before))
    assert UNSEEN_STARTS not in text(measurement_outcome(now, None, None))
    assert UNSEEN_STARTS in compare_results(before, now).notes


def test_other_lengths_than_before_are_said() -> None:
    """Their speeds have no verdict, and whoever reads it would not know why."""
    now, before = (
        measured(50.0).model_copy(update={"cells": (Cell(condition=each, runs=runs),)})
        for each, runs in (
            (Condition(kind="code", generated=256, cache="cold"), measured(50.0).cells[0].runs),
            (Condition(kind="code", generated=128, cache="cold"), measured(100.0).cells[0].runs),
        )
    )
    found = measurement_outcome(now, None, before)
    assert found.fine
    assert "note: responses of 256 tokens, and the last measurement has 128: their speeds are not compared" in text(
        found
    )
    assert not measurement_outcome(now, None, now).apart


@pytest.mark.parametrize(("expected", "said"), [(90.0, "met"), (120.0, "below by 16.7 %")])
def test_what_is_expected(expected: float, said: str) -> None:
    found = measurement_outcome(measured(100.0), Expect(decode=expected), None)
    assert found.fine == (said == "met")
    assert f"expected: decode {expected:g} t/s: {said}, 100 t/s (code, 256 out)" in text(found)


def test_a_short_answer_to_a_long_prompt_says_nothing_of_decode() -> None:
    cell = Cell(
        condition=Condition(kind="long", prompt=2048, cache="cold"),
        runs=tuple(
            Run(predicted_n=8, predicted_ms=80.0, prompt_n=2060, prompt_ms=500.0 * each, first_token_ms=510.0 * each)
            for each in SPREAD
        ),
    )
    found = measurement_outcome(
        Result(llamaherd="0", rig="a", instance="b", began="2026-11-23T20:15:00Z", cells=(cell,)), None, None
    )
    assert [value.metric.name for value in found.values] == ["prefill", "first token"]


def test_where_nothing_counts_nothing_is_known() -> None:
    found = measurement_outcome(result(run(100.0, excluded="it ended after 27 of 64 tokens")), None, None)
    assert not found.known
    assert "no run counts" in text(found)
    assert measurement_outcome(measured(100.0), None, None).known


def test_what_people_read() -> None:
    gpu = GpuTelemetry(gpu=0, counted_joules=2500.0, watts=250.0, peak_watts=280.0, celsius_most=61.0, sm_mhz=1980.0)
    rest = Telemetry(seconds=2.0, gpus=(GpuTelemetry(gpu=0, watts=70.4),))
    made = measured(
        100.0,
        work=Telemetry(seconds=10.0, gpus=(gpu,), doubts=("GPU 0 was hot",)),
        rest=rest,
        peaks=(Peak(gpu=0, held_bytes=7 << 30, planned_bytes=6 << 30), Peak(held_bytes=1 << 30)),
        unmeasured=("no clocks",),
    )
    cells = tuple(
        cell.model_copy(update={"runs": (*cell.runs, run(50.0, excluded="of other clients"))}) for cell in made.cells
    )
    said = text(measurement_outcome(made.model_copy(update={"cells": cells}), None, None))
    for line in (
        "GPU 0, GPU: 250 W (70 W at rest), 280 W at most; 61 °C at most; 1980 MHz",
        "note: 1 run does not count: of other clients",
        "note: GPU 0 was hot",
        "note: not measured: no clocks",
    ):
        assert line in said
    assert "100.0 (99.9 to 100.1), n = 4" in said
    assert "GPU 0's memory: " in said
