"""Two results beside each other: what is different first, then ratios with verdicts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from llamaherd.measure.results.comparison import Comparison, ComparisonRow, compare_results
from llamaherd.measure.results.comparison_table import axis_scale, axis_span, forest_line
from llamaherd.measure.results.result import Engine, Gpu, Method, Provenance, Result, Run, Server, Start, SuiteRef
from llamaherd.measure.statistics import Ratio, block_orders
from tests.bench.made import result, run

SUITE = SuiteRef(name="llamaherd", sha256="a" * 64)
ENDED = "2026-11-23T20:18:00Z"


def steady(seed: int, speed: float = 100.0, noise: float = 0.005, starts: int = 1, n: int = 6, **more: Any) -> Result:
    """A result of a server of this speed."""
    lot = random.Random(seed)
    runs = [run(speed * (1 + lot.gauss(0, noise)), start=start) for start in range(starts) for _ in range(n)]
    whole: dict[str, Any] = {"suite": SUITE, "ended": ENDED, "starts": (Start(),) * starts} | more
    return result(*runs, **whole)


def only(found: Comparison) -> ComparisonRow:
    (row,) = found.rows
    return row


def test_an_unchanged_instance_is_the_same_and_never_slower() -> None:
    """Two measurements of one process, twenty times: the same in at least nineteen, at ± 2 %."""
    process = (Start(process="42"),)
    verdicts = []
    for seed in range(20):
        a, b = (steady(2 * seed + arm, starts=1, n=8).model_copy(update={"starts": process}) for arm in (0, 1))
        judgement = only(compare_results(a, b)).judgement
        assert judgement
        verdicts.append(judgement.verdict)
    assert verdicts.count("same") >= 19
    assert "slower" not in verdicts


def test_of_one_start_each_a_small_difference_is_not_known() -> None:
    row = only(compare_results(steady(1), steady(2, 98.0)))
    assert row.judgement
    assert (row.judgement.verdict, row.judgement.unit) == ("not known yet", "start")
    assert row.ratio.assumed == 0.01
    others = (steady(each, starts=1).model_copy(update={"starts": (Start(process=str(each)),)}) for each in (1, 2))
    assert only(compare_results(*others)).ratio.assumed == 0.01
    large = only(compare_results(steady(1), steady(2, 80.0)))
    assert large.judgement
    assert large.judgement.verdict == "slower"


def test_three_starts_each_tell_five_percent() -> None:
    row = only(compare_results(steady(1, starts=3), steady(2, 95.0, starts=3)))
    assert row.judgement
    assert (row.judgement.verdict, row.ratio.unit, row.ratio.n) == ("slower", "start", 3)
    back = only(compare_results(steady(2, 95.0, starts=3), steady(1, starts=3)))
    assert back.judgement
    assert back.judgement.verdict == "faster"


def in_blocks(true: float, blocks: int, noise: float, **more: Any) -> tuple[Result, Result]:
    """Both arms of a series, while the machine gets 0.4 % slower with each run."""
    lot = random.Random(str(true))
    arms: dict[str, list[Run]] = {"A": [], "B": []}
    for block, order in enumerate(block_orders("seed", blocks)):
        for place, arm in enumerate(order):
            speed = 100 * 0.996 ** (2 * block + place) * (true if arm == "B" else 1) * (1 + lot.gauss(0, noise))
            arms[arm].append(run(speed, block=block, **more))
    a, b = (
        result(*arms[arm], suite=SUITE, ended=ENDED, method=Method(series="s", arm="A" if arm == "A" else "B"))
        for arm in arms
    )
    return a, b


def test_five_percent_in_blocks_while_everything_drifts() -> None:
    """At most eight blocks, with a noise of 1 %; and what is as fast is not slower."""
    row = only(compare_results(*in_blocks(0.95, 8, 0.01)))
    assert row.judgement
    assert (row.judgement.verdict, row.ratio.unit, row.ratio.n) == ("slower", "block", 8)
    same = only(compare_results(*in_blocks(1.0, 12, 0.01)))
    assert same.judgement
    assert same.judgement.verdict == "same"


def test_one_percent_of_a_step_in_six_runs() -> None:
    """Drafts: tokens a second spread with the text by 3 %, and the time of a step by 0.1 %."""
    lot = random.Random(3)

    def drafted(step_ms: float) -> Result:
        runs = []
        for _ in range(6):
            accepted = lot.randrange(120, 150)
            steps = 256 - accepted
            took = steps * step_ms * (1 + lot.gauss(0, 0.001))
            runs.append(Run(predicted_n=257, predicted_ms=took, draft_n=180, draft_n_accepted=accepted))
        return result(*runs, suite=SUITE, ended=ENDED, starts=(Start(process="1"),))

    rows = {row.metric.name: row for row in compare_results(drafted(14.40), drafted(14.55)).rows}
    verdicts = {name: row.judgement.verdict for name, row in rows.items() if row.judgement}
    assert verdicts == {"decode": "not known yet", "step": "slower"}
    assert rows["tokens a step"].judgement is None
    assert rows["step"].metric.shown(rows["step"].a.value) == pytest.approx(14.40, rel=2e-3)


def test_differences_come_first_and_are_all_there_is() -> None:
    a = steady(1, provenance=Provenance(driver="580.95", gpus=(Gpu(name="RTX 3090", power_limit_watts=350.0),)))
    b = steady(
        2,
        provenance=Provenance(
            driver="580.95",
            gpus=(Gpu(name="RTX 3090", power_limit_watts=300.0), Gpu(name="RTX 3090 Ti")),
            engine=Engine(commit="abc"),
            server=Server(arguments=("-c", "4096")),
        ),
    )
    assert {(each.what, each.a, each.b) for each in compare_results(a, b).differences} == {
        ("gpus.0.power_limit_watts", "350.0", "300.0"),
        ("gpus.1.name", "", "RTX 3090 Ti"),
        ("engine.commit", "", "abc"),
        ("server.arguments", "", "-c 4096"),
    }
    assert compare_results(a, a).differences == ()


def test_different_prompts_are_not_compared() -> None:
    other = SuiteRef(name="llamaherd", sha256="b" * 64)
    found = compare_results(steady(1), steady(2, suite=other))
    assert found.rows == ()
    assert (len(found.only_a), len(found.only_b)) == (1, 1)
    assert "different prompts" in found.notes[0]
    unknown = compare_results(steady(1, suite=None), steady(2, suite=None))
    assert len(unknown.rows) == 1
    assert "it is unknown" in unknown.notes[0]


def test_only_equal_cells_are_compared() -> None:
    found = compare_results(steady(1), result(run(), kind="prose", suite=SUITE, ended=ENDED))
    assert found.rows == ()
    assert [str(each) for each in (*found.only_a, *found.only_b)] == ["code, 256 out", "prose, 256 out"]


@pytest.mark.parametrize("base", [(100.0,), (70.0, 140.0)], ids=["one run", "two that are far apart"])
def test_what_has_too_few_runs_is_no_base(base: tuple[float, ...]) -> None:
    """Of many runs beside them the ratio would have an interval: that of these."""
    few = result(*(run(each) for each in base), suite=SUITE, ended=ENDED)
    for row in (only(compare_results(few, steady(2, 20.0, n=90))), only(compare_results(steady(2, 20.0, n=90), few))):
        assert row.judgement
        assert row.judgement.verdict == "not known yet"
        assert row.ratio.ends is None


def test_what_does_not_count_is_left_out_and_said() -> None:
    cached = run(500.0, excluded="12 tokens came from the cache")
    a = result(run(), run(100.1), cached, suite=SUITE, ended=ENDED)
    found = compare_results(a, steady(2, ended=None))
    assert only(found).a.most < 101
    assert (found.notes_a, found.notes_b) == (
        ("1 run does not count: 12 tokens came from the cache",),
        ("it was cut off",),
    )


# --- drawn ---------------------------------------------------------------------------------------------------


def made(low: float, value: float, high: float) -> Ratio:
    return Ratio(value, low, high, 0.01, 5, "block")


def test_a_forest_shows_where_the_interval_lies() -> None:
    assert forest_line(made(0.95, 0.97, 0.99), 0.02, 0.10, 21) == "     ├─●─┤│░░        "
    assert forest_line(made(0.99, 1.0, 1.01), 0.02, 0.10, 21) == "        ░├●┤░        "
    assert len(forest_line(made(0.5, 0.6, 0.7), 0.02, 0.10, 21)) == 21
    assert forest_line(made(0.5, 0.6, 0.7), 0.02, 0.10, 21).startswith("◀")
    assert forest_line(made(1.5, 1.6, 1.7), 0.02, 0.10, 21).endswith("▶")
    assert forest_line(Ratio(1.0, None, None, None, 1, "run"), 0.02, 0.10, 21) == "        ░░●░░        "
    assert forest_line(made(0.95, 0.97, 0.99), 0.02, 0.10, 21, plain=True).isascii()


def test_a_forest_is_wide_enough_for_all_and_no_wider() -> None:
    assert axis_span([made(0.99, 1.0, 1.01)]) == 0.05
    assert axis_span([made(0.92, 0.95, 0.99), made(1, 1, 1)]) == 0.1
    assert axis_span([made(0.1, 0.2, 9.0)]) == 0.5
    assert axis_scale(0.1, 21) == "0.90     1.00    1.11"
