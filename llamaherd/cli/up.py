"""`herd up`, `herd plan`, `herd upgrade` and `herd down`: apply a plan, preview it, move its versions, or remove it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import (
    complete_rigs,
    inventory_option,
    json_option,
    lock_wait_option,
    only_option,
    quiet_option,
    rig_argument,
    rigs_argument,
    yes_option,
)


@click.command()
@rigs_argument
@only_option
@click.option("--canary", metavar="RIG", shell_complete=complete_rigs, help="Change this rig first, on its own.")
@click.option("--waves", type=click.IntRange(1, 1000), metavar="N", help="Change at most N rigs at the same time.")
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Apply the changes that `herd plan --save FILE` saved, without a question, if they are still the same.",
)
@yes_option("Do not prompt before something is restarted, stopped or removed.")
@click.option("--dry-run", is_flag=True, help="The same as `herd plan`: show the changes, and make none.")
@click.option("--locked", is_flag=True, help="Refuse what the lock lacks, and do not write the lock.")
@click.option("--retry", is_flag=True, help="Try a version again that was rolled back.")
@lock_wait_option
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Also print reasons and all of the run (-v), facts (-vv), commands (-vvv) and their output (-vvvv).",
)
@quiet_option
@inventory_option
@click.pass_obj
def up(inventory: Path | None, /, **options: Any) -> None:
    """Apply the plan to the hosts.

    `herd up` first prints the changes, as `herd plan` does. On a terminal it prompts once before it restarts, stops,
    reboots or removes something. A second run changes nothing. If a run is interrupted, run it again. `pyinfra
    inventory.py deploy.py` does the same, but locks nothing.

    New engines, images and models are locked first, as by `herd lock`: review and commit herd.lock. Locked versions
    stay unchanged. With `--locked`, a run with new ones is refused.

    One run at a time changes a host; others wait for it. If the new version of a server does not respond, the host
    restores the previous version. A later run skips the failed version, unless you give `--retry`.

    With `--only`, `herd up` applies one instance, such as `chat`, with everything that it needs, or one role, such as
    `power`. The rest of the rig stays unchanged.

    With `--canary` or `--waves`, rigs are changed one after another: the next ones only when the previous ones are up
    to date. Otherwise all rigs are changed at the same time, except rigs that back each other up in `fleet.yaml`.

    \b
    Examples:
      herd up                          the whole fleet
      herd up duo six                  two rigs
      herd up --yes                    without a question
      herd up --yes --locked           in CI: only what the committed lock has
      herd up duo --only chat          one instance, with its engine and models
      herd up --only power             one role, on all rigs
      herd up --canary six             that rig first, then all others
      herd up --canary six --waves 2   that rig, then two at a time
      herd up --plan monday.json       the changes that `herd plan` saved
    """
    from llamaherd.cli.apply import UpOptions, run_up  # late: the help needs none of it

    run_up(UpOptions(inventory, **options))


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


@click.command()
@click.argument("names", metavar="[ENGINE|IMAGE|MODEL]...", nargs=-1)
@yes_option("Do not prompt.")
@click.option("--dry-run", is_flag=True, help="Show the new versions and lines, and change nothing.")
@click.option("--no-try", is_flag=True, help="Do not measure instances with a gate before the inventory changes.")
@click.option("--no-apply", is_flag=True, help="Write the inventory and the lock, and change no host.")
@lock_wait_option
@quiet_option
@inventory_option
@click.pass_obj
def upgrade(inventory: Path | None, /, **options: Any) -> None:
    """Move to the newest versions, and apply them.

    A name is that of an engine, an image or a model. Without a name, `herd upgrade` moves everything that `herd
    outdated` lists as newer. A tag, such as `ref: b11434`,
    is replaced by the newest tag of its kind in the YAML file; comments and all other lines stay unchanged. Branches,
    image tags without a version and models move in herd.lock only.

    The steps: resolve and check the new versions; print the changes and prompt; measure instances with a `gate` on
    their rigs, as `herd lock --try` does; write the files; run `herd up` for the rigs that use these versions, which
    prints its changes and prompts before a restart. If a step before the writing fails, nothing is written.

    \b
    Exit codes:
      0  applied, or nothing is newer
      1  something failed, is slower than its gate allows, or was not confirmed
      2  wrong usage, or an unusable inventory

    \b
    Examples:
      herd upgrade               everything
      herd upgrade main          the engine `main`
      herd upgrade --dry-run     show what would change in the inventory
      herd upgrade --no-apply    only write the inventory and the lock
    """
    from llamaherd.cli.version_moves import UpgradeOptions, run_upgrade  # late: the help needs none of it

    run_upgrade(UpgradeOptions(inventory, **options))


@click.command()
@rig_argument
@click.option("--purge", is_flag=True, help="Also remove models, engines, accounts, state and logs.")
@yes_option("Do not prompt.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@lock_wait_option
@quiet_option
@inventory_option
@click.pass_obj
def down(inventory: Path | None, /, **options: Any) -> None:
    """Remove servers, gateway and monitoring from a host.

    Removed are the servers with their units, containers, keys and accounts, the gateway and its virtual address, the
    chat page, monitoring, timers, and the power settings of GPUs. Models, engines, state and logs stay, so that `herd
    up` starts the servers again without a download or a build. --purge removes them as well, with the conversations of
    the chat page, the metrics of Prometheus, the releases for a rollback, and all programs of llamaherd.

    Packages, NVIDIA's driver, CUDA and Docker stay, with their settings and repositories. What another program uses
    stays, too, such as a model that is named in a script.

    The command first shows what goes and what stays, and prompts once. If it is interrupted, run it again. The
    inventory is unchanged.

    \b
    Exit codes: 0 everything was removed, or nothing was there; 1 something was
    not removed or not confirmed; 2 wrong usage, or no terminal for the prompt.

    \b
    Examples:
      herd down duo --dry-run       show what would go, and what stays
      herd down duo                 show it, prompt, and remove the services
      herd down duo --purge --yes   remove everything, without a question
    """
    from llamaherd.cli.host_removal import DownOptions, run_down  # late: the help needs none of it

    run_down(DownOptions(inventory, **options))
