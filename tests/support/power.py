"""Rigs whose GPUs are held to limits, clocks and fan speeds, and the programs that do it, run against stand-ins."""

from __future__ import annotations

import ctypes
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from llamaherd.host.responses import ProbeOutputs
from llamaherd.layout import POWER_RUN
from llamaherd.onhost.system import Host as System
from llamaherd.onhost.verbs import NoInput
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Plan
from roles.gpus.onhost import Found, inspect
from roles.power.onhost import gpu_fans, gpu_power
from tests.support import nvidia_smi, nvml
from tests.support.ours import probed
from tests.support.rigs import gpu_rig, planned

OLD, NEW = "gpus/cards/old/", "gpus/cards/new/"
BOTH = {OLD + "power_limit": "280W", NEW + "power_limit": "450W", NEW + "clocks": {"max": "2400MHz"}}
"""The older GPU has a limit, the newer one a limit and clocks."""

_RUN = gpu_power.run
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
        """Run the program in this process, with the plan's program for fans; `hold` is given the plan's table."""
        assert plan.power
        (self.folder / "gpu-fans.py").write_text(plan.power.fans.text)
        (self.folder / "table").write_text(plan.power.table.text)
        return self.call(*command, *([str(self.folder / "table")] if command == ("hold",) else []))

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program in this process, with these arguments."""
        out, err = io.StringIO(), io.StringIO()
        environment, played = patch.dict(os.environ, self.environment), patch.object(gpu_power, "run", self._play)
        with environment, played, redirect_stdout(out), redirect_stderr(err):
            code = gpu_power.main(self.folder / "gpu-power", arguments)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def _play(self, words: Sequence[str]) -> tuple[int, str]:
        """Run a stand-in in this process: hundreds of processes would take minutes. What is no stand-in is started."""
        program = self.folder / "bin" / words[0]
        if not program.is_file() or program.read_text() not in (_smi(), _fans()):
            return _RUN(words)
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            if words[0] == "nvidia-smi":
                with patch.object(nvidia_smi, "STATE", self.folder / "cards.json"):
                    code = _code(lambda: nvidia_smi.main([*words[1:]]))
            else:
                with patch.object(ctypes, "CDLL", nvml.Library):
                    code = _code(lambda: gpu_fans.main([*words[1:]]))
        return code, out.getvalue()

    def gpus(self) -> Found:
        """Return what the role of GPUs finds on this host."""
        with patch.dict(os.environ, self.environment):
            return inspect(NoInput(), System(print, print))

    def probe(self, probes: Iterable[Probe]) -> ProbeOutputs:
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


def _code(main: Callable[[], int | None]) -> int:
    """Return the exit code of a program."""
    try:
        return main() or 0
    except SystemExit as error:
        return int(error.code or 0)


def _smi() -> str:
    """Return the script that starts the stand-in for nvidia-smi."""
    return f'#!/bin/sh\nexec {sys.executable} -IS {nvidia_smi.__file__} "$@"\n'


def _fans() -> str:
    """Return the script that starts the program for fans with the stand-in for NVML."""
    return f'#!/bin/sh\nexec {sys.executable} -IS {nvml.__file__} "$0.py" "$@"\n'


def host(folder: Path, *cards: nvidia_smi.Card) -> Host:
    """A host with these GPUs."""
    made = Host(folder)
    (folder / "bin").mkdir()
    program = folder / "bin" / "nvidia-smi"
    program.write_text(_smi())
    program.chmod(0o755)
    # Beside the program, as on a host. It is the real one: what is faked is NVIDIA's library.
    fans = folder / "gpu-fans"
    fans.write_text(_fans())
    fans.chmod(0o755)
    made.put(*cards)
    return made
