"""`herd open`: open a server's own page in the browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import inventory_option
from llamaherd.cli.targets import optional_target_argument


@dataclass(frozen=True)
class OpenOptions:
    """The options of `herd open`."""

    inventory: Path | None
    target: str | None
    port: int | None
    browser: bool


@click.command(name="open")
@optional_target_argument
@click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    metavar="N",
    help="The port of this machine. Default: the same one for each instance, from 20000 to 29999.",
)
@click.option("--no-browser", "browser", flag_value=False, default=True, help="Only print the URL.")
@inventory_option
@click.pass_obj
def open_(inventory: Path | None, /, **options: Any) -> None:
    """Open a server's own page in the browser.

    It opens an SSH tunnel to the server, prints the URL, and runs until Ctrl-C. The page prompts for the API key of the
    server, if it has one. The browser stores conversations by the port.

    Exit codes: 0 ended by Ctrl-C; 1 the server has no page, or cannot be reached; 2 an unusable inventory.

    \b
    Examples:
      herd open                           the only server
      herd open duo/coder                 one of several
      herd open duo/coder --port 9000     at http://127.0.0.1:9000
      herd open duo/coder --no-browser    for a browser on another machine
    """
    from llamaherd.cli.open_page import run_open  # late: the help needs none of it

    run_open(OpenOptions(inventory, **options))
