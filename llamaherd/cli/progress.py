"""How far the hashing of a rig's models is, on the terminal or in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from llamaherd.store.hashes import HashProgress
from llamaherd.text.units import show_size

EVERY_SECONDS = 5
"""How often a log gets a line."""


@contextmanager
def hashing(rig: str) -> Iterator[Callable[[HashProgress], None]]:
    """What takes each progress and shows it on stderr: a bar where people look on, else a line every few seconds."""
    if not sys.stderr.isatty():
        yield ProgressLine(rig, time.monotonic).tell
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


class ProgressLine:
    """A line on stderr now and then; `clock` tells the seconds."""

    def __init__(self, rig: str, clock: Callable[[], float]) -> None:
        self._rig, self._clock = rig, clock
        self._began = self._said = clock()

    def tell(self, progress: HashProgress) -> None:
        """Say how far it is, unless that was said just now."""
        now = self._clock()
        if now - self._said < EVERY_SECONDS:
            return
        self._said = now
        rate = show_size(round(progress.done / (now - self._began)))
        click.echo(f"{self._rig}: {line(progress)} at {rate}/s: {progress.name}", err=True)


def line(progress: HashProgress) -> str:
    """How far it is, in words."""
    return f"hashed {show_size(progress.done)} of {show_size(progress.total)}"
