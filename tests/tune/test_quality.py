"""What llama-perplexity prints as figures: real outputs (b11434 and ik 67268c8fd, Gemma 3 270M), and what is none."""

from __future__ import annotations

import pytest

from llamaherd.tune.candidate import Candidate
from llamaherd.tune.quality import Figure, Judged, Limits, NoFiguresError, coarser, quality_of
from tests.support.rigs import ROOT

OUTPUTS = ROOT / "tests/data/perplexity"
REAL = (OUTPUTS / "gemma-270m-q8_0.txt").read_text(encoding="utf-8")


def test_its_figures_are_read_with_their_errors() -> None:
    found = quality_of(REAL)
    assert found.kld == Figure(value=0.006568, error=0.000140)
    assert found.same_top == Figure(value=95.539, error=0.457)
    assert found.ppl == Figure(value=29.415617, error=2.260256)
    assert found.ppl_base == Figure(value=29.490894, error=2.265783)
    assert found.ppl_ratio == Figure(value=-0.002556, error=0.002721)
    assert found.p_change == Figure(value=0.052, error=0.037)


def test_the_fork_prints_the_same_lines() -> None:
    found = quality_of((OUTPUTS / "ik-gemma-270m-q8_0.txt").read_text(encoding="utf-8"))
    assert found.kld == Figure(value=0.003676, error=0.000141)
    assert found.same_top == Figure(value=95.294, error=0.939)
    assert found.ppl_ratio == Figure(value=0.004109, error=0.004205)


def test_of_what_is_printed_twice_the_last_counts() -> None:
    earlier = REAL.replace("0.006568 ±", "0.000001 ±")
    assert quality_of(earlier + REAL).kld.value == 0.006568


@pytest.mark.parametrize("figure", ["Mean ln(PPL(Q)/PPL(base))", "Mean PPL(Q)  "])
def test_an_error_that_is_no_number_is_none_of_those_that_count(figure: str) -> None:
    lines = [f"{line.partition('±')[0]}±       nan" if line.startswith(figure) else line for line in REAL.splitlines()]
    found = quality_of("\n".join(lines))
    assert found.kld.value == 0.006568
    assert None in (found.ppl, found.ppl_ratio)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it tells no mean divergence"),
        ((OUTPUTS / "text-too-short.txt").read_text(encoding="utf-8"), "you need at least 1024 tokens"),
        ((OUTPUTS / "no-model.txt").read_text(encoding="utf-8"), "invalid magic characters"),
        ((OUTPUTS / "unknown-argument.txt").read_text(encoding="utf-8"), "it tells no mean divergence"),
        (REAL[: REAL.index("Same top p:")], "it tells no share of same likeliest tokens"),
        (REAL[: REAL.index("====== KL")], "it tells no mean divergence"),
        (REAL.replace("0.006568", "     nan"), "it tells no mean divergence"),
        (REAL.replace("0.006568", "     inf"), "it tells no mean divergence"),
        (REAL.replace("  0.006568", "-17.006568"), "its figures cannot be: mean KLD -17.0066"),
        (REAL.replace("Same top p: 95.539", "Same top p: 195.539"), "same top 195.539 %"),
        ("Mean    KLD: " + "9" * 100_000 + " ± 1\n", "it tells no mean divergence"),
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
        quality_of(text)


@pytest.mark.parametrize(
    ("kld", "same_top", "holds"),
    [(0.006568, 95.539, True), (0.006567, 90.0, False), (0.1, 95.54, False), (0.1, 90.0, True)],
    ids=["just", "too far", "too often another", "both"],
)
def test_limits_are_held_by_means(kld: float, same_top: float, holds: bool) -> None:
    limits = Limits(kld=kld, same_top=same_top)
    assert limits.hold(quality_of(REAL)) is holds
    assert Judged(kv="q8_0", quality=quality_of(REAL)).passes(limits) is holds
    assert not Judged(kv="q8_0", says="it ended").passes(limits)


def test_it_is_said_in_a_line() -> None:
    said = str(Judged(kv="q8_0", context=512, chunks=8, quality=quality_of(REAL)))
    assert said == "kv=q8_0 beside f16: mean KLD 0.00657 ± 0.00014, same top 95.54 ± 0.46 %, 8 x 512 tokens"
    assert str(Judged(kv="q4_0", says="it took too long")) == "kv=q4_0 could not be judged: it took too long"


@pytest.mark.parametrize(
    ("kv", "declared", "found"),
    [
        ("q8_0", "f16", "q8_0"),
        ("q4_0", "q8_0", "q4_0"),
        ("q8_0", "q8_0", None),
        ("f16", "q8_0", None),
        ("f16", "bf16", None),
        (None, "f16", None),
        ("q8_0", None, None),
    ],
)
def test_a_cache_is_coarser_than_what_is_declared(kv: str | None, declared: str | None, found: str | None) -> None:
    assert coarser(Candidate.of({"kv": kv}), Candidate.of({"kv": declared})) == found
