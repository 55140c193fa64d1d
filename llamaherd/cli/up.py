"""`herd up`: apply the plan to the hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import (
    complete_rigs,
    inventory_option,
    lock_wait_option,
    only_option,
    quiet_option,
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
