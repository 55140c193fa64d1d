"""Watches a host while a server on it is measured: a line of JSON for each reading, until nobody listens any more.

It ends when its input does, after `lasts` seconds, or when nothing was said to it for `silence` seconds. It is told
lines: `ping N`, `mark NAME`, `look`. Nothing that it starts outlives it, whatever kills it.
"""

# For Python 3.10 and its standard library alone. What reads the host and who tells of cards come before it.
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

TOLD = 3
"""The descriptor that it is told something on: its program came on stdin."""
LONGEST = 4096
"""Bytes of what it is told at once."""
FIRST = 15
"""Seconds that cards may take to tell something, before we look without it."""
ANSWER, LAST = 3.0, 0.5
"""Seconds that cards may take for an answer; and for the last one, when nobody may be left to hear it."""
LATE = 10
"""Seconds that it may end later than it was to: a look takes some."""


class EndedError(Exception):
    """It is over, and why."""


class Meter:
    """What is said, and when."""

    def __init__(self, asked: dict[str, Any], here: Any, tellers: Any) -> None:
        self.asked, self.here, self.left = asked, here, int(asked["most"])
        self.tellers = tellers
        self.heard, self.told = time.monotonic(), b""
        self.seen = False

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
            every = self.asked["every"]
            self.say("hello", wall=time.time(), every=every, **self.tellers.standing, **self.here.standing())
            self.hand_on(self.tellers.start(every))
            self.watch()
        except EndedError as ended:
            why = str(ended)
            self.left += LONGEST
            with suppress(OSError, EndedError):
                # What was just measured may have ended after the last reading.
                self.tellers.library.ask("count")
                self.count()
                self.say("host", own=self.own(), **self.here.figures())
                self.wait("now", LAST)
        except BrokenPipeError:
            return
        finally:
            own = self.own()
            self.tellers.end()
        self.left += LONGEST
        with suppress(OSError):
            self.say("bye", why=why, own=own)

    def watch(self) -> None:
        """Read what is due, hear what is said."""
        every = self.asked["every"] if self.here.rapl.ranges else max(1.0, self.asked["every"])
        began = time.monotonic()
        ticks, looked = 0, False
        while True:
            now = time.monotonic()
            if now - began > self.asked["lasts"]:
                raise EndedError("time")
            if now - self.heard > self.asked["silence"]:
                raise EndedError("silence")
            if now >= began + ticks * every:
                if self.here.rapl.ranges:
                    self.count()
                if ticks % max(1, round(1 / every)) == 0:
                    self.say("host", own=self.own(), **self.here.figures())
                # What came too late is not made up for.
                ticks = int((time.monotonic() - began) / every) + 1
            if not looked and now - began > (1 if self.seen or not self.tellers.running else FIRST):
                looked = True
                self.look()
            self.hear(max(0.0, began + ticks * every - time.monotonic()))

    def count(self, **mark: str) -> None:
        """The counters of the processor. Those of cards are told beside it."""
        before = time.monotonic()
        counters = self.here.rapl.energy()
        self.say("count", **{**mark, "mj": {}, "uj": counters, "t": round((before + time.monotonic()) / 2, 5)})

    def hear(self, seconds: float) -> None:
        """Wait so long for what is told of cards, and for what is asked."""
        running = self.tellers.running
        for pipe in select.select([TOLD, *running], [], [], seconds)[0]:
            if pipe == TOLD:
                self.answer()
                continue
            try:
                self.hand_on(running[pipe].heard())
            except OSError:
                running[pipe].end()
                self.say("gone")

    def hand_on(self, told: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Say what was told of cards."""
        for kind, values in told:
            if kind != "apps":
                self.seen = self.seen or kind == "gpu"
                self.say("count" if kind == "now" else kind, **values)

    def wait(self, kind: str, seconds: float) -> Any:
        """What the library tells when it is asked; None where it does not in time."""
        told: list[tuple[str, dict[str, Any]]] = []
        came = self.tellers.library.wait(kind, seconds, told)
        self.hand_on(told)
        return next(values for each, values in told if each == kind) if came else None

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
                self.tellers.library.ask("count")
                self.wait("now", LAST)
                self.count(mark=rest[:80])
                self.say("host", own=self.own(), **self.here.figures())
            elif word == "look":
                self.look()

    def look(self) -> None:
        """What costs more, and is asked at the beginning and on demand."""
        self.tellers.library.ask("apps")
        told = self.wait("apps", ANSWER) or {"apps": None}
        self.say("look", **self.here.look([os.getpid(), *self.tellers.pids], told["apps"]))

    def own(self) -> int:
        """Microseconds that this and what it has started have computed."""
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        running: int = sum(map(self.here.computed, self.tellers.pids))
        return round(ours * 1_000_000) + running


def main(asked: dict[str, Any], here: Any, tellers: Callable[[], Any]) -> None:
    """Watch, for `asked["lasts"]` seconds at most: also where a pipe that nobody empties holds it up."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(each, signal.SIG_DFL)
    signal.alarm(int(asked["lasts"]) + LATE)
    sys.stdout.flush()
    Meter(asked, here, tellers()).run()
