"""`herd status`: show servers, streams, speeds and GPUs of the fleet."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, UNUSABLE, echo, fail, inventory_option, json_option, read_or_exit, write_output
from llamaherd.cli.rigs import complete_rigs, rigs_argument, roles_or_exit
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.snapshot import FleetSnapshot, RigSnapshot
from llamaherd.fleet.status import StatusQuery, measured_speeds
from llamaherd.fleet.status_page import to_html
from llamaherd.fleet.status_text import status_lines
from llamaherd.inventory.schema import Rig
from llamaherd.measure.results.store import results_folder
from llamaherd.pipeline.load import inventory_path, plans
from llamaherd.plan import Plan

EVERY = 2.0
"""The default seconds between two updates."""
_HOME, _LINE_ENDS, _REST_ENDS = "\x1b[H", "\x1b[K", "\x1b[J"
"""Terminal codes: go to the first cell, clear the rest of the line, clear the rest of the screen."""


class _Status(click.Command):
    """The command, in which a word after `--watch` that is no number is a rig."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line."""
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
    help=f"Repeat after so many seconds. Default: {EVERY:g}.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the status to this .html file, as a page.",
)
@inventory_option
@json_option
@click.pass_obj
def status(
    inventory: Path | None, rigs: tuple[str, ...], watch: float | None, output: Path | None, as_json: bool
) -> None:
    """Show servers, streams, speeds and GPUs of the fleet.

    It also shows measured speeds and the last changes. All hosts are queried at the same time, and none is changed. A
    host that does not respond is shown as one line. An .html page is a single file without scripts that loads nothing
    from the network.

    Exit codes: 0 all servers are up; 1 a server is down, or a host cannot be reached; 2 the inventory is unusable;
    130 Ctrl-C.

    \b
    Examples:
      herd status                     the whole fleet
      herd status --watch             the same, repeated until Ctrl-C
      herd status duo --watch 10      one rig, every ten seconds
      herd status -o status.html      as a page
      herd status --json              as JSON
    """
    if output and output.suffix.lower() not in (".html", ".htm"):
        echo(f"error: {output} does not end with .html\n  help: choose a file name with .html", err=True)
        sys.exit(UNUSABLE)
    planned = _planned(inventory, rigs)
    query = StatusQuery(planned, measured_speeds(planned, results_folder(inventory_path(inventory))))
    if watch is None:
        now = _now(query.ask())
        _show(now, as_json, output)
        sys.exit(0 if now.ok else FAILED)
    while True:
        began = time.monotonic()
        _show(_now(query.ask()), as_json, output, screen=sys.stdout.isatty())
        time.sleep(max(0.0, began + watch - time.monotonic()))


def _planned(inventory: Path | None, rigs: tuple[str, ...]) -> dict[str, tuple[Rig, Plan]]:
    """Return the plans of the named rigs, or of all. Warnings are left to `herd check`."""
    roles = roles_or_exit(inventory)
    try:
        return read_or_exit(lambda: plans(inventory_path(inventory), roles, rigs))
    except UserError as error:
        fail(error, UNUSABLE)


def _now(rigs: tuple[RigSnapshot, ...]) -> FleetSnapshot:
    return FleetSnapshot(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC", rigs)


def _show(now: FleetSnapshot, as_json: bool, output: Path | None, *, screen: bool = False) -> None:
    """Write the page, print JSON, or print text: over the previous text if `screen`."""
    if output:
        _write(now, output)
    if as_json:
        click.echo(json.dumps(now.as_json()))
    elif not output:
        _print(now, screen)


def _write(now: FleetSnapshot, output: Path) -> None:
    try:
        write_output(output, to_html(now))
    except UserError as error:
        fail(error, UNUSABLE)


def _print(now: FleetSnapshot, screen: bool) -> None:
    columns, rows = shutil.get_terminal_size()
    lines = list(status_lines(now, columns if sys.stdout.isatty() else None, _coloured))
    if screen:
        if len(lines) >= rows:
            lines = [*lines[: rows - 2], f"and {len(lines) - rows + 2} more lines"]
        # Nothing is cleared before it is drawn again, so nothing flickers.
        text = _HOME + "".join(f"{line}{_LINE_ENDS}\n" for line in lines) + _REST_ENDS
    else:
        text = "".join(f"{line}\n" for line in lines)
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "replace").decode(encoding), nl=False)


def _coloured(text: str, colour: str) -> str:
    """Return a text in a colour. `click.echo` removes the colour if the output is no terminal."""
    return click.style(text, bold=True) if colour == "bold" else click.style(text, fg=colour)
