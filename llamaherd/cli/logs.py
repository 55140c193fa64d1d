"""`herd logs`: print the log of a server, and follow it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import FAILED, UNUSABLE, echo, fail, inventory_option, json_lines_option, read_or_exit
from llamaherd.cli.envelope import note_printed
from llamaherd.cli.targets import Target, find_target, optional_target_argument
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.remote import Patience, Shell
from llamaherd.inventory.schema import Rig
from llamaherd.layout import service_of
from llamaherd.onhost.server_control import MOST_LINES, LogsInput
from llamaherd.pipeline.load import inventory_path, rigs
from llamaherd.text.numbers import parse_duration
from llamaherd.text.terminal import shown

DEFAULT_LINES = 100

_SILENT_SECONDS = 90
"""In which a host sends at least an empty line, or ends."""
_MOST_TIME = 253_402_214_400
"""Seconds until the last day that has a date with four digits of the year."""


@dataclass(frozen=True)
class LogsOptions:
    """The options of `herd logs`. `since` is in seconds."""

    inventory: Path | None
    target: str | None
    follow: bool
    since: int | None
    grep: str
    lines: int | None
    as_json: bool = False


def _parse_since(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Return the seconds of a duration; None without the option."""
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@optional_target_argument
@click.option("-f", "--follow", is_flag=True, help="Print further lines as they arrive, until Ctrl-C.")
@click.option("--since", metavar="TIME", callback=_parse_since, help="Only lines of the last `10m`, `2h` or `90s`.")
@click.option("--grep", metavar="TEXT", default="", help="Only lines that contain this text, in upper or lower case.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, MOST_LINES),
    metavar="N",
    help=f"Only the last N lines, at most {MOST_LINES:,}. Default: {DEFAULT_LINES}, with --since all.",
)
@inventory_option
@json_lines_option
@click.pass_obj
def logs(inventory: Path | None, /, **given: Any) -> None:
    """Print the log of a server.

    The log is the journal of the server's unit, or the log of its container. Times are in the time zone of this
    machine. Control characters are removed, and the server's API key is replaced by `[key]`. --grep searches the last
    100,000 lines.

    With --json, each line of the log is an object with `rig`, `instance`, `at` and `text`. `at` is in UTC, or null if
    the line has no time.

    Without an instance, the inventory must have only one server.

    Exit codes: 0 the log was printed; 1 the host cannot be reached, or has no such server; 2 wrong usage, or an
    unusable inventory; 130 Ctrl-C.

    \b
    Examples:
      herd logs duo/chat                    the last 100 lines
      herd logs duo/chat -f                 the same, then new lines
      herd logs duo/chat --since 10m        the last ten minutes
      herd logs duo/chat --grep error -n 5  the last five lines with `error`
      herd logs duo/chat -f --json          new lines, for a program
    """
    options = LogsOptions(inventory, **given)
    declared = read_or_exit(lambda: rigs(inventory_path(options.inventory))).rigs
    try:
        target = find_target(declared, options.target)
    except UserError as error:
        fail(error, UNUSABLE)
    count = 0
    try:
        for line in _read_log(declared[target.rig], log_input(declared[target.rig], target, options)):
            click.echo(json_line(target, line) if options.as_json else log_line(line))
            note_printed()  # after lines of a log, an interruption prints no envelope
            count += 1
    except UserError as error:
        fail(error, FAILED)
    if not count:
        chosen = options.grep or options.since is not None
        echo(f"{target}: its log has no such line" if chosen else f"{target}: its log is empty", err=True)


def log_input(rig: Rig, target: Target, options: LogsOptions) -> LogsInput:
    """Return the input of the verb. A member of a group has the log of the group's server."""
    server = target.server(rig)
    backend = rig.instances[rig.servers[server][0]].backend
    default = DEFAULT_LINES if options.since is None else MOST_LINES
    return LogsInput(
        name=server,
        service=service_of(server),
        unit=backend == "systemd",
        lines=default if options.lines is None else options.lines,
        since=options.since,
        grep=options.grep,
        follow=options.follow,
    )


def _read_log(rig: Rig, given: LogsInput) -> Iterator[str]:
    """Yield the lines of a log as the host sends them, `SECONDS TAB TEXT`. Raise UserError."""
    patience = Patience.within(_SILENT_SECONDS, "printing a log")
    with Shell(rig.connect) as shell:
        for line in shell.converse("serve.logs.show", given, patience):
            patience.renew(_SILENT_SECONDS)
            if line:  # an empty line shows that the connection still exists
                yield line


def log_line(line: str) -> str:
    """Return a line of the host with its time in the time zone of this machine."""
    at, text = _parse_line(line)
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}  {text}" if at else f"{'':19}  {text}"


def json_line(target: Target, line: str) -> str:
    """Return a line of the host as a JSON object, with its time in UTC."""
    at, text = _parse_line(line)
    value = {"rig": target.rig, "instance": target.instance, "at": at.isoformat() if at else None, "text": text}
    return json.dumps(value, ensure_ascii=False)


def _parse_line(line: str) -> tuple[datetime | None, str]:
    """Return the time of a line, None if it has no valid one, and its text without control characters."""
    seconds, _, text = line.partition("\t")
    text = shown(text.expandtabs(4))
    if not (seconds.isascii() and seconds.isdecimal() and int(seconds[:20]) < _MOST_TIME):
        return None, text
    return datetime.fromtimestamp(int(seconds), UTC), text
