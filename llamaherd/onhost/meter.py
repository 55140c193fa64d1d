"""Watch a host while a server on it is measured: a line of JSON for each reading, until the connection ends.

It also ends after `lasts` seconds, or after `silence` seconds without a line of the controller: `ping N`, `mark NAME`
or `look`. However it ends, its child processes end too. Its lines are no events, as there are many.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from typing import Any

from llamaherd.onhost.clients import unit_properties
from llamaherd.onhost.gauges import Here, MeterInput
from llamaherd.onhost.gpu_sources import GpuSources, Line, end_with_parent, name_process, serve_library
from llamaherd.onhost.system import System
from llamaherd.onhost.verbs import Verb

PROCESS = "llamaherd-meter"
"""The name of the process: the program of other verbs has the same command line."""
RECEIVED, WRITTEN = 0, 1
"""The descriptors of the controller's lines and of the meter's lines."""
LONGEST = 4096
"""Bytes of a line of the controller."""
FIRST = 15
"""Seconds that GPUs may take for their first line. After them, the first costly reading begins without GPUs."""
RESPONSE, LAST = 3.0, 0.5
"""Seconds that GPUs may take for a response, and for the last response, after the connection may have ended."""
LATE = 10
"""Seconds that the meter may end after its time: a costly reading takes some."""
_DOCKER_SECONDS = 20
_MOST_CHILDREN = 4096
_SPEC = '{{.State.Pid}} {{index .Config.Labels "llamaherd.spec"}}'


class EndedError(Exception):
    """The end of a meter; contains the reason."""


class Meter:
    """Writes readings as they are due, and those that the controller requests."""

    def __init__(self, given: MeterInput, here: Here, sources: GpuSources) -> None:
        self.given, self.here, self.left = given, here, given.most
        self.sources = sources
        self.heard, self.received = time.monotonic(), b""
        self.has_gpu_line = False

    def write_line(self, kind: str, **values: Any) -> None:
        """Write one line. Raise EndedError if all lines together are too long."""
        line = json.dumps({"k": kind, "t": round(time.monotonic(), 5), **values}, separators=(",", ":")) + "\n"
        self.left -= len(line)
        if self.left < 0:
            raise EndedError("full")
        data = line.encode()
        while data:
            data = data[os.write(WRITTEN, data) :]

    def run(self) -> None:
        """Write lines until the end. The last line contains the reason."""
        why = "error"
        try:
            every = self.given.every
            self.write_line("hello", wall=time.time(), every=every, **self.sources.standing, **self.here.standing())
            self.hand_on(self.sources.start(every))
            self.watch()
        except EndedError as ended:
            why = str(ended)
            self.left += LONGEST
            with suppress(OSError, EndedError):
                # A last reading: the measured run may have ended since the reading before.
                self.sources.library.request("count")
                self.count()
                self.write_line("host", own=self.own(), **self.here.figures())
                self.wait("now", LAST)
        except BrokenPipeError:
            return
        finally:
            own = self.own()
            self.sources.end()
        self.left += LONGEST
        with suppress(OSError):
            self.write_line("bye", why=why, own=own)

    def watch(self) -> None:
        """Read the gauges that are due, and the lines of the controller."""
        every = self.given.every if self.here.rapl.ranges else max(1.0, self.given.every)
        began = time.monotonic()
        ticks, inspected = 0, False
        while True:
            now = time.monotonic()
            if now - began > self.given.lasts:
                raise EndedError("time")
            if now - self.heard > self.given.silence:
                raise EndedError("silence")
            if now >= began + ticks * every:
                if self.here.rapl.ranges:
                    self.count()
                if ticks % max(1, round(1 / every)) == 0:
                    self.write_line("host", own=self.own(), **self.here.figures())
                # Readings that are overdue are skipped.
                ticks = int((time.monotonic() - began) / every) + 1
            if not inspected and now - began > (1 if self.has_gpu_line or not self.sources.running else FIRST):
                inspected = True
                self.write_usage()
            self.hear(max(0.0, began + ticks * every - time.monotonic()))

    def count(self, **mark: str) -> None:
        """Write the counters of the processor. Those of GPUs are lines of their own."""
        before = time.monotonic()
        counters = self.here.rapl.energy()
        self.write_line("count", **{**mark, "mj": {}, "uj": counters, "t": round((before + time.monotonic()) / 2, 5)})

    def hear(self, seconds: float) -> None:
        """Wait so long for lines of GPUs and of the controller."""
        running = self.sources.running
        for pipe in select.select([RECEIVED, *running], [], [], seconds)[0]:
            if pipe == RECEIVED:
                self.run_commands()
                continue
            try:
                self.hand_on(running[pipe].heard())
            except OSError:
                running[pipe].end()
                self.write_line("gone")

    def hand_on(self, lines: Iterable[Line]) -> None:
        """Write lines of GPUs."""
        for kind, values in lines:
            if kind != "apps":
                self.has_gpu_line = self.has_gpu_line or kind == "gpu"
                self.write_line("count" if kind == "now" else kind, **values)

    def wait(self, kind: str, seconds: float) -> Any:
        """Return the library's report; None if it does not respond in time."""
        lines: list[Line] = []
        came = self.sources.library.wait(kind, seconds, lines)
        self.hand_on(lines)
        return next(values for each, values in lines if each == kind) if came else None

    def run_commands(self) -> None:
        """Run the command of the controller. Raise EndedError at the end of the connection."""
        piece = os.read(RECEIVED, LONGEST)
        if not piece:
            raise EndedError("nobody")
        self.heard = time.monotonic()
        *lines, self.received = (self.received + piece).split(b"\n")
        if len(self.received) > LONGEST:
            raise EndedError("nonsense")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "ping":
                self.write_line("pong", n=rest[:40])
            elif word == "mark":
                self.sources.library.request("count")
                self.wait("now", LAST)
                self.count(mark=rest[:80])
                self.write_line("host", own=self.own(), **self.here.figures())
            elif word == "look":
                self.write_usage()

    def write_usage(self) -> None:
        """Write the readings that cost more. They are read at the beginning and on demand."""
        self.sources.library.request("apps")
        found = self.wait("apps", RESPONSE) or {"apps": None}
        self.write_line("look", **self.here.usage([os.getpid(), *self.sources.pids], found["apps"]))

    def own(self) -> int:
        """Return the microseconds of processor time of this process and of all its children."""
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        running: int = sum(map(self.here.computed, self.sources.pids))
        return round(ours * 1_000_000) + running


def watch(given: MeterInput, system: System) -> None:
    """Write readings of this host and the server on it, until the connection ends."""
    end_with_parent()
    name_process(PROCESS)
    pid, spec = find_server(given, system)
    virtual = system.run(["systemd-detect-virt"]).out.strip()
    here = Here(given, pid, spec, virtual)
    run_meter(given, here, lambda: GpuSources(serve_library, given.every))


def run_meter(given: MeterInput, here: Here, sources: Callable[[], GpuSources]) -> None:
    """Write readings for `lasts` seconds at most, also where a full pipe blocks this program."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(each, signal.SIG_DFL)
    signal.alarm(int(given.lasts) + LATE)
    sys.stdout.flush()
    Meter(given, here, sources()).run()


def find_server(given: MeterInput, system: System) -> tuple[int, str]:
    """Return the first process of the server, 0 if it does not run, and its spec if its variables do not contain it.

    For a server of several models, return the process of the loaded model, which ends with a swap.
    """
    if given.backend != "systemd":
        inspect = ["docker", "inspect", "--type", "container", "--format", _SPEC, given.service]
        pid, _, spec = system.run(inspect, seconds=_DOCKER_SECONDS).out.strip().partition(" ")
        return _number(pid), spec
    router = _number(unit_properties(system, f"{given.service}.service", "MainPID").get("MainPID", ""))
    if not given.loaded or not router:
        return router, ""
    return next((each for each in _children(router, system) if _alias(each, system) == given.loaded), 0), ""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _children(pid: int, system: System) -> list[int]:
    """Return the processes that each thread of a process has started."""
    folder = f"/proc/{pid}/task"
    texts = [system.read(f"{folder}/{task}/children") or "" for task in system.names(folder)]
    return [number for text in texts for each in text.split()[:_MOST_CHILDREN] if (number := _number(each))]


def _alias(pid: int, system: System) -> str:
    """Return the name under which a process serves its model."""
    words = (system.read(f"/proc/{pid}/cmdline") or "").split("\0")
    return next((name for flag, name in pairwise(words) if flag == "--alias"), "")


VERBS = {"watch": Verb(MeterInput, watch)}
