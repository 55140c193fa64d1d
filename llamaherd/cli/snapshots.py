"""The runs of `herd status` and `herd top`: show the fleet as text, on a screen, as JSON or as a page."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, UNUSABLE, echo, exit_on_error, write_output
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.rigs import quiet_plans
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.snapshot import FleetSnapshot
from llamaherd.fleet.status import StatusQuery, measured_speeds
from llamaherd.fleet.status_text import status_lines, to_html
from llamaherd.fleet.top import TopQuery, top_lines
from llamaherd.measure.results.store import results_folder
from llamaherd.pipeline.load import inventory_path

_HOME, _LINE_ENDS, _REST_ENDS = "\x1b[H", "\x1b[K", "\x1b[J"
"""Terminal codes: go to the first cell, clear the rest of the line, clear the rest of the screen."""


def show_status(
    inventory: Path | None, rigs: tuple[str, ...], watch: float | None, output: Path | None, as_json: bool
) -> None:
    """Query the hosts and show their state, once or every `watch` seconds. End the program with its exit code."""
    planned = quiet_plans(inventory, rigs)
    query = StatusQuery(planned, measured_speeds(planned, results_folder(inventory_path(inventory))))
    if watch is None:
        now = FleetSnapshot(_time(), query.ask())
        _show(now, as_json, output)
        if output and sys.stderr.isatty():
            echo(f"{output} shows this moment; `--watch` keeps it up to date", err=True)
        sys.exit(0 if now.ok else FAILED)
    if output and sys.stderr.isatty():
        echo(f"{output} is written every {watch:g} s until Ctrl-C, and reloads itself in a browser", err=True)
    last: FleetSnapshot | None = None
    try:
        while True:
            began = time.monotonic()
            last = FleetSnapshot(_time(), query.ask())
            _show(last, as_json, output, watch, screen=sys.stdout.isatty())
            time.sleep(max(0.0, began + watch - time.monotonic()))
    finally:  # Ctrl-C, and signals that end the program
        if output and last:
            _write_last(last, output, watch)


def show_top(inventory: Path | None, rigs: tuple[str, ...], every: float | None, as_json: bool) -> None:
    """Query the hosts and show their processes: on a terminal every so many seconds. End with the exit code."""
    query = TopQuery(quiet_plans(inventory, rigs))
    while True:
        began = time.monotonic()
        found = query.ask()
        if as_json:
            ok = all(rig.ok for rig in found)
            print_envelope(Envelope(ok, [rig.as_json() for rig in found], {"at": _time()}))
        else:
            screen = every is not None and sys.stdout.isatty()
            print_lines(list(top_lines(found, _time(), line_width(), coloured)), screen=screen)
        if every is None or not sys.stdout.isatty():
            sys.exit(0 if all(rig.ok for rig in found) else FAILED)
        time.sleep(max(0.0, began + every - time.monotonic()))


def _time() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _show(
    now: FleetSnapshot, as_json: bool, output: Path | None, every: float | None = None, *, screen: bool = False
) -> None:
    """Write the page, print JSON, or print text: over the previous text if `screen`."""
    if output:
        _write(now, output, every)
    if as_json:
        print_envelope(Envelope(now.ok, now.rows(), {"at": now.at}))
    elif not output:
        print_lines(list(status_lines(now, line_width(), coloured)), screen=screen)


def _write_last(now: FleetSnapshot, output: Path, every: float) -> None:
    """Write the page as one that is not updated any more. If that fails, the command ended because of it."""
    with suppress(UserError):
        write_output(output, to_html(now, every, ended=True))


def _write(now: FleetSnapshot, output: Path, every: float | None) -> None:
    with exit_on_error(UNUSABLE):
        write_output(output, to_html(now, every))


def line_width() -> int | None:
    """Return the cells of a line on the terminal; None if the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_lines(lines: list[str], *, screen: bool) -> None:
    """Print lines: over the previous lines if `screen`, and then no more than the terminal has."""
    rows = shutil.get_terminal_size().lines
    if screen:
        if len(lines) >= rows:
            lines = [*lines[: rows - 2], f"and {len(lines) - rows + 2} more lines"]
        # Nothing is cleared before it is drawn again, so nothing flickers.
        text = _HOME + "".join(f"{line}{_LINE_ENDS}\n" for line in lines) + _REST_ENDS
    else:
        text = "".join(f"{line}\n" for line in lines)
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "replace").decode(encoding), nl=False)


def coloured(text: str, colour: str) -> str:
    """Return a text in a colour. `click.echo` removes the colour if the output is no terminal."""
    return click.style(text, bold=True) if colour == "bold" else click.style(text, fg=colour)
