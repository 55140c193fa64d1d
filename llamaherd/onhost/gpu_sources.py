"""Where the state of GPUs is read: NVIDIA's library in a process of its own, or nvidia-smi.

Both end with this program.
"""

from __future__ import annotations

import ctypes
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/usr/lib/wsl/lib"
LONGEST_LINE = 1 << 17
"""Bytes of the longest line, which lists all processes of all cards."""
SLOW = 15
"""Seconds that a source may take for its first line."""
PDEATHSIG, PR_SET_NAME = 1, 15  # linux/prctl.h
LIBC = ctypes.CDLL(None)

Line = tuple[str, dict[str, Any]]
"""A line: its kind and its values."""
Serve = Callable[[float, int, int], None]
"""Reads the library: how often, the descriptor of its requests, and that of its output."""

STREAMED = {
    "uuid": ("uuid",),
    "watts": ("power.draw.instant",),
    "mean_watts": ("power.draw.average", "power.draw"),
    "limit": ("power.limit",),
    "celsius": ("temperature.gpu",),
    "sm_mhz": ("clocks.sm", "clocks.current.sm"),
    "memory_mib": ("memory.used",),
    "generation": ("pcie.link.gen.gpucurrent", "pcie.link.gen.current"),
    "lanes": ("pcie.link.width.current",),
    "reasons": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
}
"""Fields that nvidia-smi reports again and again, with their names: a driver that lacks one field reports none."""
STANDING = {
    "uuid": ("uuid",),
    "pci": ("pci.bus_id",),
    "driver": ("driver_version",),
    "vbios": ("vbios_version",),
    "default_limit": ("power.default_limit",),
    "most_sm_mhz": ("clocks.max.sm",),
    "most_memory_mhz": ("clocks.max.memory",),
    "ecc": ("ecc.mode.current",),
    "memory_mib": ("memory.total",),
    # The name is last: it may contain a comma.
    "name": ("name",),
}
"""Fields that nvidia-smi reports once. The library reports the same fields."""


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, for whatever reason."""
    LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def name_process(name: str) -> None:
    """Name this process, as `ps` and `pgrep` show it: up to 15 bytes. Its forks have the same name."""
    LIBC.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def end_with(parent: int) -> None:
    """Do as `end_with_parent` in a process that has just begun: its parent may have ended already."""
    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def let_go(kept: tuple[int, int]) -> None:
    """Close the connection in this process: it belongs to the program, which ends with it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        if descriptor not in kept:
            os.dup2(nothing, descriptor)


class Lines:
    """The output of a process. Raises OSError where it has ended, or writes a line without end."""

    def __init__(self, output: int) -> None:
        self.output, self.begun = output, b""

    def read(self) -> list[str]:
        """Return whole lines."""
        piece = os.read(self.output, 1 << 16)
        if not piece:
            raise OSError("it has ended")
        *whole, self.begun = (self.begun + piece).split(b"\n")
        if len(self.begun) > LONGEST_LINE:
            raise OSError("a line without end")
        return [line.decode(errors="replace").strip() for line in whole]


class Library:
    """The library in a process of its own: a hang in the driver, or a crash, stops that process alone."""

    def __init__(self, serve: Serve, every: float) -> None:
        self.output, theirs = os.pipe()
        requests, self.input = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            with suppress(BaseException):
                os.close(self.output)
                os.close(self.input)
                end_with(parent)
                let_go((requests, theirs))
                serve(every, requests, theirs)
            os._exit(0)
        os.close(theirs)
        os.close(requests)
        # A process that hangs does not empty the pipe.
        os.set_blocking(self.input, False)
        self.lines = Lines(self.output)
        self.left: list[Line] = []
        self.failed = False
        self.hello: dict[str, Any] = {"why": "NVIDIA's library does not respond", "why_smi": "", "lacks": {}}
        self.wait("hello", SLOW, self.left)
        if self.failed:
            self.hello |= dict.fromkeys(("why", "why_smi"), "NVIDIA's library fails")
        if not self.hello.get("serves"):
            self.end()

    def heard(self) -> list[Line]:
        """Return the lines since the last call. Raises OSError where the process has ended."""
        lines: list[Line] = []
        for line in self.lines.read():
            kind, values = json.loads(line)
            if kind == "hello":
                self.hello = values
            lines.append((kind, values))
        return lines

    def wait(self, kind: str, seconds: float, lines: list[Line]) -> bool:
        """Return whether a line of a kind came within so many seconds. All lines since are added to `lines`."""
        until = time.monotonic() + seconds
        try:
            while self.output >= 0 and (left := until - time.monotonic()) > 0:
                if select.select([self.output], [], [], left)[0]:
                    lines += self.heard()
                if any(each == kind for each, _ in lines):
                    return True
        except OSError:
            self.failed = True
        return False

    def ask(self, word: str) -> None:
        """Request a line now: `count` or `apps`."""
        with suppress(OSError):
            if self.output >= 0:
                os.write(self.input, word.encode() + b"\n")

    def end(self) -> None:
        """End the process. One that hangs in the driver is not waited for."""
        if self.output < 0:
            return
        os.kill(self.pid, signal.SIGKILL)
        for _ in range(50):
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                break
            time.sleep(0.01)
        os.close(self.output)
        os.close(self.input)
        self.output = -1


class Smi:
    """The driver's own program, which costs more: queried for its fields, then running until this ends."""

    def __init__(self) -> None:
        self.program = shutil.which("nvidia-smi", path=PATH)
        self.why = ""
        self.fields: list[str] = []
        self.query: list[str] = []
        self.standing: list[str] = []
        self.cards: list[str] = []
        self.process: Any = None
        self.output, self.complaints = -1, 0
        if not self.program:
            self.why = "there is no nvidia-smi"
            return
        code, said = self.ask("--help-query-gpu")
        known = set(re.findall(r'"([a-z0-9_.]+)"', said))
        if not known:
            self.why = said.strip().partition("\n")[0][:200] or f"nvidia-smi ended with {code}"
            return
        self.fields, names = self.chosen(STREAMED, known)
        self.standing, standing = self.chosen(STANDING, known)
        code, said = self.ask(f"--query-gpu={','.join(standing)}", "--format=csv,noheader,nounits")
        lines = said.splitlines()[:16]
        if code or not lines:
            self.why = (lines or [f"nvidia-smi ended with {code}"])[0][:200]
            return
        self.cards = lines
        self.query = [self.program, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]

    def chosen(self, wished: Mapping[str, tuple[str, ...]], known: set[str]) -> tuple[list[str], list[str]]:
        """Return the fields that the driver has: our names, and the driver's names."""
        found = {key: next((name for name in names if name in known), "") for key, names in wished.items()}
        return [key for key, name in found.items() if name], [name for name in found.values() if name]

    def ask(self, *arguments: str) -> tuple[int, str]:
        """Return its exit code and output. A driver that hangs is not waited for."""
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [self.program or "", *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=20,
                preexec_fn=end_with_parent,
                check=False,
            )
            return done.returncode, done.stdout[: 1 << 20].decode(errors="replace")
        return 124, "nvidia-smi does not respond"

    def start(self, every: float) -> None:
        """Start nvidia-smi in a loop. Its output is a terminal, so that it prints each line at once."""
        if self.why:
            return
        self.output, theirs = pty.openpty()
        self.lines = Lines(self.output)
        parent, command = os.getpid(), [*self.query, "-lms", str(max(20, round(every * 1000)))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, preexec_fn=lambda: end_with(parent)
        )
        os.close(theirs)

    def heard(self) -> list[Line]:
        """Return its lines of cards, and the first ones of other lines. Raises OSError where it has ended."""
        lines: list[Line] = []
        for line in self.lines.read():
            if line.count(",") == len(self.fields) - 1:
                lines.append(("gpu", {"csv": line[:1024]}))
            elif line and self.complaints < 5:
                self.complaints += 1
                lines.append(("said", {"text": line[:200]}))
        return lines

    def end(self) -> None:
        """End the process. One that hangs in the driver is not waited for."""
        if self.process:
            self.process.kill()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)
        if self.output >= 0:
            os.close(self.output)
            self.output = -1


class GpuSources:
    """All sources. nvidia-smi is used if the library does not report the state of cards."""

    def __init__(self, serve: Serve, every: float) -> None:
        self.library = Library(serve, every)
        hello = self.library.hello
        self.why_smi = hello["why_smi"]
        self.smi = Smi() if self.why_smi else None
        self.standing = {
            "card_fields": self.smi.standing if self.smi else list(STANDING),
            "cards": self.smi.cards if self.smi else hello.get("cards", []),
            "fields": self.smi.fields if self.smi else ["uuid", *hello.get("fields", [])],
            "no_smi": self.smi.why if self.smi else hello["why"],
            "why_smi": self.why_smi,
            "no_nvml": hello["why"],
            "no_counter": hello["lacks"],
        }

    def start(self, every: float) -> list[Line]:
        """Begin, and return what the library has reported by now."""
        if self.smi:
            self.smi.start(every)
        return [each for each in self.library.left if each[0] != "hello"]

    @property
    def running(self) -> dict[int, Any]:
        """Return the sources that run, by the descriptors of their output."""
        return {each.output: each for each in (self.library, self.smi) if each and each.output >= 0}

    @property
    def pids(self) -> list[int]:
        """Return their processes."""
        smi = self.smi.process.pid if self.smi and self.smi.output >= 0 else 0
        return [pid for pid in (self.library.pid if self.library.output >= 0 else 0, smi) if pid]

    def end(self) -> None:
        """End them."""
        for each in list(self.running.values()):
            each.end()
