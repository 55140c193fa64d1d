"""`herd status` and `herd top`: show servers, streams, speeds and GPUs, and what each server process takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from llamaherd.cli.common import UNUSABLE, complete_rigs, fail, inventory_option, json_option, rigs_argument
from llamaherd.diagnostics.findings import UserError

EVERY = 2.0
"""The default seconds between two updates."""


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
    from the network. With --watch, the page is written each time, and reloads itself in a browser.

    Exit codes: 0 all servers are up or paused; 1 a server is down, or a host cannot be reached; 2 the inventory is
    unusable; 130 Ctrl-C.

    \b
    Examples:
      herd status                     the whole fleet
      herd status --watch             the same, repeated until Ctrl-C
      herd status duo --watch 10      one rig, every ten seconds
      herd status -o status.html      as a page
      herd status --watch 10 -o status.html   as a page that stays up to date
      herd status --json              as JSON
    """
    if output and output.suffix.lower() not in (".html", ".htm"):
        fail(UserError(f"{output} does not end with .html", "choose a file name with .html"), UNUSABLE)
    from llamaherd.cli.snapshots import show_status  # late: the help needs none of it

    show_status(inventory, rigs, watch, output, as_json)


@click.command()
@rigs_argument
@click.option(
    "--every",
    type=click.FloatRange(1, 3600),
    metavar="SECONDS",
    default=EVERY,
    show_default=True,
    help="Seconds between two updates.",
)
@click.option("--once", is_flag=True, help="Print one table, and end. The default if the output is no terminal.")
@inventory_option
@json_option
@click.pass_obj
def top(inventory: Path | None, rigs: tuple[str, ...], every: float, once: bool, as_json: bool) -> None:
    """Show GPU memory, watts and speed of each server process.

    Each row also has the processor, the streams and the context that a process uses. It also shows other programs on
    the GPUs. Watts and load are those of the whole GPU. All hosts are queried at the same time, and none is changed.

    Exit codes: 0 all servers are up; 1 a server is down, or a host cannot be reached; 2 the inventory is unusable;
    130 Ctrl-C.

    \b
    Examples:
      herd top                the whole fleet, refreshed until Ctrl-C
      herd top duo --every 5  one rig, every five seconds
      herd top --once         one table
      herd top --json         the same as JSON
    """
    from llamaherd.cli.snapshots import show_top  # late: the help needs none of it

    show_top(inventory, rigs, None if once or as_json else every, as_json)
