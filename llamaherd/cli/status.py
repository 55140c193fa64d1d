"""`herd status`: show servers, streams, speeds and GPUs of the fleet."""

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
