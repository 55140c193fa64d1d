"""`herd upgrade`: move engines, images and models to their newest versions, and apply them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from llamaherd.cli.common import inventory_option, lock_wait_option, quiet_option, yes_option


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
