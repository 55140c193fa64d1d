"""`herd monitoring`: what belongs to monitoring and lies on no host: dashboards, and the timer that looks for drift."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import UNUSABLE, fail, inventory_option, say
from llamaherd.diagnostics.findings import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

AT = "03:30"
"""When the timer looks, where nobody says another time."""
LOOK = "llamaherd-look"
"""What its units are called."""
_BEGINS = "# Written by `herd monitoring timer`."


@click.group()
def monitoring() -> None:
    """Grafana's dashboards, and a timer that looks for drift.

    Both belong to monitoring and lie on no host. Prometheus and its alerts are declared in `fleet.yaml`: `herd explain
    monitoring`.

    \b
    Examples:
      herd monitoring grafana -o dashboards
      herd monitoring timer
    """


@monitoring.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    required=True,
    help="The folder to write to. It is made, if it is not there.",
)
def grafana(output: Path) -> None:
    """Write dashboards for Grafana.

    One is of the fleet, one of a rig with its servers. They ask the Prometheus that is chosen above each of them. The
    same names are written again each time.

    \b
    Example:
      herd monitoring grafana -o dashboards
    """
    from llamaherd.fleet.dashboards import DASHBOARDS, dashboard_json

    _write(output, {f"{each.uid}.json": dashboard_json(each) for each in DASHBOARDS})


@monitoring.command()
@click.option("--at", metavar="HH:MM", default=AT, show_default=True, help="When it looks, by this machine's clock.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    default=Path("~/.config/systemd/user"),
    show_default=True,
    help="The folder to write to.",
)
@inventory_option
@click.pass_obj
def timer(inventory: Path | None, at: str, output: Path) -> None:
    """Write two units that run `herd diff --tell` each night.

    systemd runs them as whoever this is. They are for the machine that has the inventory and may log in to the hosts.
    Nothing starts them yet: the command that does is printed. ssh must get in by itself, with a key without a
    passphrase, or with an agent that units of this user reach.

    \b
    Examples:
      herd monitoring timer
      herd monitoring timer --at 12:00 -i ~/fleet
    """
    from llamaherd.pipeline.drift_metrics import monitored_fleet
    from llamaherd.pipeline.load import inventory_path
    from llamaherd.render import render

    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", at):
        raise click.BadParameter(f"`{at}` is no time of a day; write it like {AT}", param_hint="--at")
    path = inventory_path(inventory)
    try:
        monitored_fleet(path)
        herd = _herd()
    except UserError as error:
        fail(error, UNUSABLE)
    service = render("monitoring/look.service.j2", herd=herd, inventory=path.resolve())
    units = {f"{LOOK}.service": service, f"{LOOK}.timer": render("monitoring/look.timer.j2", at=at)}
    _write(output.expanduser(), units, _BEGINS)
    say(
        "it looks from now on by:\n"
        f"  systemctl --user daemon-reload && systemctl --user enable --now {LOOK}.timer\n"
        "and also while you are not logged in by:\n"
        "  loginctl enable-linger",
        err=True,
    )


def _herd() -> Path:
    """The command itself, beside the Python that runs it, else where a shell finds it. Raises UserError."""
    beside = Path(sys.executable).with_name("herd")
    found = str(beside) if beside.exists() else shutil.which("herd")
    if not found:
        raise UserError("a unit could not find `herd`: it is in no folder of PATH", "put it there, and run this again")
    return Path(found).absolute()


def _write(folder: Path, texts: Mapping[str, str], begins: str = "{") -> None:
    """Write these files, each whole or not at all; a sentence ends the program. One of somebody else stays."""
    from llamaherd.measure.report.export import write_text

    try:
        _make(folder)
        for name in texts:
            if not _ours(folder / name, begins):
                raise UserError(f"{folder / name} is none that `herd` has written", "move it away, or name a folder")
        for name, text in texts.items():
            write_text(folder / name, text)
            say(f"written: {folder / name}", err=True)
    except UserError as error:
        fail(error, UNUSABLE)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}", "name another folder with -o") from None


def _ours(file: Path, begins: str) -> bool:
    """Whether there is none, or one that begins like ours."""
    try:
        with file.open("rb") as stream:
            return stream.read(len(begins)) == begins.encode()
    except FileNotFoundError:
        return True
    except OSError:
        return False
