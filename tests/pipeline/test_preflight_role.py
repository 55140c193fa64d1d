"""Preflight on pyinfra's @fake connector: a host that is refused says what it is, and one that is fine says nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.roles.power.test_role import declared
from tests.support.fake import run
from tests.support.rigs import converged, planned


def test_a_refused_host_prints_what_matters_of_it_before_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pyinfra")
    plan = planned(declared(tmp_path), {"instances/small/on": ["old"]})
    world = [line.replace("-\tRTX 3090", "-\tGA102 [GeForce RTX 3080]") for line in converged(plan, {})]
    assert world != converged(plan, {})
    ran = run(plan, [*world, "machine\tholder\tapt-get (4711)"])
    assert (ran.failed, ran.changed) == (True, [])
    said = [
        record.getMessage().removeprefix("[@fake/box] ") for record in caplog.records if "box]" in record.getMessage()
    ]
    begin = next(number for number, line in enumerate(said) if line.split() == ["found", "wanted"])
    assert [line.split() for line in said[begin + 1 : begin + 3]] == [
        ["packages", "held", "by", "apt-get", "(4711)", "note"],
        ["GPU", "old", "RTX", "3080", "at", "0000:02:00.0", "RTX", "3090", "refused"],
    ]
    assert said[begin + 3].startswith("GPU `old` is declared as RTX 3090, and is RTX 3080 at 0000:02:00.0\n  help: ")
    assert sum("is declared as RTX 3090" in line for line in said) == 1


def test_a_host_that_is_fine_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pyinfra")
    plan = planned(declared(tmp_path))
    ran = run(plan, [*converged(plan, {}), "machine\tholder\tapt-get (4711)"])
    assert (ran.failed, ran.changed) == (False, [])
    assert "wanted" not in caplog.text
    assert "4711" not in caplog.text
