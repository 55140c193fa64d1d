"""Services of roles: why one must be started anew, what else is wrong with its unit, and its check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd.onhost.services import ServiceState
from llamaherd.role.report import restart_reasons, service_check, unit_problems

RUNS = ServiceState("active", "enabled", needs_reload=False, spec="ab12")


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        (RUNS, []),
        (None, ["there is no such unit"]),
        (replace(RUNS, active="failed", spec=""), ["it is failed"]),
        (replace(RUNS, spec="cd34"), ["its settings differ: spec cd34 runs, ab12 is planned"]),
        (replace(RUNS, spec=""), ["its settings differ: spec of nothing runs, ab12 is planned"]),
    ],
)
def test_it_is_started_anew_unless_it_runs_as_wanted(unit: ServiceState | None, why: list[str]) -> None:
    assert restart_reasons(unit, "ab12") == why


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        (RUNS, []),
        (None, []),
        (replace(RUNS, enabled="disabled"), ["it is disabled"]),
        (replace(RUNS, enabled="", needs_reload=True), ["it is not enabled", "systemd has not reloaded its file"]),
    ],
)
def test_what_else_is_wrong_is_said(unit: ServiceState | None, why: list[str]) -> None:
    assert list(unit_problems(unit)) == why


@pytest.mark.parametrize(
    ("answer", "ok", "detail"),
    [
        ("ActiveState=active\nUnitFileState=enabled\n", True, "a.service is active, enabled"),
        ("ActiveState=active\nUnitFileState=disabled\n", False, "a.service is active, disabled"),
        ("ActiveState=inactive\nUnitFileState=\n", False, "a.service is inactive, not there"),
        ("", False, "a.service is not there, not there"),
    ],
)
def test_a_service_must_run_and_be_there_after_a_boot(answer: str, ok: bool, detail: str) -> None:
    check = service_check("a", answer, "a.service")
    assert (check.name, check.ok, check.detail) == ("a", ok, detail)
    assert service_check("a", answer).detail == detail.removeprefix("a.service ")
