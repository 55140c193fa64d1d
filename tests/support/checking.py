"""What the checks that need no header and no catalogue say about a rig."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from llamaherd.checks import (
    cache,
    compiling,
    containers,
    driver,
    efficiency,
    expecting,
    gpus,
    groups,
    images,
    judging,
    meant,
    processor,
    references,
    serving,
    splitting,
    toolchain,
    unused,
    wsl,
)
from llamaherd.checks.context import RigCheck, RigContext
from llamaherd.diagnostics.findings import Finding, Severity
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yamlfile import read_yaml
from tests.support.rigs import Declared, changed, gpu_rig

CHECKS: tuple[RigCheck, ...] = (
    toolchain.toolkit,
    compiling.compiling,
    toolchain.architectures,
    driver.driver,
    containers.container_toolkit,
    gpus.identities,
    gpus.clocks,
    gpus.under_wsl,
    gpus.power,
    expecting.expecting,
    judging.gate_judged,
    judging.judged,
    efficiency.efficiency,
    efficiency.tried_limits,
    splitting.splitting,
    lambda subject: meant.together(meant.clashing(subject)),
    cache.cache_types,
    groups.lone_members,
    groups.alike,
    groups.swaps,
    references.one_owner_of_a_port,
    images.images,
    processor.performance_cores,
    processor.threads,
    processor.shared_cores,
    processor.affinity,
    wsl.wsl_memory,
    wsl.reclaimed,
    wsl.windows_profile,
    wsl.windows_paths,
    wsl.wsl_settings,
    serving.gates,
    unused.unused,
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
    subject = RigContext(Rig.model_validate(document.data, context={"folder": folder}), document)
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
