"""`herd status`: what the fleet does now."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import (
    FAILED,
    UNUSABLE,
    complete_rigs,
    fail,
    inventory_option,
    json_option,
    rigs_argument,
    roles_of,
    say,
    usable_or_exit,
)
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from llamaherd.fleet.snapshot import FleetSnapshot, RigSnapshot
    from llamaherd.inventory.schema import Rig
    from llamaherd.plan import Plan

EVERY = 2.0
"""Seconds between two looks, where nobody says another number."""
_HOME, _LINE_ENDS, _REST_ENDS = "\x1b[H", "\x1b[K", "\x1b[J"
"""What has a terminal draw over what it shows: to its first cell, clear to the end of the line, and all below."""


class _Status(click.Command):
    """What stands after `--watch` and is no number is a rig."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words of the command line."""
        return super().parse_args(ctx, list(_with_seconds(args)))


def _with_seconds(words: Sequence[str]) -> Iterator[str]:
    for number, word in enumerate(words):
        alone = word == "--watch" and not _is_number("".join(words[number + 1 : number + 2]))
        yield f"--watch={EVERY:g}" if alone else word


def _is_number(word: str) -> bool:
    return re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]*)?|\.[0-9]+", word) is not None


@click.command(cls=_Status)
@rigs_argument
@click.option(
    "--watch",
    type=click.FloatRange(1, 3600),
    metavar="[SECONDS]",
    shell_complete=complete_rigs,
    help=f"Go on, and look again after so many seconds: {EVERY:g}, unless said otherwise.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file to write it to, as a page: .html."
)
@inventory_option
@json_option
@click.pass_obj
def status(
    inventory: Path | None, rigs: tuple[str, ...], watch: float | None, output: Path | None, as_json: bool
) -> None:
    """Show what the fleet does now.

    That is servers, streams, tokens a second beside what was measured, GPUs and last changes. Each host is asked once,
    all at the same time, and is not changed. One that does not answer is a line; the others go on. An .html page is a
    single file that runs no script and fetches nothing.

    Exit codes: 0 all serve; 1 something is down, or a host was not reached; 2 the inventory cannot be used; 130 Ctrl-C.

    \b
    Examples:
      herd status                     the whole fleet
      herd status --watch             the same, again and again, until Ctrl-C
      herd status duo --watch 10      one rig, every ten seconds
      herd status -o status.html      a page
      herd status --json              for machines
    """
    from llamaherd.fleet.status import StatusQuery, measured_speeds
    from llamaherd.measure.results.store import results_folder
    from llamaherd.pipeline.load import inventory_path

    if output and output.suffix.lower() not in (".html", ".htm"):
        say(f"error: {output} does not say that it is to be a page\n  help: call it .html", err=True)
        sys.exit(UNUSABLE)
    planned = _planned(inventory, rigs)
    asking = StatusQuery(planned, measured_speeds(planned, results_folder(inventory_path(inventory))))
    if watch is None:
        now = _now(asking.ask())
        _tell(now, as_json, output)
        sys.exit(0 if now.ok else FAILED)
    while True:
        began = time.monotonic()
        _tell(_now(asking.ask()), as_json, output, screen=sys.stdout.isatty())
        time.sleep(max(0.0, began + watch - time.monotonic()))


def _planned(inventory: Path | None, rigs: tuple[str, ...]) -> dict[str, tuple[Rig, Plan]]:
    """The plans of the rigs that are named, or of all. What is doubtful about them, `herd check` says."""
    from llamaherd.pipeline.load import inventory_path, plans

    roles = roles_of(inventory)
    try:
        return usable_or_exit(lambda: plans(inventory_path(inventory), roles, rigs))
    except UserError as error:
        fail(error, UNUSABLE)


def _now(rigs: tuple[RigSnapshot, ...]) -> FleetSnapshot:
    from llamaherd.fleet.snapshot import FleetSnapshot

    return FleetSnapshot(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC", rigs)


def _tell(now: FleetSnapshot, as_json: bool, output: Path | None, *, screen: bool = False) -> None:
    """Say it once: as a page, as JSON, or over what the terminal shows (`screen`), or below it."""
    if output:
        _write(now, output)
    if as_json:
        click.echo(json.dumps(now.as_json()))
    elif not output:
        _print(now, screen)


def _write(now: FleetSnapshot, output: Path) -> None:
    from llamaherd.fleet.status_page import to_html
    from llamaherd.measure.report.export import write_text

    try:
        write_text(output, to_html(now))
    except UserError as error:
        fail(error, UNUSABLE)


def _print(now: FleetSnapshot, screen: bool) -> None:
    from llamaherd.fleet.status_text import status_lines

    columns, rows = shutil.get_terminal_size()
    lines = list(status_lines(now, columns if sys.stdout.isatty() else None, _painted))
    if screen:
        if len(lines) >= rows:
            lines = [*lines[: rows - 2], f"and {len(lines) - rows + 2} more lines"]
        # Nothing is cleared before it is drawn anew, so nothing flickers.
        text = _HOME + "".join(f"{line}{_LINE_ENDS}\n" for line in lines) + _REST_ENDS
    else:
        text = "".join(f"{line}\n" for line in lines)
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "replace").decode(encoding), nl=False)


def _painted(text: str, colour: str) -> str:
    """A text in a colour, which `click.echo` takes out again where no terminal is."""
    return click.style(text, bold=True) if colour == "bold" else click.style(text, fg=colour)
