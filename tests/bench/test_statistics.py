"""Intervals hold what is true as often as they promise, and verdicts say no more than is known."""

from __future__ import annotations

import math
import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamaherd.measure.statistics import (
    Block,
    Judgement,
    Ratio,
    Sample,
    block_orders,
    estimate,
    half_width,
    judge_ratio,
    paired_ratio,
    rate,
    student_below,
    student_quantile,
    unpaired_ratio,
)
from tests.bench import simulate
from tests.support.rigs import ROOT

PAGE = ROOT / "docs/measurements/bench.md"


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    # NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2: critical values of Student's t, 0.975.
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (19, 2.093), (30, 2.042), (100, 1.984)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, abs=5e-4)


def test_quantiles_where_the_distribution_is_known_in_closed_form() -> None:
    """With one degree of freedom it is Cauchy's, with two it is algebraic, with very many it is normal."""
    for share in (0.6, 0.9, 0.975, 0.9995):
        assert student_quantile(share, 1) == pytest.approx(math.tan(math.pi * (share - 0.5)), rel=1e-9)
        two = (2 * share - 1) * math.sqrt(2 / (4 * share * (1 - share)))
        assert student_quantile(share, 2) == pytest.approx(two, rel=1e-9)
    assert student_quantile(0.975, 1e7) == pytest.approx(1.959964, abs=1e-5)


@given(st.floats(0.001, 0.999), st.floats(0.5, 200))
@settings(max_examples=60, deadline=None)
def test_a_quantile_has_its_share_below_it(share: float, freedom: float) -> None:
    assert student_below(student_quantile(share, freedom), freedom) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize(("share", "freedom"), [(0, 3), (1, 3), (0.5, 0), (0.5, -1)])
def test_there_is_no_quantile_of_nonsense(share: float, freedom: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        student_quantile(share, freedom)


def test_a_rate_is_all_tokens_over_all_time() -> None:
    """Averaged, the short fast run would count as much as the long slow one."""
    assert rate([Sample(100, 1), Sample(900, 19)]) == 50
    found = estimate([[Sample(100, 1), Sample(900, 19)]])
    assert found is not None
    assert (found.value, found.n, found.runs, found.unit) == (50, 2, 2, "run")


def test_starts_are_the_unit_where_there_are_several() -> None:
    one, two = [Sample(100, 1.0)] * 5, [Sample(100, 1.02)] * 5
    found = estimate([one, two, []])
    assert found is not None
    assert (found.n, found.runs, found.unit) == (2, 10, "start")
    assert found.low is not None
    pooled = estimate([[*one, *two]])
    assert pooled is not None
    assert pooled.low is not None
    assert found.low < 0.95 * pooled.low


def test_one_value_has_no_interval() -> None:
    found = estimate([[Sample(100, 1)]])
    assert found is not None
    assert (found.low, found.high, found.spread) == (None, None, None)
    assert estimate([]) is None
    assert estimate([[]]) is None


def test_the_interval_of_a_mean_by_hand() -> None:
    """0.1, 0.2, 0.3 as logarithms: a spread of 0.1, and t is 4.303 for three values."""
    found = estimate([[Sample(math.exp(each), 1)] for each in (0.1, 0.2, 0.3)])
    assert found is not None
    assert found.high is not None
    assert found.spread == pytest.approx(0.1)
    assert math.log(found.high / found.value) == pytest.approx(0.43026527 / math.sqrt(3), rel=1e-6)


@given(st.lists(st.floats(0.001, 1e6), min_size=2, max_size=6), st.lists(st.floats(0.001, 1e6), min_size=2, max_size=6))
def test_no_interval_is_told_that_is_wider_than_four_times(a: list[float], b: list[float]) -> None:
    one, two = ([[Sample(each, 1)] for each in speeds] for speeds in (a, b))
    found, beside = estimate(one), unpaired_ratio(one, two)
    in_blocks = paired_ratio([Block(*each) for each in zip(a, b, strict=False)])
    assert found is not None
    assert found.too_few == (found.high is None) == (found.low is None) == found.counted.endswith(", too few")
    assert beside is not None
    assert in_blocks is not None
    assert found.low is None or found.high is None or found.high <= 4.0001 * found.low
    for each in filter(None, (beside.ends, in_blocks.ends)):
        assert each[1] <= 4.0001 * each[0]


def test_what_is_far_apart_is_no_interval_and_may_be_a_verdict() -> None:
    twice = estimate([[Sample(700, 1), Sample(1200, 1)]])
    assert twice is not None
    assert (twice.low, twice.high, twice.counted) == (None, None, "n = 2, too few")
    slow = paired_ratio([Block(100, 30), Block(100, 9), Block(100, 20), Block(100, 8)])
    assert slow is not None
    assert slow.ends is None
    assert judge_ratio(slow, 0.02).verdict == "slower"


def test_one_start_each_takes_the_difference_between_starts_into_account() -> None:
    """Ten runs agree to 0.01 %, and still nobody knows what the next start would do."""
    lot = random.Random(5)
    a, b = ([[Sample(100, 1 + lot.gauss(0, 1e-4)) for _ in range(10)]] for _ in range(2))
    apart, together = unpaired_ratio(a, b), unpaired_ratio(a, b, assumed=0.0)
    assert apart is not None
    assert together is not None
    assert apart.low == pytest.approx(math.exp(-1.96 * 0.01 * math.sqrt(2)), abs=1e-3)
    assert together.low == pytest.approx(1, abs=3e-4)
    assert (judge_ratio(apart, 0.02).verdict, judge_ratio(together, 0.02).verdict) == ("not known yet", "same")
    assert judge_ratio(apart, 0.02).unit == "start"
    slow = unpaired_ratio(a, [[Sample(80, each.over) for each in b[0]]])
    assert slow is not None
    assert judge_ratio(slow, 0.02).verdict == "slower"


def test_a_start_beside_several_is_held_against_their_spread() -> None:
    several = [[Sample(100, 1 + each)] for each in (0, 0.01, 0.02)]
    found = unpaired_ratio(several, [[Sample(100, 1.01)]])
    assert found is not None
    assert found.low is not None
    assert (found.unit, found.assumed, found.n) == ("start", 0.0, 1)
    assert found.low < 0.96
    assert unpaired_ratio(several, []) is None


def test_blocks_are_by_lot_and_each_is_first_as_often() -> None:
    drawn = [block_orders(str(seed), 12) for seed in range(40)]
    assert drawn[0] == block_orders("0", 12)
    assert all(each[:5] == block_orders(str(seed), 5) for seed, each in enumerate(drawn))
    assert all(Counter(each[at : at + 4]) == {"AB": 2, "BA": 2} for each in drawn for at in (0, 4, 8))
    assert len(set(drawn)) > 30
    assert {each[0] for each in drawn} == {"AB", "BA"}


def test_a_slope_falls_out_of_blocks() -> None:
    """Each run is 1 % slower than the one before: B is exactly as fast as A, whoever came first."""
    found = []
    for number, order in enumerate(block_orders("lot", 8)):
        rates = {arm: 0.99 ** (2 * number + place) for place, arm in enumerate(order)}
        found.append(Block(rates["A"], rates["B"]))
    ratio = paired_ratio(found)
    assert ratio is not None
    assert ratio.value == pytest.approx(1)


def test_two_blocks_are_too_few_for_an_interval() -> None:
    ratio = paired_ratio([Block(1, 2), Block(1, 2.1)])
    assert ratio is not None
    assert ratio.low is None
    assert str(judge_ratio(ratio, 0.02)).startswith("not known yet (about ")
    assert paired_ratio([]) is None


def made(value: float, half: float, spread: float | None = 0.01, n: int = 5) -> Ratio:
    return Ratio(value, value - half, value + half, spread, n, "block")


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (made(0.90, 0.05), "slower"),
        (made(0.97, 0.015), "not known yet"),
        (made(1.00, 0.019), "same"),
        (made(1.01, 0.005), "same"),
        (made(1.01, 0.015), "not known yet"),
        (made(1.05, 0.02), "faster"),
        (Ratio(0.5, None, None, None, 1, "block"), "not known yet"),
    ],
)
def test_verdicts_are_by_the_whole_interval(ratio: Ratio, verdict: str) -> None:
    assert judge_ratio(ratio, 0.02).verdict == verdict


@given(st.lists(st.tuples(st.floats(50, 150), st.floats(50, 150)), min_size=3, max_size=12), st.floats(0.001, 0.2))
@settings(max_examples=80, deadline=None)
def test_verdicts_do_not_depend_on_which_is_called_a(pairs: list[tuple[float, float]], margin: float) -> None:
    """What makes B faster makes A slower: there is no contradiction, whatever was measured."""
    there = paired_ratio([Block(a, b) for a, b in pairs])
    back = paired_ratio([Block(b, a) for a, b in pairs])
    assert there is not None
    assert back is not None
    assert there.value * back.value == pytest.approx(1)
    seen = {judge_ratio(there, margin).verdict, judge_ratio(back, margin).verdict}
    assert seen not in ({"slower"}, {"faster"})


def test_more_is_about_what_it_takes() -> None:
    """So many more blocks with the same spread, and the interval is narrower than the way to the margin."""
    ratio = made(1.0, 0.05, spread=0.03, n=4)
    judged = judge_ratio(ratio, 0.02)
    assert judged.more is not None
    enough, one_less = (half_width(0.03, n, n - 1) for n in (4 + judged.more, 3 + judged.more))
    assert enough < math.log(1.02) < one_less
    assert str(Judgement("not known yet", 1, "start")) == "not known yet (about 1 more start)"
    at_the_margin = judge_ratio(made(0.98, 0.01), 0.02)
    assert str(at_the_margin) == "not known yet (over 50 more blocks)"


def test_coverage_is_what_the_page_says() -> None:
    """Also for what is skewed and what drifts; and what is not done misses, as the page says too."""
    rows, verdicts = simulate.tables()
    page = PAGE.read_text(encoding="utf-8")
    assert rows in page
    assert verdicts in page
    shares = {name: list(map(int, re.findall(r"(\d+) %", row))) for name, row in by_name(rows)}
    blocks = [each for name, row in shares.items() if name in simulate.HELD and "blocks" in name for each in row]
    assert min(blocks) >= 90
    assert min(each for name, row in shares.items() if name in simulate.HELD for each in row) >= 88
    assert all(max(shares[name][1:]) < 70 for name in simulate.MISSED)


def by_name(rows: str) -> list[tuple[str, str]]:
    return [(row.split("|")[1].strip(), row) for row in rows.splitlines()]


def test_looking_after_every_block_is_no_way_to_a_wrong_verdict() -> None:
    """The rule may be asked again with each block, up to twelve: who is as fast is never called slower."""
    lot = random.Random(7)
    same = Counter(simulate.first_verdict(lot, 1.0, 0.02, 12)[0] for _ in range(300))
    assert (same["slower"], same["faster"]) == (0, 0)
    slow = [simulate.first_verdict(lot, 0.95, 0.02, 8) for _ in range(300)]
    assert sum(verdict == "slower" for verdict, _ in slow) >= 299
    at_the_margin = Counter(simulate.first_verdict(lot, 0.98, 0.02, 12)[0] for _ in range(300))
    assert at_the_margin["slower"] <= 30
