"""Servers that unload their models: what cannot be done, and similar inventories that are correct."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.checks.test_fleet import WATCH, Found, codes, known_as, survey
from tests.support.checking import Case, assert_said, findings_of
from tests.support.rigs import DIGEST, changed

__all__ = ["survey"]
IDLE = {"unload": "15m"}
VLLM = {
    "engines/v": {"kind": "vllm", "image": f"vllm/vllm-openai@sha256:{DIGEST}"},
    "instances/small/engine": "v",
    "instances/small/idle": IDLE,
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case({"instances/reasoner/idle": IDLE}), id="a unit of llama.cpp"),
        pytest.param(Case({"instances/small/idle": IDLE}), id="a container of llama.cpp"),
        pytest.param(
            Case({"instances/worker/idle": IDLE}, "LH360", "unload", "ik_llama.cpp cannot", "llama.cpp, or take"),
            id="ik_llama.cpp",
        ),
    ],
)
def test_engines_that_cannot_unload_a_model(case: Case, tmp_path: Path) -> None:
    assert_said(case, tmp_path)


def test_vllm_cannot_unload_a_model(tmp_path: Path) -> None:
    (found,) = [each for each in findings_of(Case(VLLM).declared(), tmp_path) if each.code == "LH360"]
    assert found.message == "vllm cannot unload the model of instance `small`"
    assert "`herd pause duo/small` frees" in found.help


@pytest.mark.parametrize(
    ("version", "found"),
    [({"number": 10306}, ["LH361"]), ({"number": 10867}, []), ({"number": 11434}, []), (None, [])],
)
def test_monitoring_that_keeps_a_model_loaded(survey: Found, version: dict[str, Any] | None, found: list[str]) -> None:
    changes: dict[str, Any] = {"instances/chat/idle": IDLE}
    box = changed(known_as("192.168.1.20"), changes | {"engines/main/source/version": version})
    assert codes(survey(WATCH, box)) == found


def test_a_rig_that_is_not_monitored_may_have_an_old_version(survey: Found) -> None:
    changes = {"instances/chat/idle": IDLE, "engines/main/source/version": {"number": 10306}}
    beside = changed(known_as(None), changes | {"rig": "porch", "connect": {"host": "porch.lan"}})
    assert codes(survey(WATCH.replace("[porch]", "[box]"), known_as("192.168.1.20"), beside)) == []
    assert codes(survey(WATCH, known_as("192.168.1.20"), beside)) == ["LH361"]
