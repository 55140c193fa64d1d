"""A folder that stands in for a host's /dev and /proc, and the programs about GPUs run in it.

Faked are nvidia-smi, whose GPUs live in a file, and the root of the paths that the programs read.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from roles.serve.onhost import gpu_programs
from tests.support import nvidia_smi

FIRST_NAMESPACE = "pid:[4026531836]"
OLD = nvidia_smi.card("GPU-3090", "00000000:01:00.0", "NVIDIA GeForce RTX 3090", None)
NEW = nvidia_smi.card("GPU-5090", "00000000:21:00.0", "NVIDIA GeForce RTX 5090", None)


@dataclass
class GpuHost:
    """The folder: `dev` and `proc` beside the state of the stand-in."""

    folder: Path

    def put(self, *cards: nvidia_smi.Card, **state: Any) -> None:
        """These GPUs are what nvidia-smi knows; `broken` is what it says instead."""
        (self.folder / "cards.json").write_text(json.dumps({"cards": cards, **state}))

    def dev(self, *names: str) -> None:
        """Devices of these names, which are plain files here."""
        for name in names:
            (self.folder / "dev" / name).touch()

    def modules(self, *names: str) -> None:
        """What /proc/devices lists after what is always there."""
        lines = ["Character devices:", "  1 mem", *(f"{195 + number} {name}" for number, name in enumerate(names))]
        (self.folder / "proc" / "devices").write_text("\n".join([*lines, "", "Block devices:", "  7 loop", ""]))

    def kernel(self, release: str, namespace: str = FIRST_NAMESPACE) -> None:
        """The kernel's name, and the namespace of processes that all of this is in."""
        (self.folder / "proc" / "sys" / "kernel" / "osrelease").write_text(f"{release}\n")
        link = self.folder / "proc" / "self" / "ns" / "pid"
        link.unlink(missing_ok=True)
        link.symlink_to(namespace)

    def driver(self, minors: dict[str, int]) -> None:
        """What the driver's module tells of its GPUs: the minor of a device by the GPU's address."""
        for address, minor in minors.items():
            folder = self.folder / "proc" / "driver" / "nvidia" / "gpus" / address
            folder.mkdir(parents=True)
            told = ("Model: \t\t NVIDIA GeForce", f"Bus Location: \t {address}", f"Device Minor: \t {minor}", "")
            (folder / "information").write_text("\n".join(told))

    def process(self, pid: int, *devices: str) -> None:
        """A process that holds these devices open, and a log."""
        folder = self.folder / "proc" / str(pid) / "fd"
        folder.mkdir(parents=True)
        for number, name in enumerate(("null", *devices)):
            (folder / str(number)).symlink_to(f"/dev/{name}")

    def here(self, text: str) -> str:
        """A script, as if this folder were /."""
        for part in ("/dev/nvidia", "/dev/dxg", "/proc/devices", "/proc/sys", "/proc/self", "/proc/driver", '"/proc/$'):
            quote = '"' if part.startswith('"') else ""
            # A pattern for what a link says is no path of this folder's.
            text = text.replace(f" -> {part}", " -> KEEP").replace(part, f"{quote}{self.folder}{part.strip(quote)}")
            text = text.replace(" -> KEEP", f" -> {part}")
        return text

    def run(self, name: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a program in this process: its exit code, and what it printed."""
        out, err = io.StringIO(), io.StringIO()
        here = patch.object(gpu_programs, "ROOT", self.folder)
        with patch.dict(os.environ, self.environment), here, redirect_stdout(out), redirect_stderr(err):
            code = gpu_programs.main(name, arguments)
        return subprocess.CompletedProcess([name, *arguments], code, out.getvalue(), err.getvalue())

    def start(self, name: str, arguments: Sequence[str]) -> subprocess.Popen[str]:
        """Start a program as a unit does: the file by its path, with the system's own Python."""
        program = self.folder / name
        text = Path(gpu_programs.__file__).read_text()
        program.write_text(text.replace('ROOT = Path("/")', f"ROOT = Path({str(self.folder)!r})"))
        program.chmod(0o755)
        env = {**self.environment, "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin"}
        pipe = subprocess.PIPE
        return subprocess.Popen([program, *arguments], env=env, stdout=pipe, stderr=pipe, text=True)

    @property
    def environment(self) -> dict[str, str]:
        """Where the stand-in comes before a real program."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return {"PATH": path, "FAKE_CARDS": str(self.folder / "cards.json")}


def gpu_host(folder: Path, *cards: nvidia_smi.Card) -> GpuHost:
    """A host with these GPUs and all that their driver brings; no process uses them."""
    host = GpuHost(folder)
    for part in ("bin", "dev", "proc/self/ns", "proc/sys/kernel"):
        (folder / part).mkdir(parents=True)
    program = folder / "bin" / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {nvidia_smi.__file__} "$@"\n')
    program.chmod(0o755)
    host.put(*cards)
    host.dev("nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(len(cards))))
    host.modules("nvidia", "nvidiactl", "nvidia-uvm")
    host.kernel("6.8.0-88-generic")
    return host
