"""The lines of `herd logs`: the time of each in the time zone of this machine."""

from __future__ import annotations

import json

import pytest

from llamaherd.cli.server_logs import json_line, log_line
from llamaherd.cli.targets import Target


@pytest.mark.parametrize("seconds", ["", "x", "-1", "²", "253402300800", "999999999999", "9" * 40])
def test_a_line_without_a_usable_time_is_printed_without_one(seconds: str) -> None:
    assert log_line(f"{seconds}\tready") == f"{'':19}  ready"


def test_a_time_is_a_date_and_a_clock() -> None:
    assert log_line("1795249315\ta\tb\x1b[31mc").endswith("  a   bc")
    assert log_line("1795249315\ta").startswith("2026-11-2")


def test_for_a_program_it_is_an_object_with_the_time_in_utc() -> None:
    duo = Target("duo", "chat")
    assert json.loads(json_line(duo, "1795249315\ta\x1b[31mb \u00e9")) == {
        "rig": "duo",
        "instance": "chat",
        "at": "2026-11-21T08:21:55+00:00",
        "text": "ab \u00e9",
    }
    assert json.loads(json_line(duo, "\tx"))["at"] is None
    assert "\n" not in json_line(duo, "1\ta\u2028b\rc")
