"""A running server is measured over SSH, and what was measured is verified against `expect`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llamaherd.measure.results.store import read_result, result_files, results_folder
from tests.box.bench import Bench


def test_a_short_bench(converged: Bench, tmp_path: Path) -> None:
    shared = tmp_path / "shared.json"
    ended = converged.herd("bench", "box/chat", "--anyway", "--time", "30s", "--share", str(shared))
    assert ended.code in (0, 1), ended.output
    newest, *_ = result_files(results_folder(converged.inventory), "box", "chat")
    found = read_result(newest)
    assert found.ended
    counted = [run for cell in found.cells for run in cell.counted if cell.condition.cache == "cold"]
    assert counted
    assert all(run.clock == "engine" and run.predicted_ms and run.first_token_ms for run in counted)
    # By the plan, and past it.
    instance = next(each for each in converged.plan()["instances"] if each["name"] == "chat")
    assert found.provenance.server.spec == instance["spec"]
    pid = converged.sh("systemctl show -P MainPID llama-chat")
    resident = int(converged.sh(f"awk '/^VmRSS/ {{print $2}}' /proc/{pid}/status")) << 10
    assert found.peaks[0].held_bytes == pytest.approx(resident, rel=0.5)
    text = shared.read_text()
    assert json.loads(text)["shared"] is True
    assert converged.key() not in text + newest.read_text() + ended.output
