"""Programs that units call by path: modules that are shipped alone, each as it is."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from roles.power.onhost import gpu_fans, gpu_power
from roles.serve.onhost import gpu_programs, started_program, wait_programs
from tests.support.rigs import gpu_rig, planned

_IN_A_GROUP = {"engine": "main", "on": ["new"], "context": 8192, "port": 8010, "group": "card"}
PLAN = planned(
    gpu_rig(),
    {
        "instances/one": {**_IN_A_GROUP, "model": "35b"},
        "instances/two": {**_IN_A_GROUP, "model": "gemma"},
        "gpus/cards/old/fans": "70%",
    },
)
MODULES = {
    "gpu-gate": gpu_programs.__file__,
    "gpu-check": gpu_programs.__file__,
    "gpu-fans": gpu_fans.__file__,
    "gpu-power": gpu_power.__file__,
    "started": started_program.__file__,
    "wait-healthy": wait_programs.__file__,
    "wait-loaded": wait_programs.__file__,
}


@pytest.mark.parametrize("name", MODULES)
def test_a_program_is_its_module_and_needs_python_3_10_alone(name: str) -> None:
    assert PLAN.power
    files = {file.path: file for file in (*PLAN.files, PLAN.power.program, PLAN.power.fans)}
    file = files[f"/opt/llamaherd/libexec/{name}"]
    assert file.text == Path(MODULES[name]).read_text()
    assert (file.text.partition("\n")[0], file.mode, file.owner) == ("#!/usr/bin/env -S python3 -IS", "0755", "root")
    nodes = [*ast.walk(ast.parse(file.text, feature_version=(3, 10)))]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {each.partition(".")[0] for each in imported} <= sys.stdlib_module_names
