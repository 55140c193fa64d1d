"""How far a measurement is, on the terminal or in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llamaherd.bench.job import Teller
from llamaherd.cli.common import say
from llamaherd.text.terminal import plain

EVERY_SECONDS = 10
"""How often a log gets a line."""


@contextmanager
def telling(name: str) -> Iterator[Teller]:
    """What is told how it goes: a bar on stderr where people look on, else a line every few seconds."""
    if not sys.stderr.isatty():
        yield Lines(name, time.monotonic)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(name, total=1.0, left="")

        class Bar:
            """One bar."""

            def say(self, text: str) -> None:
                """A line above it."""
                bars.console.print(escape(plain(text)))

            def progress(self, share: float, seconds_left: float, about: str) -> None:
                """How long it is, and what stands beside it."""
                left = left_text(seconds_left)
                bars.update(task, completed=share, description=escape(f"{name}: {about}"), left=left)

        yield Bar()


class Lines:
    """A line on stderr now and then; `clock` tells the seconds."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name, self._clock = name, clock
        self._said = clock()

    def say(self, text: str) -> None:
        """A line."""
        say(text, err=True)

    def progress(self, share: float, seconds_left: float, about: str) -> None:
        """Say how far it is, unless that was said just now."""
        now = self._clock()
        if now - self._said >= EVERY_SECONDS:
            self._said = now
            say(f"{self._name}: {share:.0%}, {left_text(seconds_left)}: {about}", err=True)


def left_text(seconds: float) -> str:
    """The time that is left at most."""
    whole = max(0, round(seconds))
    return f"up to {whole // 60}:{whole % 60:02d} left"
