"""From the inventory to pyinfra's hosts. Everything that can be wrong is said here, before a host is touched."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn

import click
from pyinfra.api import InventoryError as PyinfraInventoryError

from llamaherd.deploy.origin import origin
from llamaherd.deploy.run_state import HeldLock
from llamaherd.diagnostics.findings import InventoryError, Place, UserError, nearest
from llamaherd.host.signals import END_SIGNALS
from llamaherd.inventory.schema import Rig
from llamaherd.layout import LOCK_WAIT
from llamaherd.pipeline.load import inventory_path, plans
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.pipeline.release import Origin
from llamaherd.pipeline.rules import UNKNOWN_RIG
from llamaherd.plan import Plan
from llamaherd.text.terminal import plain

RigHost = tuple[str, dict[str, Any]]
CONNECTOR = "llamaherd"
"""What pyproject.toml calls our way to a rig."""

GROUPS = ("inventory", "rigs")
"""What pyinfra lets --limit name beside hosts: the variable and the file that the hosts are in."""


def pyinfra_hosts(source: Path | None = None) -> list[RigHost]:
    """Every rig with its plan: of `source`, or of the usual inventory.

    Raises pyinfra's InventoryError, which it prints as one message.
    """
    for ending in END_SIGNALS:
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, leave)
    if not entry_points(group="pyinfra.connectors", name=CONNECTOR):
        raise PyinfraInventoryError(
            "this checkout was updated, and what pyinfra knows of it was not\n  help: run scripts/setup"
        )
    path = source or inventory_path(None)
    try:
        roles = all_roles(path)
        planned = plans(path, roles, deploying=True, made=lambda key: click.echo(plain(key.made), err=True))
        for pattern in _limits():
            # pyinfra itself ends with success when a limit matches nothing.
            if not any(fnmatch(name, pattern) for name in (*planned, *GROUPS)):
                missing = UNKNOWN_RIG.at(Place(path), f"--limit {pattern} matches no rig", nearest(pattern, planned))
                raise InventoryError([missing])
    except (InventoryError, UserError) as error:
        raise PyinfraInventoryError(f"\n{error}") from None
    by = origin(path)
    return [(f"@{CONNECTOR}/{name}", host_data(*each, path, by, RunOptions())) for name, each in planned.items()]


@dataclass(frozen=True)
class RunOptions:
    """What is asked of a run, beside the plans.

    `changing`: the rigs on which a look has just found something to do. `retry`: what was tried and taken back is tried
    again. `roles`: the names of those that take part; all, where there is none. `back_to`: the release that it brings
    back. `lock_wait`: seconds for which another run is waited for. `held`: the host of a run that has taken its turn
    already; it has no other.
    """

    changing: frozenset[str] = frozenset()
    retry: bool = False
    roles: tuple[str, ...] = ()
    back_to: int | None = None
    lock_wait: int = LOCK_WAIT
    held: HeldLock | None = None


def host_data(
    rig: Rig, plan: Plan, inventory: Path, by: Origin, asked: RunOptions, unreached: str = ""
) -> dict[str, Any]:
    """What deploy.py is told of a host; `unreached` says why a look could not ask it just now, if one could not."""
    return {
        "rig_turn_first": rig.rig in asked.changing,
        "rig_held": asked.held,
        "rig_retry": asked.retry,
        "rig_roles": list(asked.roles),
        "rig_back_to": asked.back_to,
        "rig_lock_wait": asked.lock_wait,
        "rig_origin": by.model_dump(mode="json"),
        "rig_unreached": unreached,
        "rig_connect": rig.connect.model_dump(mode="json"),
        "plan": plan.model_dump(mode="json"),
        "inventory": str(inventory),
    }


def leave(number: int, _frame: object) -> NoReturn:
    """On Ctrl-C: pyinfra's own handler would wait for the remote step to end, a build perhaps, and report success."""
    # Past Python's own buffer, which may be in the middle of a line: it refuses to be entered twice.
    with suppress(OSError):
        os.write(2, b"\nended; what a host is in the middle of goes on there, and the next run goes on from that\n")
    os._exit(128 + number)


def _limits() -> tuple[str, ...]:
    context = click.get_current_context(silent=True)
    return tuple(context.params.get("limit") or ()) if context else ()
