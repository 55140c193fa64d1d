"""What a coarser cache may cost, and what is said of it."""

from __future__ import annotations

import pytest

from llamaherd.measure.trials.divergence import Compared, parse_quality
from llamaherd.measure.tune.candidate import Candidate, Judged, Limits, Precision, precision_of
from tests.bench.test_divergence import REAL


@pytest.mark.parametrize(
    ("kld", "same_top", "holds"),
    [(0.006568, 95.539, True), (0.006567, 90.0, False), (0.1, 95.54, False), (0.1, 90.0, True)],
    ids=["just", "too far", "too often another", "both"],
)
def test_limits_are_held_by_means(kld: float, same_top: float, holds: bool) -> None:
    limits = Limits(kld=kld, same_top=same_top)
    assert limits.hold(parse_quality(REAL)) is holds
    assert Judged(kv="q8_0", quality=parse_quality(REAL)).passes(limits) is holds
    assert not Judged(kv="q8_0", says="it ended").passes(limits)


def test_it_is_said_in_a_line() -> None:
    said = str(Judged(kv="q8_0", context=512, chunks=8, quality=parse_quality(REAL)))
    assert said == "kv=q8_0 vs f16: mean KLD 0.00657 ± 0.00014, same top 95.54 ± 0.46 %, 8 x 512 tokens"
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
    precision = precision_of(Candidate.of({"kv": kv}), Candidate.of({"kv": declared}), "")
    assert precision == (Precision(found) if found else None)


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"model": "q4", "kv": "q8_0"}, None),
        ({"model": "q4", "kv": "q4_0"}, Precision("q4_0")),
        ({"model": "q8", "kv": "q8_0"}, None),
        ({"model": "q8", "kv": "f16"}, None),
        ({"model": "q8", "kv": "q4_0"}, Precision("q4_0", "q8", "q8")),
        ({"model": "q5", "kv": "f16"}, Precision("f16", "q5", "q8")),
        ({"model": "q5"}, Precision("", "q5", "q8")),
    ],
)
def test_other_weights_are_judged_beside_the_finest(keys: dict[str, str], found: Precision | None) -> None:
    assert precision_of(Candidate.of(keys), Candidate.of({"model": "q4", "kv": "q8_0"}), "q8") == found


def test_weights_are_said_with_what_they_are_judged_beside() -> None:
    judged = Judged(kv="q8_0", model="q5", beside="q8", context=512, chunks=8, quality=parse_quality(REAL))
    assert str(judged).startswith("model=q5, kv=q8_0 vs model=q8 with kv=f16: mean KLD 0.00657")
    assert str(Judged(kv="", model="q5", beside="q8", says="no")) == "model=q5 could not be judged: no"


@pytest.mark.parametrize("precision", [Precision("q8_0"), Precision("", "q5", "q8"), Precision("q8_0", "q5", "q8")])
def test_what_a_comparison_finds_is_kept_with_its_precision(precision: Precision) -> None:
    found = Compared(context=512, chunks=8, quality=parse_quality(REAL), seconds=3)
    judged = Judged.of(precision, found)
    assert judged.precision == precision
    assert {name: getattr(judged, name) for name in Compared.model_fields} == dict(found)
    assert Judged.model_validate_json(judged.model_dump_json()) == judged
