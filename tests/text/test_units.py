"""Quantities as people write them, and as people read them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llamaherd.text.numbers import parse_data_rate, parse_hours, parse_loss, parse_size, show_seconds, show_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (17_000_000, 17_000_000),
        ("0", 0),
        ("68719476736", 64 << 30),
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


@pytest.mark.parametrize("text", [192, "24", " 512 ", "1.5"])
def test_sizes_have_units(text: str | int) -> None:
    with pytest.raises(ValueError, match=r"has no unit; is `.*GB` meant, or `.*MiB`"):
        parse_size(text)


@pytest.mark.parametrize("text", [65_536, "24576", 999_999])
def test_large_numbers_without_a_unit_are_taken_for_mib(text: str | int) -> None:
    with pytest.raises(ValueError, match=rf"has no unit; is `{text}MiB` meant\?"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "16 G B", "16GBit", "1,5GB", "sixteen", "1e9"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no size; write it like 16GB or 512MiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        (8_000_000, 8_000_000),
        ("8MB/s", 8_000_000),
        ("8 MB", 8_000_000),
        ("1.5M", 1_500_000),
        ("500k/s", 500_000),
        ("2MiB/s", 2 << 20),
        ("64Mbit/s", 8_000_000),
        ("64 Mbps", 8_000_000),
        ("1Gbit", 125_000_000),
    ],
)
def test_data_rates(text: str | int, rate: int) -> None:
    assert parse_data_rate(text) == rate


@pytest.mark.parametrize("text", ["", "8Mb/s", "8mb/s", "fast", "-1", "8TB/s", True, 1.5, None, "9" * 10])
def test_no_data_rates(text: object) -> None:
    """`Mb` is bits to some and bytes to others: nobody is left with an eighth of what was meant."""
    with pytest.raises(ValueError, match="is no speed; write it like 8MB/s, or 64Mbit/s where bits are meant"):
        parse_data_rate(text)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("07:00-23:00", "07:00-23:00"),
        ("7:05 - 8:00", "07:05-08:00"),
        ("22:00-06:00", "22:00-06:00"),
        ("07:00-24:00", "07:00-00:00"),
        ("00:00-24:00", "00:00-00:00"),
    ],
)
def test_hours(text: str, hours: str) -> None:
    assert parse_hours(text) == hours


@pytest.mark.parametrize(
    "text", ["", "7-23", "07:00", "25:00-26:00", "24:00-06:00", "08:60-09:00", "08:00-08:00", 7, None]
)
def test_no_hours(text: object) -> None:
    with pytest.raises(ValueError, match="is no part of a day; write it like 07:00-23:00"):
        parse_hours(text)


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


@pytest.mark.parametrize(("text", "share"), [("-3%", 0.03), ("-0.5%", 0.005), (" -12.5 % ", 0.125), ("-50%", 0.5)])
def test_losses_are_shares(text: str, share: float) -> None:
    assert parse_loss(text) == share


@pytest.mark.parametrize(
    "text", ["3%", "-3", "0.03", 0.03, "-100%", "-60%", "-0.1%", "-0%", "--3%", "-٣%", "", None, True]
)
def test_what_is_no_loss_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="write it like -3%"):
        parse_loss(text)
