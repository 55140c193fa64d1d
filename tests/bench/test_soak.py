"""A soak, whose drift is known beforehand, and energy beyond rest: by runs as values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from llamaherd.measure.bench.job import ServerProfile, Workload
from llamaherd.measure.bench.selection import QUICK_ONLY, Selection
from llamaherd.measure.bench.series import (
    ENERGY_REST_SECONDS,
    SOAK_TOKENS,
    Energy,
    Soak,
    drift_lines,
    energy_cost,
    energy_lines,
    energy_series,
    quick_series,
    soak_drift,
)
from llamaherd.measure.client.http_client import Target
from llamaherd.measure.client.requests import Series, SeriesProgress, Served, suite
from llamaherd.measure.results.result import Cell, Condition, GpuTelemetry, Run, Telemetry
from tests.bench.made import result

PROMPT = suite().prompts["code"][0]
SOAK = Soak(PROMPT, 900)


def soaked(change: float, runs: int = 60, celsius: float | None = None) -> list[Run]:
    """Runs over 15 minutes that get faster by this share, one by one."""
    rates = [100 * (1 + change) ** (n / (runs - 1)) for n in range(runs)]
    return [
        Run(at=900 * n / (runs - 1), predicted_n=513, predicted_ms=512_000 / rate, total_ms=6000.0, celsius=celsius)
        for n, rate in enumerate(rates)
    ]


def so_far(runs: Sequence[Run], condition: Condition) -> SeriesProgress:
    return SeriesProgress((Cell(condition=condition, runs=tuple(runs)),), -5.0, len(runs))


def test_the_same_is_asked_until_the_time_is_over() -> None:
    (condition,) = SOAK.conditions
    assert str(condition) == "code, 512 out"
    step = SOAK.next_step(so_far([], condition))
    assert step
    assert [(request.text, request.tokens, request.salt) for request in step.requests] == [(PROMPT.text, 512, 0)]
    runs = soaked(0, 149)
    assert SOAK.next_step(so_far(runs, condition))
    assert SOAK.share_done(so_far(runs, condition)) == pytest.approx(149 / 150)
    assert SOAK.next_step(so_far(soaked(0, 150), condition)) is None


@pytest.mark.parametrize("change", [-0.05, -0.01, 0.0, 0.02])
def test_a_drift_is_found(change: float) -> None:
    found = soak_drift(soaked(change))
    assert found
    assert found.change == pytest.approx(change, abs=1e-9)
    assert found.low <= found.change <= found.high
    assert (found.seconds, found.runs, found.warmer) == (900, 60, None)
    # Means of quarters are three quarters apart.
    assert found.ends.value == pytest.approx((1 + change) ** (45 / 59), rel=1e-3)


def test_an_interval_holds_the_drift() -> None:
    lot, held = random.Random(1), 0
    for _ in range(200):
        runs = [
            run.model_copy(update={"predicted_ms": (run.predicted_ms or 0) * (1 + lot.gauss(0, 0.01))})
            for run in soaked(-0.03, 30)
        ]
        found = soak_drift(runs)
        assert found
        held += found.low <= -0.03 <= found.high
    assert 180 <= held <= 199


def test_with_drafts_it_is_of_steps() -> None:
    """The text drafts ever better; the machine is as fast as it was."""
    runs = [
        Run(at=n, predicted_n=513, predicted_ms=(512 - accepted) * 10.0, draft_n=400, draft_n_accepted=accepted)
        for n, accepted in enumerate(range(100, 300, 10))
    ]
    found = soak_drift(runs)
    assert found
    assert found.change == pytest.approx(0, abs=1e-9)


def test_too_little_is_no_drift() -> None:
    assert soak_drift([]) is None
    assert soak_drift(soaked(0.1, 7)) is None
    assert soak_drift([Run(at=0.0, predicted_n=9, predicted_ms=1.0)] * 20) is None
    assert soak_drift([run.model_copy(update={"excluded": "busy"}) for run in soaked(0.1)]) is None


def test_what_people_are_told_of_a_drift() -> None:
    cool, warm = soaked(-0.02, 40, celsius=60.0)[:20], soaked(-0.02, 40, celsius=71.5)[20:]
    cell = Cell(condition=SOAK.conditions[0], runs=(*cool, *warm))
    (line,) = drift_lines(result().model_copy(update={"cells": (cell,)}))
    assert line.startswith("over 15 minutes, 40 runs: speed changes by -2.0 % (-2.0 to -2.0); the last quarter")
    assert line.endswith(", +11.5 °C")
    other = cell.model_copy(update={"condition": Condition(kind="code", generated=SOAK_TOKENS - 1)})
    assert not list(drift_lines(result().model_copy(update={"cells": (other,)})))


@pytest.mark.parametrize(
    ("decode", "context", "tokens"),
    [
        (6.0, 8192, 96),
        (60.0, 8192, 768),
        (250.0, 8192, 3072),
        (250.0, 4096, None),
        (9000.0, 99999, 24576),
        (None, 4096, 96),
    ],
)
def test_answers_are_long_enough(decode: float | None, context: int, tokens: int | None) -> None:
    found = energy_series(PROMPT, known(decode, context))
    assert (found.tokens if found else None) == tokens


def known(decode: float | None, context: int = 8192, **more: tuple[Condition, ...]) -> ServerProfile:
    return ServerProfile(60, "seed", context, decode, 9000.0, lambda tokens: "x" * tokens, **more)


@pytest.mark.parametrize(
    ("decode", "last", "tokens"), [(62.0, 768, 768), (66.0, 768, 768), (80.0, 768, 1536), (55.0, 1536, 1536)]
)
def test_answers_as_long_as_the_last_time_where_they_take_long_enough(decode: float, last: int, tokens: int) -> None:
    conditions = (*Energy(PROMPT, last).conditions, *quick_series(known(decode)).conditions)
    found = energy_series(PROMPT, known(decode, last=conditions))
    assert found
    assert found.tokens == tokens


def test_one_that_was_cut_off_keeps_the_length_of_its_answers() -> None:
    found = energy_series(
        PROMPT, known(80.0, before=Energy(PROMPT, 768).conditions, last=Energy(PROMPT, 3072).conditions)
    )
    assert found
    assert found.tokens == 768


def test_three_long_answers() -> None:
    energy = Energy(PROMPT, 3072)
    (condition,) = energy.conditions
    runs = [Run(predicted_n=3072, joules=1.0)] * 2
    step = energy.next_step(so_far(runs, condition))
    assert step
    assert [(request.tokens, dict(request.more), request.salt) for request in step.requests] == [
        (3072, {"ignore_eos": True}, 2)
    ]
    assert energy.next_step(so_far([*runs, *runs], condition)) is None
    assert energy.share_done(so_far(runs, condition)) == pytest.approx(2 / 3)


def test_energy_beyond_rest() -> None:
    """3,000 tokens in 12 s at 300 W, 100 W of which are rest."""
    long = Run(predicted_n=3000, predicted_ms=11_900.0, total_ms=12_000.0, joules=3600.0)
    short = Run(predicted_n=256, predicted_ms=1000.0, total_ms=1100.0, joules=9999.0)
    rest = Telemetry(seconds=12, gpus=(GpuTelemetry(gpu=0, integrated_joules=1200.0),))
    whole = result(long, long, long, short).model_copy(update={"rest": rest})
    found = energy_cost(whole)
    assert found
    assert [found.whole.value, found.net.value, found.rest] == pytest.approx([1.2, 0.8, 100])
    (line,) = energy_lines(whole)
    assert line.startswith(
        "1.2 (1.2 to 1.2) J a token, 0.8 (0.8 to 0.8) of them beyond the 100 W at rest; of 3 responses"
    )
    assert energy_cost(result(long)) is None
    assert energy_cost(result(short).model_copy(update={"rest": rest})) is None


def test_what_was_chosen() -> None:
    known = ServerProfile(60, "seed", 8192, 100.0, 1000.0, lambda _: "")
    assert QUICK_ONLY.series(known) == ()
    assert (QUICK_ONLY.most_seconds, QUICK_ONLY.rest_seconds) == (0, 2)
    both = Selection(soak=900, energy=True)
    assert [each.name for each in both.series(known)] == ["energy", "soak"]
    assert both.rest_seconds == ENERGY_REST_SECONDS
    assert both.most_seconds > 900
    conditions = [condition for each in both.series(known) for condition in each.conditions]
    assert len(set(conditions)) == len(conditions)


def test_what_was_cut_off_goes_on_with_the_lengths_that_it_began_with() -> None:
    """Whatever was measured beside it: each series has conditions that no other has."""
    known = ServerProfile(60, "seed", 8192, 25.0, 300.0, lambda tokens: f"{tokens}")
    chosen = Selection((512, 1024), (1, 2), 900, True)
    first = quick_series(known)
    served = Served(Target("http://box"), Target("http://box"), "", "m", context=8192, native=True)
    parts: list[Series | Workload] = [first, *chosen.series(known), *chosen.workloads(served)[0]]
    before = [condition for part in parts for condition in part.conditions]
    assert len(set(before)) == len(before)
    again = quick_series(replace(known, decode=500.0, prefill=9000.0, before=tuple(before)))
    assert (again.tokens, again.prompt) == (first.tokens, first.prompt)
    assert first.tokens < quick_series(replace(known, decode=500.0, prefill=9000.0)).tokens
