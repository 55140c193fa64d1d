"""`herd init`: a fleet's folder, and a rig from one look at its host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import FAILED, say

if TYPE_CHECKING:
    from llamaherd.onhost.hardware import FoundHost


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--from", "host", metavar="HOST", help="Look at this host and write its rig; `local` is this machine.")
@click.option("--user", help="With --from: who logs in. Default: what SSH would take.")
@click.option("--port", type=click.IntRange(1, 65535), help="With --from: SSH's port. Default: what SSH would take.")
@click.option("--name", help="With --from: what the rig is called. Default: after its host.")
def init(folder: Path, host: str | None, user: str | None, port: int | None, name: str | None) -> None:
    """Make DIR a fleet of its own, with a first rig.

    It is an example, or from a look at a host. What is there already is left as it is. The look is one SSH connection
    that changes nothing. Where DIR has searches of `herd tune` on such GPUs beside as many cores, what they found best
    stands in the rig's file as a comment.

    \b
    Examples:
      herd init ~/fleet                             an example to change
      herd init ~/fleet --from duo.lan --user tom   a rig with duo's GPUs, cores and memory
      herd init ~/fleet --from local --name attic   this machine
    """
    from llamaherd.host.remote import RemoteError
    from llamaherd.scaffold import EXAMPLE, example_rig, fleet_files, holds_rigs, write_files
    from llamaherd.scaffold.hardware import ScaffoldError

    rigs: dict[str, str] = {}
    try:
        if host is not None:
            rig, text = _written_rig(folder, host, user, port, name)
            rigs[rig] = text
        elif not holds_rigs(folder):
            rigs[EXAMPLE] = example_rig()
        outcomes = write_files(folder, fleet_files(rigs))
    except (ScaffoldError, RemoteError) as error:
        say(f"error: {error.message}\n  help: {error.help}", err=True)
        sys.exit(FAILED)
    for outcome in outcomes:
        say(f"{outcome.what:9}  {outcome.file}")
    for rig in rigs:
        say(f"next: read {folder / rig}.yaml, then run `herd -i {folder} check`", err=True)


def _written_rig(folder: Path, host: str, user: str | None, port: int | None, name: str | None) -> tuple[str, str]:
    """A rig's name and its file, from one look at its host. Raises LookError and RemoteError."""
    from llamaherd.inventory.schema import LOCAL
    from llamaherd.scaffold import connect_to, rig_name, rig_yaml
    from llamaherd.scaffold.hardware import inspect_hardware

    connect = connect_to(LOCAL if host == "local" else host, user, port)
    rig_name(name, host)  # a name that will not do is said before the host is asked
    say(f"asking {'this machine' if host == 'local' else host}", err=True)
    seen = inspect_hardware(connect)
    rig = rig_name(name, seen.name or host)
    measured = measured_lines(folder, seen)
    if measured:
        say("its file has, as a comment, what `herd tune` found best on GPUs like its own", err=True)
    return rig, rig_yaml(seen, rig, connect, measured)


def measured_lines(folder: Path, seen: FoundHost) -> list[str]:
    """What searches in a fleet's folder have found best on such GPUs beside as many cores, as lines of a comment."""
    from llamaherd.measure.results.store import RESULTS
    from llamaherd.measure.tune.prior_results import prior_result_lines, prior_results, results_of_machine
    from llamaherd.scaffold.hardware import written_gpus

    gpus = [(gpu.model, gpu.memory << 20) for gpu in written_gpus(seen)]
    every = results_of_machine(prior_results(folder / RESULTS), gpus, seen.cores or seen.threads) if gpus else []
    return [line for each in every for line in prior_result_lines(each)]
