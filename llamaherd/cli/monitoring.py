"""`herd monitoring`: write Grafana dashboards, and a timer that reports drift. Neither is on a host of the fleet."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from llamaherd.cli.common import UNUSABLE, echo, exit_on_error, inventory_option, write_output
from llamaherd.diagnostics.findings import UserError
from llamaherd.fleet.dashboards import DASHBOARDS, dashboard_json
from llamaherd.pipeline.diff import monitored_fleet
from llamaherd.pipeline.load import inventory_path
from llamaherd.render import render

AT = "03:30"
"""The default time of the timer."""
DRIFT_UNIT = "llamaherd-look"
"""The name of the timer's units. It stays: users have enabled a timer of this name."""
_BEGINS = "# Written by `herd monitoring timer`."


@click.group()
def monitoring() -> None:
    """Write Grafana dashboards, or a timer that reports drift.

    Both are for your own machine. Prometheus and its alerts are declared in `fleet.yaml`: see `herd explain
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
    help="The folder to write to. It is created if it does not exist.",
)
def grafana(output: Path) -> None:
    """Write dashboards for Grafana.

    One dashboard shows the fleet, one a rig with its servers. Both query the Prometheus that is selected at their top.
    Existing dashboards of `herd` in the folder are overwritten.

    \b
    Example:
      herd monitoring grafana -o dashboards
    """
    _write(output, {f"{each.uid}.json": dashboard_json(each) for each in DASHBOARDS})


@monitoring.command()
@click.option("--at", metavar="HH:MM", default=AT, show_default=True, help="When the timer runs, in local time.")
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

    Run this on the machine that has the inventory and can log in to the hosts. systemd runs the units as your user. The
    command that enables them is printed. SSH must work without a question: by a key without a passphrase, or by an
    agent that your user's units can reach.

    \b
    Examples:
      herd monitoring timer
      herd monitoring timer --at 12:00 -i ~/fleet
    """
    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", at):
        raise click.BadParameter(f"`{at}` is not a time of day; write it like {AT}", param_hint="--at")
    path = inventory_path(inventory)
    with exit_on_error(UNUSABLE):
        monitored_fleet(path)
        herd = _herd()
    service = render("monitoring/drift.service.j2", herd=herd, inventory=path.resolve())
    units = {f"{DRIFT_UNIT}.service": service, f"{DRIFT_UNIT}.timer": render("monitoring/drift.timer.j2", at=at)}
    _write(output.expanduser(), units, _BEGINS)
    echo(
        "to enable the timer, run:\n"
        f"  systemctl --user daemon-reload && systemctl --user enable --now {DRIFT_UNIT}.timer\n"
        "to run it also while you are not logged in:\n"
        "  loginctl enable-linger",
        err=True,
    )


def _herd() -> Path:
    """Return the path of `herd`: next to the running Python, else from PATH. Raise UserError."""
    beside = Path(sys.executable).with_name("herd")
    found = str(beside) if beside.exists() else shutil.which("herd")
    if not found:
        raise UserError("`herd` is not in PATH, so a unit cannot find it", "add its folder to PATH, and run this again")
    return Path(found).absolute()


def _write(folder: Path, texts: Mapping[str, str], begins: str = "{") -> None:
    """Write files atomically. Print an error and end the program if one exists that `herd` did not write."""
    with exit_on_error(UNUSABLE):
        _make(folder)
        for name in texts:
            if not _ours(folder / name, begins):
                raise UserError(f"{folder / name} was not written by `herd`", "move it, or choose another folder")
        for name, text in texts.items():
            write_output(folder / name, text)
            echo(f"written: {folder / name}", err=True)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {folder}: {error.strerror}", "name another folder with -o") from None


def _ours(file: Path, begins: str) -> bool:
    """Return whether a file does not exist or begins like a file of `herd`."""
    try:
        with file.open("rb") as stream:
            return stream.read(len(begins)) == begins.encode()
    except FileNotFoundError:
        return True
    except OSError:
        return False
