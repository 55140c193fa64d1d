"""`herd show`: show the desired state of each host, and how much memory its engines report."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llamaherd.cli.common import FAILED, echo, inventory_option, json_option, read_or_exit, rigs_argument
from llamaherd.cli.envelope import Envelope, print_envelope

if TYPE_CHECKING:
    from llamaherd.inventory.schema import Rig
    from llamaherd.pipeline.engine_estimate import EngineEstimates
    from llamaherd.plan import Plan


@click.command()
@rigs_argument
@click.option("--ask", is_flag=True, help="Also run the engines on the rigs to estimate memory. Changes nothing there.")
@inventory_option
@json_option
@click.option(
    "-v", "--verbose", is_flag=True, help="Also show packages, build options, command lines, hashes and paths."
)
@click.pass_obj
def show(inventory: Path | None, rigs: tuple[str, ...], ask: bool, as_json: bool, verbose: bool) -> None:
    """Show the desired state of each host.

    The addresses of its servers come first, and the memory that they hold. Connects to hosts only with --ask.

    With --ask, each build of llama.cpp on its rig estimates the memory of its servers, from the model there or from the
    model's header, which is fetched and sent. For a moment this needs RAM for the state of a recurrent model.

    Exit codes: 0 done; 1 a host cannot be reached; 2 the inventory is unusable.

    \b
    Examples:
      herd show               every rig
      herd show box -v        one rig, to the last argument and hash
      herd show box --json    one rig, as JSON
      herd show box --ask     with the engines' memory estimates
    """
    from llamaherd.cli.rigs import plans_or_exit, roles_or_exit  # late: the help needs none of it
    from llamaherd.pipeline.plan import show_plan, summarize_plan

    planned = plans_or_exit(inventory, rigs)
    estimates, unreached = _query_rigs(inventory, planned) if ask else ({}, False)
    if as_json:
        rows = [
            each.model_dump(mode="json") | ({"engine_memory": _as_json(estimates[name])} if ask else {})
            for name, (_, each) in planned.items()
        ]
        print_envelope(Envelope(not unreached, rows))
    else:
        roles = roles_or_exit(inventory)
        for name, (rig, each) in planned.items():
            by_engines = estimates.get(name)
            echo(summarize_plan(rig, each, roles, by_engines), fit=True)
            if verbose:
                echo(show_plan(each, roles, by_engines))
    if unreached:
        sys.exit(FAILED)


def _query_rigs(
    inventory: Path | None, planned: Mapping[str, tuple[Rig, Plan]]
) -> tuple[dict[str, EngineEstimates], bool]:
    """Return the memory estimates by rig, and whether a rig cannot be reached. Print errors at once."""
    from llamaherd.host.remote import Remote, RemoteError
    from llamaherd.pipeline.engine_estimate import query_engines
    from llamaherd.pipeline.load import inventory_path, read_lock

    lock = read_or_exit(lambda: read_lock(inventory_path(inventory)))
    estimates: dict[str, EngineEstimates] = {}
    unreached = False
    for name, (rig, each) in planned.items():
        echo(f"querying {name}", err=True)
        try:
            estimates[name] = query_engines(rig, each, lock, Remote(rig.connect))
        except RemoteError as error:
            echo(f"{name}: {error}", err=True)
            estimates[name] = dict.fromkeys((instance.name for instance in each.instances), error.message)
            unreached = True
    return estimates, unreached


def _as_json(estimates: EngineEstimates) -> dict[str, Any]:
    """Return, by instance, the estimate or why there is none."""
    return {
        name: {"unknown": each} if isinstance(each, str) else each.model_dump(mode="json")
        for name, each in estimates.items()
    }
