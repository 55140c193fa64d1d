"""Rigs whose GPUs are held to limits, clocks and fan speeds, and the programs that do it, run against stand-ins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from llamaherd.host.answers import Answers
from llamaherd.layout import POWER_RUN
from llamaherd.onhost.system import Host as System
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Plan
from roles.gpus.onhost import Found, Question, inspect
from tests.support import nvidia_smi, nvml
from tests.support.ours import probed
from tests.support.rigs import gpu_rig, planned

OLD, NEW = "gpus/cards/old/", "gpus/cards/new/"
BOTH = {OLD + "power_limit": "280W", NEW + "power_limit": "450W", NEW + "clocks": {"max": "2400MHz"}}
"""The older GPU has a limit, the newer one a limit and clocks."""

OLD_CARD = nvidia_smi.card("GPU-3090", "00000000:01:00.0", "NVIDIA GeForce RTX 3090", (350.0, 100.0, 366.0))
NEW_CARD = nvidia_smi.card("GPU-5090", "00000000:21:00.0", "NVIDIA GeForce RTX 5090", (575.0, 400.0, 600.0))


def held(changes: Mapping[str, Any]) -> Plan:
    """The plan of the rig with two GPUs, which have these limits, clocks and fan speeds."""
    return planned(gpu_rig(), changes)


@dataclass
class Host:
    """A folder with GPUs, the program's notes, and what it is told."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Where the stand-in comes before the real program, if there is one."""
        notes, path = self.folder / "notes", f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return {"PATH": path, "RUNTIME_DIRECTORY": str(notes), "FAKE_CARDS": str(self.folder / "cards.json")}

    @property
    def state(self) -> dict[str, Any]:
        """The GPUs and what was changed."""
        state: dict[str, Any] = json.loads((self.folder / "cards.json").read_text())
        return state

    @property
    def changes(self) -> list[str]:
        """What GPUs were told, in that order."""
        return list(self.state.get("changes", []))

    @property
    def notes(self) -> dict[str, str]:
        """The program's notes, by UUID."""
        return {file.name: file.read_text().strip() for file in (self.folder / "notes").glob("*")}

    def put(self, *cards: nvidia_smi.Card, **state: Any) -> None:
        """These GPUs are in the host, and nothing was changed yet."""
        (self.folder / "cards.json").write_text(json.dumps({"cards": cards, **state}))

    def card(self, uuid: str) -> nvidia_smi.Card:
        """One of them as it is now."""
        (found,) = (card for card in self.state["cards"] if card["uuid"] == uuid)
        return dict(found)

    def edit(self, uuid: str, **values: Any) -> None:
        """Somebody else changes a GPU, or it is not what it was; what was changed so far is forgotten."""
        self.put(*(card | (values if card["uuid"] == uuid else {}) for card in self.state["cards"]))

    def run(self, plan: Plan, *command: str) -> subprocess.CompletedProcess[str]:
        """The program of a plan; `hold` is given the plan's table."""
        assert plan.power
        program, table = self.folder / "gpu-power", self.folder / "table"
        program.write_text(plan.power.program.text)
        (self.folder / "gpu-fans.py").write_text(plan.power.fans.text)
        table.write_text(plan.power.table.text)
        told = [*command, str(table)] if command == ("hold",) else list(command)
        return self.shell([str(program), *told])

    def gpus(self) -> Found:
        """Return what the role of GPUs finds on this host."""
        with patch.dict(os.environ, self.environment):
            return inspect(Question(), System(print, print))

    def probe(self, probes: Iterable[Probe]) -> Answers:
        """Return what probes print, with the notes of this host."""
        notes = str(self.folder / "notes")
        here = [replace(each, argv=tuple(word.replace(str(POWER_RUN), notes) for word in each.argv)) for each in probes]
        with patch.dict(os.environ, self.environment):
            return probed(here, System(print, print))

    def shell(self, arguments: list[str], script: str = "") -> subprocess.CompletedProcess[str]:
        """As the host's own shell would."""
        return subprocess.run(
            ["/bin/sh", *arguments], env=self.environment, input=script, capture_output=True, text=True, check=False
        )


def host(folder: Path, *cards: nvidia_smi.Card) -> Host:
    """A host with these GPUs."""
    made = Host(folder)
    (folder / "bin").mkdir()
    program = folder / "bin" / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {nvidia_smi.__file__} "$@"\n')
    program.chmod(0o755)
    # Beside the program, as on a host. It is the real one: what is faked is NVIDIA's library.
    fans = folder / "gpu-fans"
    fans.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {nvml.__file__} "$0.py" "$@"\n')
    fans.chmod(0o755)
    made.put(*cards)
    return made
