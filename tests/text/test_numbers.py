"""Numbers and JSON from outside: a value within bounds, or a refusal; never another error."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.mutations import NUMBERS
from llamaherd.text.numbers import MOST, clamped_number, parse_json, parse_mode, parse_real, parse_whole, whole_number

SCALARS = st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.text() | st.floats(-1e300, 1e300)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=9)


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("007", 7), ("0" * 5000 + "1", 1), (str(MOST), MOST), (str(MOST + 1), None)]
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text", ["", "²", "1²", "٣", "\uff13", "1_000", "+1", "-1", " 1", "1\n", "1.0", "0x1", "9" * 4301]
)
def test_what_only_looks_like_a_whole_number_is_none(text: str) -> None:
    assert whole_number(text) is None
    with pytest.raises(ValueError, match="not a whole number"):
        parse_whole(text)


def test_a_bound_of_its_own() -> None:
    assert (whole_number("999", 999), whole_number("1000", 999)) == (999, None)


@pytest.mark.parametrize(
    ("text", "number"),
    [("-7", -7), ("+7", 7), (" 7 ", 7), ("9" * 4301, MOST), ("-" + "9" * 4301, -MOST), ("0" * 5000 + "3", 3)],
)
def test_what_is_beyond_the_bound_is_the_bound(text: str, number: int) -> None:
    assert clamped_number(text) == number


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e999", "1_0.5", "१.2", "", ".", "0x1p3", "1" * 400])
def test_no_number_is_infinite_or_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        parse_real(text)


def test_real_numbers() -> None:
    assert [parse_real(each) for each in ("1795309341.783528417", "-1.5e3", ".5", "7.")] == [
        1795309341.783528417,
        -1500.0,
        0.5,
        7.0,
    ]


@pytest.mark.parametrize(("text", "mode"), [("644", 0o644), ("100755", 0o100755)])
def test_modes(text: str, mode: int) -> None:
    assert parse_mode(text) == mode


@pytest.mark.parametrize("text", ["", "8", "0o7", "-1", "²", "7" * 5000, "rwx"])
def test_what_is_no_mode(text: str) -> None:
    with pytest.raises(ValueError, match="mode of a file"):
        parse_mode(text)


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", "9" * 41, "9" * 5000, "[" * 100_000, "", "{", b"\xff"]
)
def test_json_that_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        parse_json(text)


def test_half_a_character_in_json_is_a_question_mark() -> None:
    assert parse_json(r'{"a\udc00": ["\ud800", "\ud83d\ude00"]}') == {"a?": ["?", "😀"]}


@given(VALUES)
def test_other_json_is_as_json_reads_it(value: Any) -> None:
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize("read", [parse_whole, parse_real, parse_mode, parse_json, clamped_number])
@given(text=st.sampled_from(NUMBERS) | st.text(alphabet="0123456789²٣.eE+-xnaif _", max_size=30))
@example(text="²")
def test_whatever_is_read_is_finite_and_within_bounds(read: Callable[[str], Any], text: str) -> None:
    with suppress(ValueError):
        number = read(text)
        assert math.isfinite(float(number))
        assert len(str(number)) < 50
