"""Watches a host while a server on it is measured: a line of JSON for each reading, until nobody listens any more.

It ends when its input does, after `lasts` seconds, or when nothing was said to it for `silence` seconds. It is told
lines: `ping N`, `mark NAME`, `look`. Nothing that it starts outlives it, whatever kills it.
"""

# For Python 3.10 and its standard library alone. What reads the host comes before it in the same program, as `here`.
import ctypes
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

TOLD = 3
"""The descriptor that it is told something on: its program came on stdin."""
PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/usr/lib/wsl/lib"
LONGEST = 4096
"""Bytes of a line, either way."""
SLOW = 15
"""Seconds that nvidia-smi may take for its first line, before we look without it."""
LATE = 10
"""Seconds that it may end later than it was to: a look takes some."""
PROMPT = 0.005
"""Seconds that reading all counters may take, for their time to be known well."""
PDEATHSIG = 1  # linux/prctl.h
LIBC = ctypes.CDLL(None)

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
"""What is asked of cards all the time, and by which names: a driver that lacks one field answers to none."""
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
    # Nobody promises that it has no comma.
    "name": ("name",),
}
"""What is asked of them once."""


class EndedError(Exception):
    """It is over, and why."""


def end_with_parent() -> None:
    """Have this process killed when its parent is gone, however that one ends."""
    LIBC.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Smi:
    """The driver's own program: asked which fields it knows, then running until this ends."""

    def __init__(self) -> None:
        self.program = shutil.which("nvidia-smi", path=PATH)
        self.why = ""
        self.fields: list[str] = []
        self.query: list[str] = []
        self.standing: list[str] = []
        self.cards: list[str] = []
        self.process: Any = None
        self.output, self.begun = -1, b""
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
        """Our names of what can be asked, and the driver's."""
        found = {key: next((name for name in names if name in known), "") for key, names in wished.items()}
        return [key for key, name in found.items() if name], [name for name in found.values() if name]

    def ask(self, *arguments: str) -> tuple[int, str]:
        """What it says to a question. A driver that hangs is not waited for."""
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
        return 124, "nvidia-smi does not answer"

    def start(self, every: float) -> None:
        """Have it say how all cards are, again and again. To a terminal it says each line at once."""
        if self.why:
            return
        self.output, theirs = pty.openpty()
        parent, command = os.getpid(), [*self.query, "-lms", str(max(20, round(every * 1000)))]

        def ours_alone() -> None:
            end_with_parent()
            if os.getppid() != parent:
                os._exit(1)

        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, preexec_fn=ours_alone
        )
        os.close(theirs)

    def lines(self) -> list[str]:
        """What it has said since. Raises OSError where it has ended."""
        piece = os.read(self.output, 1 << 16)
        if not piece:
            raise OSError
        *whole, self.begun = (self.begun + piece).split(b"\n")
        if len(self.begun) > LONGEST:
            raise OSError
        return [line.decode(errors="replace").strip()[:1024] for line in whole]

    def end(self) -> None:
        """Have it gone."""
        if self.process:
            self.process.kill()
            self.process.wait()
        if self.output >= 0:
            os.close(self.output)
            self.output = -1


class Meter:
    """What is said, and when."""

    def __init__(self, asked: dict[str, Any], here: Any) -> None:
        self.asked, self.here, self.left = asked, here, int(asked["most"])
        self.smi = Smi()
        self.heard, self.told = time.monotonic(), b""
        self.complaints, self.seen = 0, False

    def say(self, kind: str, **values: Any) -> None:
        """One line. What nobody could keep any more ends it."""
        line = json.dumps({"k": kind, "t": round(time.monotonic(), 5), **values}, separators=(",", ":")) + "\n"
        self.left -= len(line)
        if self.left < 0:
            raise EndedError("full")
        data = line.encode()
        while data:
            data = data[os.write(1, data) :]

    def run(self) -> None:
        """Until it is over. Why is the last line."""
        why = "error"
        try:
            smi = self.smi
            standing = {"card_fields": smi.standing, "cards": smi.cards, "fields": smi.fields, "no_smi": smi.why}
            self.say("hello", wall=time.time(), every=self.asked["every"], **standing, **self.here.standing())
            smi.start(self.asked["every"])
            self.watch()
        except EndedError as ended:
            why = str(ended)
            self.left += LONGEST
            with suppress(OSError):
                # What was just measured may have ended after the last reading.
                self.count()
                self.say("host", own=self.own(), **self.here.figures())
        except BrokenPipeError:
            return
        finally:
            own = self.own()
            self.smi.end()
        self.left += LONGEST
        with suppress(OSError):
            self.say("bye", why=why, own=own)

    def watch(self) -> None:
        """Read what is due, hear what is said."""
        every, began = self.asked["every"], time.monotonic()
        ticks, looked = 0, False
        while True:
            now = time.monotonic()
            if now - began > self.asked["lasts"]:
                raise EndedError("time")
            if now - self.heard > self.asked["silence"]:
                raise EndedError("silence")
            if now >= began + ticks * every:
                self.count()
                if ticks % max(1, round(1 / every)) == 0:
                    self.say("host", own=self.own(), **self.here.figures())
                # What came too late is not made up for.
                ticks = int((time.monotonic() - began) / every) + 1
            if not looked and now - began > (1 if self.seen or self.smi.output < 0 else SLOW):
                looked = True
                self.look()
            self.hear(max(0.0, began + ticks * every - time.monotonic()))

    def count(self, **mark: str) -> None:
        """The counters, and when they were read: a busy host may hold us up between the two, and is asked again."""
        for _ in range(3):
            before = time.monotonic()
            counters = self.here.counters()
            after = time.monotonic()
            if after - before < PROMPT:
                break
        self.say("count", **{**mark, **counters, "t": round((before + after) / 2, 5)})

    def hear(self, seconds: float) -> None:
        """Wait so long for what nvidia-smi says, and for what is asked."""
        pipes = [TOLD, *([self.smi.output] if self.smi.output >= 0 else ())]
        for pipe in select.select(pipes, [], [], seconds)[0]:
            if pipe == TOLD:
                self.answer()
            else:
                self.cards()

    def cards(self) -> None:
        """Hand on what nvidia-smi says of cards, and the first of what else it says."""
        try:
            lines = self.smi.lines()
        except OSError:
            self.smi.end()
            self.say("gone")
            return
        for line in lines:
            if line.count(",") == len(self.smi.fields) - 1:
                self.seen = True
                self.say("gpu", csv=line)
            elif line and self.complaints < 5:
                self.complaints += 1
                self.say("said", text=line[:200])

    def answer(self) -> None:
        """Do what is asked. Nobody at the other end any more ends it."""
        piece = os.read(TOLD, LONGEST)
        if not piece:
            raise EndedError("nobody")
        self.heard = time.monotonic()
        *lines, self.told = (self.told + piece).split(b"\n")
        if len(self.told) > LONGEST:
            raise EndedError("nonsense")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "ping":
                self.say("pong", n=rest[:40])
            elif word == "mark":
                self.count(mark=rest[:80])
                self.say("host", own=self.own(), **self.here.figures())
            elif word == "look":
                self.look()

    def look(self) -> None:
        """What costs more, and is asked at the beginning and on demand."""
        mine = [os.getpid(), *([self.smi.process.pid] if self.smi.process else ())]
        self.say("look", **self.here.look(mine))

    def own(self) -> int:
        """Microseconds that this and what it has started have computed."""
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        running = self.here.computed(self.smi.process.pid) if self.smi.process and self.smi.output >= 0 else 0
        return round(ours * 1_000_000) + running


def main(asked: dict[str, Any], here: Any) -> None:
    """Watch, for `asked["lasts"]` seconds at most: also where a pipe that nobody empties holds it up."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(each, signal.SIG_DFL)
    signal.alarm(int(asked["lasts"]) + LATE)
    end_with_parent()
    sys.stdout.flush()
    Meter(asked, here).run()
