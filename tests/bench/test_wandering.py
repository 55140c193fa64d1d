"""A machine that wanders while it is measured: how far is seen, and no verdict comes of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from math import exp, sqrt
from statistics import fmean

import pytest

from llamaherd.measure.client.requests import KINDS
from llamaherd.measure.results.comparison import compare_results
from llamaherd.measure.results.metrics import TimedSample, speed_drift
from llamaherd.measure.results.result import Cell, Condition, Result, Start
from llamaherd.measure.statistics import Sample, judge_ratio, unpaired_ratio
from tests.bench.made import result, run

SECONDS, NOISE = 180, 0.02
Wander = Callable[[int], float]


def steady(_: int) -> float:
    return 0.0


def moving(lot: random.Random, far: float, seconds: float) -> Wander:
    """It moves by this share, and has forgotten after so many seconds where it was."""
    kept, at, path = exp(-1 / seconds), lot.gauss(0, far), []
    for _ in range(2 * SECONDS):
        path.append(at)
        at = kept * at + lot.gauss(0, far * sqrt(1 - kept**2))
    return path.__getitem__


def measured(lot: random.Random, wander: Wander, since: int = 0, noise: float = NOISE) -> Result:
    """An answer a second, of all kinds in turn; the second measurement of a pair is `since` the first one's end."""
    cells = []
    for place, kind in enumerate(KINDS):
        runs = [
            run(100.0 * (1 + wander(since + at)) * (1 + lot.gauss(0, noise)), at=float(at))
            for at in range(place, SECONDS, len(KINDS))
        ]
        cells.append(Cell(condition=Condition(kind=kind, generated=256, cache="cold"), runs=tuple(runs)))
    return result(starts=(Start(process="77@5"),)).model_copy(update={"cells": tuple(cells)})


def seen(of: Result) -> list[TimedSample]:
    runs = [(cell.condition.kind, each) for cell in of.cells for each in cell.runs]
    return [TimedSample(each.at or 0.0, kind, Sample(256, (each.predicted_ms or 0.0) / 1000)) for kind, each in runs]


def test_of_a_steady_machine_hardly_any_is_seen() -> None:
    found = [speed_drift(seen(measured(random.Random(seed), steady, noise=0.01))) for seed in range(40)]
    assert fmean(found) < 0.0025


@pytest.mark.parametrize("far", [0.02, 0.04])
def test_of_one_that_wanders_it_is_about_as_far(far: float) -> None:
    lots = [random.Random(seed) for seed in range(40)]
    found = [speed_drift(seen(measured(lot, moving(lot, far, 60)))) for lot in lots]
    assert 0.6 * far < fmean(found) < 1.5 * far


def verdicts(far: float, seconds: float, judged: Callable[[Result, Result], Sequence[str]]) -> Counter[str]:
    """What is said of decode in sixty pairs of measurements, one after the other."""
    found: Counter[str] = Counter()
    for seed in range(60):
        lot = random.Random(seed)
        wander = moving(lot, far, seconds)
        said = judged(measured(lot, wander), measured(lot, wander, SECONDS))
        found[next((each for each in ("slower", "faster", "not known yet") if each in said), "same")] += 1
    return found


def with_wandering(a: Result, b: Result) -> list[str]:
    return [
        row.judgement.verdict for row in compare_results(a, b).rows if row.metric.name == "decode" and row.judgement
    ]


def without(a: Result, b: Result) -> list[str]:
    """By requests alone, as if each were independent of all others."""
    pairs = [[[each.sample for each in seen(of) if each.cell == kind] for of in (a, b)] for kind in KINDS]
    ratios = [unpaired_ratio([before], [after], assumed=0.0) for before, after in pairs]
    return [judge_ratio(ratio, 0.02).verdict for ratio in ratios if ratio]


@pytest.mark.parametrize("seconds", [60, 300])
def test_what_a_machine_does_by_itself_is_no_change_of_a_server(seconds: float) -> None:
    """Of one whose speed moves by 4 % in minutes: by its requests alone, every third pair had a wrong verdict."""
    alone, said = (verdicts(0.04, seconds, by) for by in (without, with_wandering))
    assert alone["slower"] + alone["faster"] > 12
    assert said["slower"] + said["faster"] <= 2


def test_a_steady_one_is_still_the_same() -> None:
    lot = random.Random(1)
    pairs = [(measured(lot, steady, noise=0.005), measured(lot, steady, noise=0.005)) for _ in range(20)]
    assert sum(set(with_wandering(a, b)) == {"same"} for a, b in pairs) >= 19


def test_it_is_told() -> None:
    lot = random.Random(3)
    wander = moving(lot, 0.05, 60)
    notes = compare_results(measured(lot, wander), measured(lot, wander, SECONDS)).notes
    assert [note.partition(":")[0] for note in notes] == [
        "it is unknown whether both were measured with the same prompts",
        "speeds drifted meanwhile",
    ]
    assert not any("wandered" in note for note in compare_results(measured(lot, steady), measured(lot, steady)).notes)


def with_prompts(of: Result, lot: random.Random, wander: Wander, noise: float, every: int = 5) -> Result:
    """A prompt is read every five seconds, too, and that wanders by itself."""
    runs = [
        run(50.0, at=float(at)).model_copy(
            update={"prompt_n": 2048, "prompt_ms": 400 / (1 + wander(at)) / (1 + lot.gauss(0, noise))}
        )
        for at in range(0, SECONDS, every)
    ]
    cell = Cell(condition=Condition(kind="long", prompt=2048, cache="cold"), runs=tuple(runs))
    return of.model_copy(update={"cells": (*of.cells, cell)})


def assumed(a: Result, b: Result) -> dict[str, float]:
    """Of reading prompts, and of writing answers."""
    rows = [row for row in compare_results(a, b).rows if bool(row.condition.prompt) == (row.metric.name == "prefill")]
    return {row.metric.name: row.ratio.assumed for row in rows}


def test_prompts_wander_by_themselves() -> None:
    """Reading moves by 4 %, writing does not: on real GPUs they take turns. What is said of writing stays sharp."""
    found = []
    for seed in range(20):
        lot = random.Random(seed)
        path = moving(lot, 0.04, 60)
        a, b = (with_prompts(measured(lot, steady, noise=0.005), lot, path, 0.005) for _ in range(2))
        found.append(assumed(a, b))
    assert fmean(each["decode"] for each in found) < 0.003
    assert fmean(each["prefill"] for each in found) > 0.02


def test_of_few_prompts_all_requests_tell() -> None:
    lot = random.Random(5)
    wander = moving(lot, 0.04, 60)
    a, b = (with_prompts(measured(lot, wander, since), lot, steady, 0.03, every=30) for since in (0, SECONDS))
    found = assumed(a, b)
    assert found["prefill"] == pytest.approx(found["decode"], rel=0.3)
    assert found["prefill"] > 0.01


def test_how_much_of_a_draft_is_accepted_does_not_hang_on_speed() -> None:
    lot = random.Random(3)
    wander = moving(lot, 0.05, 60)
    pair = [measured(lot, wander, since) for since in (0, SECONDS)]
    drafted = [each.model_copy(update={"cells": tuple(map(with_drafts, each.cells))}) for each in pair]
    assumed = {row.metric.name: row.ratio.assumed for row in compare_results(*drafted).rows}
    assert assumed["decode"] > 0
    assert assumed["step"] > 0
    assert (assumed["accepted"], assumed["tokens a step"]) == (0.0, 0.0)


def with_drafts(cell: Cell) -> Cell:
    runs = [
        run.model_copy(update={"draft_n": 120, "draft_n_accepted": 90 + at % 5}) for at, run in enumerate(cell.runs)
    ]
    return cell.model_copy(update={"runs": tuple(runs)})


def test_of_a_few_requests_nobody_can_tell() -> None:
    few = [TimedSample(float(at), "code", Sample(256, 1 + at)) for at in range(11)]
    assert speed_drift(few) == 0.0
    assert speed_drift([]) == 0.0
    assert speed_drift([TimedSample(5.0, "code", Sample(256, 1 + at)) for at in range(30)]) == 0.0
