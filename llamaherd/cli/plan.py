"""`herd plan`, and its alias `herd diff`: show what `herd up` would change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import inventory_option, json_option, only_option, rigs_argument


def _check_metrics_file(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path | None:
    """Return a file that ends with .prom: a typing mistake must not overwrite another file."""
    if value is not None and value.suffix != ".prom":
        raise click.BadParameter("name a file that ends with .prom: exporters read no other files")
    return value


@click.command()
@rigs_argument
@inventory_option
@json_option
@only_option
@click.option("--save", type=click.Path(path_type=Path), metavar="FILE", help="Save it for `herd up --plan FILE`.")
@click.option(
    "--metrics",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.prom",
    callback=_check_metrics_file,
    help="Write metrics for the textfile collector of Prometheus' node exporter.",
)
@click.option("--tell", is_flag=True, help="Send the metrics to the rig that runs monitoring.")
@click.option("-v", "--verbose", is_flag=True, help="Also show files, hashes and the texts that differ.")
@click.pass_obj
def plan(inventory: Path | None, /, **options: Any) -> None:
    """Show what `herd up` would change. Changes nothing.

    \b
    + is created, - is removed, ~ is changed,
    ± is restarted, with its expected downtime.

    Each line shows old and new values. With -v, each change also has its reasons, and files that differ are shown as a
    unified diff. A change that follows from another change, such as a restart after a new build, appears once the first
    change is applied. `herd show` prints the desired state. `herd diff` is the same command.

    Exit codes: 0 all rigs are up to date; 2 there are changes; 1 the inventory is unusable, a host cannot be inspected,
    or a host cannot become up to date.

    With `--only`, the plan covers one instance, such as `chat`, or one role, such as `power`. One line counts the other
    changes.

    With `--save`, the changes are also written to a file. `herd up --plan FILE` applies them if nothing has changed
    since.

    With `--tell`, the number of changes is written as metrics to the rig that runs monitoring. If `fleet.yaml` contains
    `monitoring: {drift: true}`, Prometheus alerts on drift. `herd monitoring timer` runs this each night.

    \b
    Examples:
      herd plan                       the whole fleet
      herd plan duo -v                one rig, with files and hashes
      herd plan duo --json            as JSON, with old and new values
      herd plan --only chat           one instance, with what it needs
      herd plan --save monday.json    to apply later
      herd plan --tell                as metrics, for alerts on drift
    """
    from llamaherd.cli.preview import PlanOptions, run_plan  # late: the help needs none of it

    run_plan(PlanOptions(inventory, **options))


diff = click.Command(
    "diff",
    callback=plan.callback,
    params=plan.params,
    help="The same as `herd plan`.\n\nShow what `herd up` would change, with the same options and exit codes.",
)
