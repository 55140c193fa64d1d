"""Where a run shows what happens on its hosts: in pyinfra's log, or on the screen of `herd up`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from pyinfra import logger
from pyinfra.api import Host
from pyinfra.api.output import echo, format_text

from llamaherd.role.changes import Change
from llamaherd.text.terminal import plain


class Screen(Protocol):
    """Shows a run. `rig` is the name of a host."""

    def begin(self, rig: str, changes: Sequence[Change]) -> None:
        """Show that changes begin, which are made together."""

    def end(self, rig: str) -> None:
        """Show that these changes have ended well."""

    def detail(self, rig: str, line: str) -> None:
        """Show a line of progress of these changes."""

    def note(self, rig: str, line: str) -> None:
        """Show a line that the user must read."""

    def finish(self, rig: str) -> None:
        """Note that the run has ended on this host."""


@dataclass
class _Current:
    screen: Screen | None = None


_current = _Current()


@contextmanager
def shown_on(screen: Screen) -> Iterator[None]:
    """Show runs on a screen instead of in pyinfra's log while the context is open."""
    _current.screen = screen
    try:
        yield
    finally:
        _current.screen = None


def begin_changes(host: Host, changes: Sequence[Change]) -> None:
    """Show that changes begin. In pyinfra's log, its own lines show that."""
    if _current.screen:
        _current.screen.begin(host.name, changes)


def end_changes(host: Host) -> None:
    """Show that these changes have ended well."""
    if _current.screen:
        _current.screen.end(host.name)


def finish_host(host: Host) -> None:
    """Show that the run has ended on a host."""
    if _current.screen:
        _current.screen.finish(host.name)


def show_detail(host: Host, line: str) -> None:
    """Show a line of progress."""
    if _current.screen:
        _current.screen.detail(host.name, plain(line))
    else:
        logger.info(f"{host.print_prefix}{plain(line)}")


def show_note(host: Host, line: str) -> None:
    """Show a line that the user must read."""
    if _current.screen:
        _current.screen.note(host.name, plain(line))
    else:
        logger.warning(f"{host.print_prefix}{plain(line)}")


def show_problem(host: Host, line: str) -> None:
    """Show why something failed. A screen shows the failures at its end instead."""
    if not _current.screen:
        logger.error(f"{host.print_prefix}{line}")


def show_in_log(host: Host, line: str) -> None:
    """Show a line in pyinfra's log alone."""
    if not _current.screen:
        logger.info(f"{host.print_prefix}{plain(line)}")


def show_output(prefix: str, name: str, text: str, *, wrong: bool) -> None:
    """Show a line that a program has printed on a host; on a screen, only its progress."""
    if _current.screen:
        if not wrong:
            _current.screen.detail(name, text)
        return
    with suppress(OSError):  # the terminal is gone: no reason to stop in the middle
        echo(f"{prefix}{format_text(text, 'red') if wrong else text}", err=True)
