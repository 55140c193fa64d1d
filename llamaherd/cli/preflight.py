"""`herd preflight`: what hosts are, before anything is changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llamaherd.cli.common import FAILED, inventory_option, json_option, rigs_argument, roles_of, usable_plans

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.pipeline.preflight import Preflight
    from llamaherd.plan import Plan
    from llamaherd.role.role import Role


@click.command()
@rigs_argument
@inventory_option
@json_option
@click.pass_obj
def preflight(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Show what the hosts are, beside what is wanted of them. Changes nothing.

    System, kernel, GPUs on the bus before there is any driver, Secure Boot, compilers, disks, RAM, who holds packages,
    ports. `herd up` refuses for the same reasons, before it changes anything. Exit codes: 0 nothing is in the way,
    1 something is refused or a host cannot be reached, 2 the inventory cannot be used.

    \b
    Examples:
      herd preflight               the whole fleet, all at once
      herd preflight duo --json    one rig, for machines
    """
    from concurrent.futures import ThreadPoolExecutor

    from llamaherd.host.remote import AT_ONCE, as_they_come

    every, roles = usable_plans(inventory, rigs), roles_of(inventory)
    found = {}
    pool = ThreadPoolExecutor(max(1, min(AT_ONCE, len(every))))
    try:
        for name, each in as_they_come({name: pool.submit(_ask, roles, planned) for name, planned in every.items()}):
            found[name] = each
            if not as_json:
                _show(each)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # who is interrupted waits for no host
    ok = all(each.ok for each in found.values())
    if as_json:
        click.echo(json.dumps({"ok": ok, "rigs": [found[name].as_json() for name in every]}))
    if not ok:
        sys.exit(FAILED)


def _ask(roles: Sequence[Role], rig_and_plan: tuple[Rig, Plan]) -> Preflight:
    from llamaherd.host.remote import Remote
    from llamaherd.pipeline.preflight import run_preflight

    rig, plan = rig_and_plan
    return run_preflight(plan, roles, Remote(rig.connect))


def _show(found: Preflight) -> None:
    from llamaherd.pipeline.show import print_preflight
    from llamaherd.store.show import console

    print_preflight(found, console())
