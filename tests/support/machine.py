"""Machines as trees of /sys and /proc, which are inspected with a fake lspci where requested."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from llamaherd.onhost.hardware import MachineState, inspect_machine
from llamaherd.onhost.system import Host

SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
KERNEL = "6.8.0-88-generic"


@dataclass(frozen=True)
class Machine:
    """A folder that the script takes for the root of a host, and programs that it finds before the real ones."""

    root: Path

    @classmethod
    def made(cls, root: Path) -> Machine:
        """A PC with a kernel, RAM and a bus that has no GPU."""
        machine = cls(root)
        machine.put("proc/sys/kernel/osrelease", f"{KERNEL}\n")
        machine.put("proc/meminfo", "MemTotal:       197650532 kB\nMemFree:        1 kB\n")
        machine.put(f"boot/vmlinuz-{KERNEL}")
        machine.put("proc/locks")
        machine.device("0000:00:00.0", "0x1022", "0x060000", "0x14d8")
        # What surrounds these tests is no machine to tell of.
        machine.program("systemd-detect-virt", "echo none; exit 1")
        machine.program("lspci", "exit 127")
        machine.program("nvidia-smi", "exit 127")
        return machine

    def put(self, path: str, content: str | bytes = "") -> Path:
        """A file."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def device(self, address: str, vendor: str, kind: str, device: str, driver: str = "") -> None:
        """A device on the bus."""
        folder = f"sys/bus/pci/devices/{address}"
        for name, value in (("vendor", vendor), ("class", kind), ("device", device)):
            self.put(f"{folder}/{name}", f"{value}\n")
        if driver:
            (self.root / folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")

    def card(self, address: str, device: str, driver: str = "") -> None:
        """A GPU of NVIDIA's with its sound device, which is no GPU."""
        self.device(address, "0x10de", "0x030000", f"0x{device}", driver)
        self.device(address.replace(".0", ".1"), "0x10de", "0x040300", "0x22ba", "snd_hda_intel")

    def program(self, name: str, script: str) -> None:
        """A stand-in for a program of the host."""
        file = self.put(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def snapshot(self) -> MachineState:
        """Return what an inspection finds."""
        with patch.dict(os.environ, {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}):
            return inspect_machine(Host(print, print), has_gpus=True, root=str(self.root))
