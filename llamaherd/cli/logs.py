"""`herd logs`: print the log of a server, and follow it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import inventory_option, json_lines_option
from llamaherd.cli.targets import optional_target_argument
from llamaherd.onhost.server_control import MOST_LINES
from llamaherd.text.numbers import parse_duration

DEFAULT_LINES = 100


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
def logs(inventory: Path | None, /, **options: Any) -> None:
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
    from llamaherd.cli.server_logs import print_log  # late: the help needs none of it

    print_log(LogsOptions(inventory, **options))
