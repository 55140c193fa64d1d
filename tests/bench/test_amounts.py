"""What people type for a series."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.bench.selection import parse_concurrency, parse_depths, parse_duration, parse_watts
from llamaherd.measure.bench.workloads import Ladder


@pytest.mark.parametrize(
    ("word", "means"),
    [
        ("4k,32k,128k", (4096, 32768, 131072)),
        ("512,1K, 2k", (512, 1024, 2048)),
        ("2k,512", (512, 2048)),
        ("32k", (1024, 2048, 4096, 8192, 16384, 32768)),
        ("3000", (1500, 3000)),
        ("512", (512,)),
        ("256", (256,)),
    ],
)
def test_depths(word: str, means: tuple[int, ...]) -> None:
    assert parse_depths(word) == means
    assert all(piece.prompt for piece in Ladder(means).conditions[::2])


def test_other_amounts() -> None:
    assert parse_concurrency("4,1,2,2") == (1, 2, 4)
    assert [parse_duration(word) for word in ("90s", "15m", "1h")] == [90, 900, 3600]
    assert parse_watts("200W..250W/20W") == (200, 220, 240, 250)
    assert parse_watts("200..400/100W") == (200, 300, 400)
    assert parse_watts("350W, 200,200W") == (200, 350)


MANY = ",".join(map(str, range(1000, 99999, 999)))


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (
            parse_depths,
            [
                "",
                "0",
                "255",
                "4k,",
                "k",
                "-4k",
                "3M",
                "9999k",
                "4k;8k",
                "512,600",
                "٤k",
                ",".join(map(str, range(1000, 99999, 999))),
            ],
        ),
        (
            parse_watts,
            [
                *["", "200", "200W..", "300W..200W/10W", "200W..300W", "200W..300W/0W", "9W,20W", "200W,2001W"],
                *["200V,300V", "100W..1000W/10W", "٣W,300W", "200 W..300 W/10 W", "200W,,300W"],
            ],
        ),
        (parse_concurrency, ["", "0", "65", "1,,2", "1 2", "a", "٣", "1" * 5000]),
        (parse_duration, ["", "15", "59s", "91m", "2h", "1d", "m", "99999999h"]),
    ],
)
def test_anything_else_is_a_sentence(read: Callable[[str], object], words: list[str]) -> None:
    for word in words:
        with pytest.raises(UserError) as error:
            read(word)
        assert len(error.value.message) < 200
        assert error.value.help
