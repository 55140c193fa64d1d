"""`herd plan`: what would be on each host, and what its engines say of memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamaherd.cli.common import (
    FAILED,
    inventory_option,
    json_option,
    rigs_argument,
    roles_of,
    say,
    usable_or_exit,
    usable_plans,
)

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.pipeline.engine_estimate import EngineEstimates
    from llamaherd.plan import Plan


@click.command()
@rigs_argument
@click.option("--ask", is_flag=True, help="Also ask the engines on the rigs what they take. Changes nothing there.")
@inventory_option
@json_option
@click.pass_obj
def plan(inventory: Path | None, rigs: tuple[str, ...], ask: bool, as_json: bool) -> None:
    """Show exactly what would be on each host. Touches no host, but for --ask.

    With --ask, every build of llama.cpp that is on its rig says what its servers take: of the model there, or of its
    header, which is fetched and brought. For a moment that needs RAM for a recurrent model's state. Exit codes: 0 all
    that can be said was said, 1 a host could not be asked, 2 the inventory cannot be used.

    \b
    Examples:
      herd plan               every rig, for reading
      herd plan box --json    one rig, for machines
      herd plan box --ask     and what its engines say of memory
    """
    from llamaherd.pipeline.plan import show_plan

    planned = usable_plans(inventory, rigs)
    said, unreached = _asked(inventory, planned) if ask else ({}, False)
    if as_json:
        click.echo(
            json.dumps(
                {
                    name: each.model_dump(mode="json") | ({"engine_memory": _as_json(said[name])} if ask else {})
                    for name, (_, each) in planned.items()
                }
            )
        )
    else:
        for name, (_, each) in planned.items():
            say(show_plan(each, roles_of(inventory), said.get(name)))
    if unreached:
        sys.exit(FAILED)


def _asked(inventory: Path | None, planned: Mapping[str, tuple[Rig, Plan]]) -> tuple[dict[str, EngineEstimates], bool]:
    """What the engines on the rigs say, by rig; and whether a rig could not be asked, which is said at once."""
    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.pipeline.engine_estimate import query_engines
    from llamaherd.pipeline.load import inventory_path, read_lock

    lock = usable_or_exit(lambda: read_lock(inventory_path(inventory)))
    said: dict[str, EngineEstimates] = {}
    unreached = False
    for name, (rig, each) in planned.items():
        say(f"asking {name}", err=True)
        try:
            said[name] = query_engines(rig, each, lock, Remote(rig.connect))
        except RemoteError as error:
            say(f"{name}: {error}", err=True)
            said[name] = dict.fromkeys((instance.name for instance in each.instances), error.message)
            unreached = True
    return said, unreached


def _as_json(said: EngineEstimates) -> dict[str, Any]:
    """By instance: the estimate, or why there is none."""
    return {
        name: {"unknown": each} if isinstance(each, str) else each.model_dump(mode="json")
        for name, each in said.items()
    }
