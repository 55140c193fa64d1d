"""`herd init`: create a fleet folder, with a rig from an inspection of its host."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from llamaherd.cli.common import FAILED, echo
from llamaherd.host.remote import RemoteError
from llamaherd.inventory.schema import LOCAL
from llamaherd.measure.results.store import RESULTS
from llamaherd.measure.tune.result import prior_result_lines, prior_results, results_of_machine
from llamaherd.onhost.hardware import FoundHost
from llamaherd.scaffold import (
    EXAMPLE,
    connect_to,
    example_rig,
    fleet_files,
    holds_rigs,
    rig_name,
    rig_yaml,
    write_files,
)
from llamaherd.scaffold.hardware import ScaffoldError, inspect_hardware, written_gpus


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--from", "host", metavar="HOST", help="Inspect this host and write its rig; `local` is this machine.")
@click.option("--user", help="With --from: the SSH user. Default: as SSH is configured.")
@click.option("--port", type=click.IntRange(1, 65535), help="With --from: the SSH port. Default: as SSH is configured.")
@click.option("--name", help="With --from: the name of the rig. Default: the name of its host.")
def init(folder: Path, host: str | None, user: str | None, port: int | None, name: str | None) -> None:
    """Create a fleet folder with a first rig.

    The rig is an example or, with --from, describes an existing host. Existing files in DIR are kept. The inspection is
    one SSH connection and changes nothing. If DIR has results of `herd tune` on the same GPUs with as many cores, the
    rig's file contains the best settings as a comment.

    \b
    Examples:
      herd init ~/fleet                             an example to edit
      herd init ~/fleet --from duo.lan --user tom   a rig with duo's GPUs, cores and memory
      herd init ~/fleet --from local --name attic   this machine
    """
    rigs: dict[str, str] = {}
    try:
        if host is not None:
            rig, text = _inspected_rig(folder, host, user, port, name)
            rigs[rig] = text
        elif not holds_rigs(folder):
            rigs[EXAMPLE] = example_rig()
        outcomes = write_files(folder, fleet_files(rigs))
    except (ScaffoldError, RemoteError) as error:
        echo(f"error: {error.message}\n  help: {error.help}", err=True)
        sys.exit(FAILED)
    for outcome in outcomes:
        echo(f"{outcome.what:9}  {outcome.file}")
    for rig in rigs:
        echo(f"next: read {folder / rig}.yaml, then run `herd -i {folder} check`", err=True)


def _inspected_rig(folder: Path, host: str, user: str | None, port: int | None, name: str | None) -> tuple[str, str]:
    """Return a rig's name and its file from an inspection of its host. Raise ScaffoldError or RemoteError."""
    connect = connect_to(LOCAL if host == "local" else host, user, port)
    rig_name(name, host)  # report an invalid name before the inspection
    echo(f"inspecting {'this machine' if host == 'local' else host}", err=True)
    found = inspect_hardware(connect)
    rig = rig_name(name, found.name or host)
    measured = measured_lines(folder, found)
    if measured:
        echo("its file contains, as a comment, the best settings of `herd tune` on such GPUs", err=True)
    return rig, rig_yaml(found, rig, connect, measured)


def measured_lines(folder: Path, found: FoundHost) -> list[str]:
    """Return the best settings that searches found on the same GPUs with as many cores, as lines of a comment."""
    gpus = [(gpu.model, gpu.memory << 20) for gpu in written_gpus(found)]
    every = results_of_machine(prior_results(folder / RESULTS), gpus, found.cores or found.threads) if gpus else []
    return [line for each in every for line in prior_result_lines(each)]
