"""`herd preflight`: compare each host with the plan, before anything is changed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
from rich.console import Console

from llamaherd.cli.common import FAILED, inventory_option, json_option, rigs_argument
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.cli.rigs import plans_or_exit, roles_or_exit
from llamaherd.host.remote import AT_ONCE, Remote, as_they_come
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.preview import Preflight, run_preflight
from llamaherd.plan import Plan
from llamaherd.role.role import Role
from llamaherd.store.show import console
from llamaherd.text.tables import make_table, print_table
from llamaherd.text.terminal import printable


@click.command()
@rigs_argument
@inventory_option
@json_option
@click.pass_obj
def preflight(inventory: Path | None, rigs: tuple[str, ...], as_json: bool) -> None:
    """Compare each host with the plan, without changing it.

    It checks system, kernel, GPUs on the bus (also without a driver), Secure Boot, compilers, disks, RAM, running
    package managers and ports. `herd up` refuses to start for the same reasons.

    Exit codes: 0 no obstacles; 1 an obstacle, or a host cannot be reached; 2 the inventory is unusable.

    \b
    Examples:
      herd preflight               the whole fleet
      herd preflight duo --json    one rig, as JSON
    """
    every, roles = plans_or_exit(inventory, rigs), roles_or_exit(inventory)
    found = {}
    pool = ThreadPoolExecutor(max(1, min(AT_ONCE, len(every))))
    try:
        for name, each in as_they_come(
            {name: pool.submit(_inspect, roles, planned) for name, planned in every.items()}
        ):
            found[name] = each
            if not as_json:
                print_preflight(each, console())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an interrupted command waits for no host
    ok = all(each.ok for each in found.values())
    if as_json:
        print_envelope(Envelope(ok, [found[name].as_json() for name in every]))
    if not ok:
        sys.exit(FAILED)


def _inspect(roles: Sequence[Role], rig_and_plan: tuple[Rig, Plan]) -> Preflight:
    rig, plan = rig_and_plan
    return run_preflight(plan, roles, Remote(rig.connect))


_STYLES = {"ok": "green", "note": "yellow", "refused": "bold red"}


def print_preflight(found: Preflight, to: Console) -> None:
    """Print a rig's table of what was found and what is required, and below it the problems with their help."""
    to.print(f"[bold]{found.rig}[/]")
    table = make_table("", "found", "wanted", "")
    for row in found.rows:
        verdict = f"[{_STYLES[row.verdict]}]{row.verdict}[/]"
        table.add_row(printable(row.what), printable(row.found), printable(row.wanted), verdict)
    print_table(table, to)
    for row in found.doubtful:
        to.print(
            f"[{_STYLES[row.verdict]}]{row.verdict}[/]: {printable(row.why)}\n  [bold]help[/]: {printable(row.help)}"
        )
