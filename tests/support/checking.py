"""What the checks that need no header and no catalogue say about a rig."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from llamaherd.checks import (
    command_line,
    driver,
    fleet_file,
    hardware,
    placement,
    references,
    serving,
    sources,
    toolkit,
    wsl,
)
from llamaherd.checks.context import RigCheck, RigContext
from llamaherd.diagnostics.findings import Finding, Severity
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.memory.facts import rig_facts
from tests.support.rigs import Declared, changed, gpu_rig

CHECKS: tuple[RigCheck, ...] = (
    toolkit.check_toolkit,
    toolkit.check_host_compiler,
    toolkit.check_architectures,
    driver.check_driver,
    serving.check_container_toolkit,
    hardware.check_gpu_identities,
    hardware.check_gpu_clocks,
    hardware.check_gpus_under_wsl,
    hardware.check_power_and_fans,
    serving.check_expected_power,
    serving.check_gate_quality,
    serving.check_quality,
    serving.check_energy_objective,
    serving.check_power_limit_trials,
    placement.check_split_modes,
    lambda subject: command_line.check_conflicts(command_line.conflicting_commands(subject)),
    placement.check_cache_types,
    references.check_group_size,
    references.check_group_settings,
    references.check_group_swaps,
    fleet_file.check_idle_engines,
    references.check_port_owners,
    sources.check_images,
    hardware.check_performance_cores,
    hardware.check_threads,
    hardware.check_shared_cores,
    hardware.check_affinity,
    wsl.check_wsl_memory,
    wsl.check_memory_reclaim,
    wsl.check_windows_profile,
    wsl.check_windows_paths,
    wsl.check_wsl_settings,
    serving.check_gates,
    references.check_unused,
)

UNDER_WSL = {"host/wsl/settings/experimental/autoMemoryReclaim": "disabled"}
"""Makes the rig one under WSL, and gives no cause for a finding by itself."""


@dataclass(frozen=True)
class Case:
    """Changes to the rig with two GPUs, and what is to be said of it: nothing where there is no code.

    `at` is the text that the finding's place points at; `message` and `help` are words of both.
    """

    changes: dict[str, Any]
    code: str | None = None
    at: str = ""
    message: str = ""
    help: str = ""
    severity: Severity = "error"
    wsl: bool = field(default=False, kw_only=True)

    def declared(self) -> Declared:
        """The rig as it is changed."""
        return changed(gpu_rig(), (UNDER_WSL if self.wsl else {}) | self.changes)


class _Dumper(yaml.SafeDumper):
    """Quotes what is text in YAML 1.1 alone: in YAML 1.2, which an inventory is, `08` is a number."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if text[:1] == "0" and text.isdecimal() else None
    ),
)


def findings_of(declared: Declared, folder: Path) -> list[Finding]:
    """What all of these checks say, of the rig written to a file."""
    file = folder / "rig.yaml"
    file.write_text(yaml.dump(declared, Dumper=_Dumper, sort_keys=False, width=1000), encoding="utf-8")
    document = read_yaml(file)
    subject = RigContext(rig_facts(Rig.model_validate(document.data, context={"folder": folder}), {}), document)
    return [finding for check in CHECKS for finding in check(subject)]


def assert_said(case: Case, folder: Path) -> None:
    """That exactly this is said, and at that place."""
    findings = findings_of(case.declared(), folder)
    if case.code is None:
        assert findings == []
        return
    (finding,) = findings
    assert (finding.code, finding.severity) == (case.code, case.severity)
    line = finding.place.file.read_text(encoding="utf-8").splitlines()[finding.place.line - 1]
    assert line[finding.place.column - 1 :].startswith(case.at), line
    assert case.message in finding.message
    assert case.help in finding.help
