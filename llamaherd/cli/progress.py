"""Show the progress of hashing and of measuring, as a bar on a terminal or as lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

import click

from llamaherd.cli.common import echo
from llamaherd.measure.bench.job import ProgressReporter
from llamaherd.store.files import HashProgress
from llamaherd.text.numbers import show_size
from llamaherd.text.terminal import plain

_MOST_NAMED = 3
"""Hosts that a line names."""


@contextmanager
def waiting_line(verb: str, names: Iterable[str]) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """Show on a terminal which hosts are waited for, as `verifying attic, duo`.

    Yield a function to print the result of a host in: it hides the line meanwhile, and then leaves this host out.
    """
    left = dict.fromkeys(names)

    def show() -> None:
        more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        text = f"{verb} {', '.join([*left][:_MOST_NAMED])}{more}" if left else ""
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    @contextmanager
    def done(name: str) -> Iterator[None]:
        del left[name]
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", err=True, nl=False)
        yield
        show()

    show()
    try:
        yield done
    finally:
        left.clear()
        show()


HASHING_SECONDS = 5
"""Seconds between two lines of a log."""


@contextmanager
def hashing_progress(rig: str) -> Iterator[Callable[[HashProgress], None]]:
    """Yield a function that shows progress on stderr: a bar on a terminal, else a line every few seconds."""
    if not sys.stderr.isatty():
        yield HashingLines(rig, time.monotonic).tell
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(f"{rig}: hashing", total=None)

        def tell(progress: HashProgress) -> None:
            name = escape("".join(c for c in progress.name if c.isprintable()))
            bars.update(task, completed=progress.done, total=progress.total, description=f"{rig}: {name}")

        yield tell


class HashingLines:
    """Prints a line on stderr every few seconds; `clock` returns the seconds."""

    def __init__(self, rig: str, clock: Callable[[], float]) -> None:
        self._rig, self._clock = rig, clock
        self._began = self._printed_at = clock()

    def tell(self, progress: HashProgress) -> None:
        """Print the progress, unless a line was printed just before."""
        now = self._clock()
        if now - self._printed_at < HASHING_SECONDS:
            return
        self._printed_at = now
        rate = show_size(round(progress.done / (now - self._began)))
        done = f"{show_size(progress.done)} of {show_size(progress.total)}"
        click.echo(
            f"{self._rig}: hashed {done} at {rate}/s: {progress.name}",
            err=True,
        )


MEASURING_SECONDS = 10
"""Seconds between two lines of a log."""


@contextmanager
def measuring_progress(name: str) -> Iterator[ProgressReporter]:
    """Yield a reporter on stderr: a bar on a terminal, else a line every few seconds."""
    if not sys.stderr.isatty():
        yield MeasuringLines(name, time.monotonic)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(name, total=1.0, left="")

        class Bar:
            """Prints lines above a bar."""

            def report(self, text: str) -> None:
                """Print a line above the bar."""
                bars.console.print(escape(plain(text)))

            def progress(self, share: float, seconds_left: float, about: str) -> None:
                """Set the length of the bar and the text next to it."""
                left = left_text(seconds_left)
                bars.update(task, completed=share, description=escape(f"{name}: {about}"), left=left)

        yield Bar()


class MeasuringLines:
    """Prints a line on stderr every few seconds; `clock` returns the seconds."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name, self._clock = name, clock
        self._printed_at = clock()

    def report(self, text: str) -> None:
        """Print a line."""
        echo(text, err=True)

    def progress(self, share: float, seconds_left: float, about: str) -> None:
        """Print the progress, unless a line was printed just before."""
        now = self._clock()
        if now - self._printed_at >= MEASURING_SECONDS:
            self._printed_at = now
            echo(f"{self._name}: {share:.0%}, {left_text(seconds_left)}: {about}", err=True)


def left_text(seconds: float) -> str:
    """Return the longest time left."""
    whole = max(0, round(seconds))
    return f"up to {whole // 60}:{whole % 60:02d} left"
