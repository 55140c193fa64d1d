"""The lines of `herd logs`: the time of each in the time zone of this machine."""

from __future__ import annotations

import pytest

from llamaherd.cli.server_logs import log_line


@pytest.mark.parametrize("seconds", ["", "x", "-1", "²", "253402300800", "999999999999", "9" * 40])
def test_a_line_without_a_usable_time_is_printed_without_one(seconds: str) -> None:
    assert log_line(f"{seconds}\tready") == f"{'':19}  ready"


def test_a_time_is_a_date_and_a_clock() -> None:
    assert log_line("1795249315\ta\tb\x1b[31mc").endswith("  a   bc")
    assert log_line("1795249315\ta").startswith("2026-11-2")
