"""`herd down`: remove from a host what llamaherd put there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import inventory_option, lock_wait_option, quiet_option, rig_argument, yes_option


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
