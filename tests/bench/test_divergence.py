"""What llama-perplexity prints as figures: real outputs (b11434 and ik 67268c8fd, Gemma 3 270M), and what is none."""

from __future__ import annotations

import pytest

from llamaherd.measure.trials.divergence import Figure, NoFiguresError, parse_quality
from tests.support.rigs import ROOT

OUTPUTS = ROOT / "tests/data/perplexity"
REAL = (OUTPUTS / "gemma-270m-q8_0.txt").read_text(encoding="utf-8")


def test_its_figures_are_read_with_their_errors() -> None:
    found = parse_quality(REAL)
    assert found.kld == Figure(value=0.006568, error=0.000140)
    assert found.same_top == Figure(value=95.539, error=0.457)
    assert found.ppl == Figure(value=29.415617, error=2.260256)
    assert found.ppl_base == Figure(value=29.490894, error=2.265783)
    assert found.ppl_ratio == Figure(value=-0.002556, error=0.002721)
    assert found.p_change == Figure(value=0.052, error=0.037)


def test_the_fork_prints_the_same_lines() -> None:
    found = parse_quality((OUTPUTS / "ik-gemma-270m-q8_0.txt").read_text(encoding="utf-8"))
    assert found.kld == Figure(value=0.003676, error=0.000141)
    assert found.same_top == Figure(value=95.294, error=0.939)
    assert found.ppl_ratio == Figure(value=0.004109, error=0.004205)


def test_of_what_is_printed_twice_the_last_counts() -> None:
    earlier = REAL.replace("0.006568 ±", "0.000001 ±")
    assert parse_quality(earlier + REAL).kld.value == 0.006568


@pytest.mark.parametrize("figure", ["Mean ln(PPL(Q)/PPL(base))", "Mean PPL(Q)  "])
def test_an_error_that_is_no_number_is_none_of_those_that_count(figure: str) -> None:
    lines = [f"{line.partition('±')[0]}±       nan" if line.startswith(figure) else line for line in REAL.splitlines()]
    found = parse_quality("\n".join(lines))
    assert found.kld.value == 0.006568
    assert None in (found.ppl, found.ppl_ratio)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it prints no mean divergence"),
        ((OUTPUTS / "text-too-short.txt").read_text(encoding="utf-8"), "you need at least 1024 tokens"),
        ((OUTPUTS / "no-model.txt").read_text(encoding="utf-8"), "invalid magic characters"),
        ((OUTPUTS / "unknown-argument.txt").read_text(encoding="utf-8"), "it prints no mean divergence"),
        (REAL[: REAL.index("Same top p:")], "it prints no share of same likeliest tokens"),
        (REAL[: REAL.index("====== KL")], "it prints no mean divergence"),
        (REAL.replace("0.006568", "     nan"), "it prints no mean divergence"),
        (REAL.replace("0.006568", "     inf"), "it prints no mean divergence"),
        (REAL.replace("  0.006568", "-17.006568"), "its figures cannot be: mean KLD -17.0066"),
        (REAL.replace("Same top p: 95.539", "Same top p: 195.539"), "same top 195.539 %"),
        ("Mean    KLD: " + "9" * 100_000 + " ± 1\n", "it prints no mean divergence"),
    ],
    ids=[
        *(
            "nothing",
            "a short text",
            "no model",
            "a wrong argument",
            "cut off",
            "cut off before",
            "no number",
            "endless",
        ),
        *("less than nothing", "more than all", "digits without end"),
    ],
)
def test_what_is_no_figure_is_refused(text: str, says: str) -> None:
    with pytest.raises(NoFiguresError, match=says):
        parse_quality(text)
