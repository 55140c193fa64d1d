"""`herd verify`: check the running servers against the plan."""

from __future__ import annotations

from pathlib import Path

import click

from llamaherd.cli.common import inventory_option, json_option, rigs_argument


@click.command()
@rigs_argument
@click.option("--deep", is_flag=True, help="Also read every model file, and compare its sha256.")
@inventory_option
@json_option
@click.pass_obj
def verify(inventory: Path | None, rigs: tuple[str, ...], deep: bool, as_json: bool) -> None:
    """Check the running servers against the plan.

    It also reports their speed. With --deep, it also compares the models' files with their hashes. That takes minutes
    for each 100 GB, and uses only spare disk and CPU time. `herd up` fetches a damaged file again.

    \b
    Examples:
      herd verify              the whole fleet
      herd verify --deep duo   one rig, with the hashes of its models
    """
    from llamaherd.cli.verification import verify_rigs  # late: the help needs none of it

    verify_rigs(inventory, rigs, deep=deep, as_json=as_json)
