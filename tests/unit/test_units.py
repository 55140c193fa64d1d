"""Quantities as people write them, and as people read them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llamaherd.units import parse_size, show_seconds, show_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (17, 17),
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("16GB", 16 * 10**9),
        ("16 gb", 16 * 10**9),
        ("24G", 24 * 10**9),
        ("512MiB", 512 * 2**20),
        ("1.5TiB", 3 * 2**39),
        (" 2k ", 2000),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "16 G B", "16GBit", "1,5GB", "sixteen", "1e9"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no size; write it like 16GB or 512MiB"):
        parse_size(text)


@given(st.text())
def test_a_text_is_a_size_or_a_value_error(text: str) -> None:
    try:
        assert parse_size(text) >= 0
    except ValueError:
        return


@pytest.mark.parametrize("text", ["9" * 400 + "GB", ["16GB"], 1.5, None])
def test_what_yaml_can_also_hold_is_a_value_error_too(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (253113024, "253 MB"),
        (37386587, "37.4 MB"),
        (105 * 10**9, "105 GB"),
        (10**12, "1.0 TB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert show_size(size) == text


@given(st.integers(0, 10**15))
def test_a_shown_size_reads_back_as_nearly_the_same(size: int) -> None:
    assert abs(parse_size(show_size(size)) - size) <= size * 0.05 + 1


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0 s"), (3.21, "3.2 s"), (59.9, "59.9 s"), (60, "1 min 00 s"), (245.7, "4 min 05 s")]
)
def test_seconds_for_people(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text


@given(st.floats(0, 10**6))
@example(59.97)
def test_no_clock_has_sixty_seconds(seconds: float) -> None:
    assert "60" not in show_seconds(seconds).removesuffix(" s").split(" min ")[-1]
