"""Run pyinfra's own command over the hosts of a fleet, with their plans as its data."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from importlib import import_module
from importlib.metadata import entry_points
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import click
from pyinfra import logger
from pyinfra.api import InventoryError as PyinfraInventoryError
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_state

from llamaherd.deploy.origin import origin
from llamaherd.deploy.run_state import Failure, LockedHost, Screen, downtimes_of, failures_of, shown_on, speeds_of
from llamaherd.diagnostics.findings import InventoryError, Place, UserError, nearest
from llamaherd.host.signals import END_SIGNALS
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.layout import LOCK_WAIT
from llamaherd.pipeline.history import Origin
from llamaherd.pipeline.load import inventory_path, plans
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.pipeline.rules import UNKNOWN_RIG
from llamaherd.plan import Plan
from llamaherd.resources import ROOT
from llamaherd.text.terminal import plain

RigHost = tuple[str, dict[str, Any]]
CONNECTOR = "llamaherd"
"""The name of our connector in pyproject.toml."""

INTERRUPTED = "\ninterrupted: steps on hosts finish or are rolled back; run it again to resume\n"
"""One line that fits a terminal: a handler of a signal wraps no text."""

SHOW_CURSOR = "\x1b[?25h"
"""Ends what a live line does to a terminal (DECTCEM)."""

_prepared: ContextVar[list[RigHost] | None] = ContextVar("prepared", default=None)
"""The hosts of a run that `herd` has started."""

GROUPS = ("inventory", "rigs")
"""The names of all hosts that pyinfra accepts in --limit: of the variable and of the file with the hosts."""


def pyinfra_hosts(source: Path | None = None) -> list[RigHost]:
    """Return the hosts that `herd` has prepared; else every rig of `source`, or of the usual inventory, with its plan.

    Raise pyinfra's InventoryError, which pyinfra prints as one message.
    """
    end_on_signals()
    prepared = _prepared.get()
    if prepared is not None:
        return prepared
    if not entry_points(group="pyinfra.connectors", name=CONNECTOR):
        raise PyinfraInventoryError(
            "pyinfra does not find its connector `llamaherd`: this checkout is newer than its installation\n"
            "  help: run scripts/setup"
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
    return rig_hosts(planned, path, RunOptions(), {})


def rig_hosts(
    planned: Mapping[str, tuple[Rig, Plan]], inventory: Path, options: RunOptions, unreached: Mapping[str, str]
) -> list[RigHost]:
    """Return pyinfra's host and data of each rig. `unreached`: by rig, why its inspection did not reach it."""
    by = origin(inventory)
    return [
        (f"@{CONNECTOR}/{name}", host_data(rig.connect, plan, inventory, by, options, unreached.get(name, "")))
        for name, (rig, plan) in planned.items()
    ]


def end_on_signals() -> None:
    """Make Ctrl-C and other signals that end a program end this one at once, except signals that are ignored."""
    for ending in END_SIGNALS:
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, leave)


@dataclass(frozen=True)
class RunOptions:
    """The options of a run.

    `changing` are the rigs on which an inspection has just found something to do. `retry`: changes that were rolled
    back are tried again. `roles` are the names of the selected roles; empty for all. `back_to` is the release to roll
    back to. `lock_wait` is the longest wait for another run, in seconds. `held` is the host of a run that already holds
    its lock; such a run has no other host. `removing`: the run removes servers and what else roles have set up.
    """

    changing: frozenset[str] = frozenset()
    retry: bool = False
    roles: tuple[str, ...] = ()
    back_to: int | None = None
    lock_wait: int = LOCK_WAIT
    held: LockedHost | None = None
    removing: bool = False


def host_data(
    connect: Connect, plan: Plan, inventory: Path, by: Origin, options: RunOptions, unreached: str = ""
) -> dict[str, Any]:
    """Return what deploy.py reads of a host. `unreached`: why an inspection a moment ago did not reach it."""
    return {
        "rig_lock_first": plan.rig in options.changing,
        "rig_locked": options.held,
        "rig_retry": options.retry,
        "rig_roles": list(options.roles),
        "rig_back_to": options.back_to,
        "rig_removing": options.removing,
        "rig_lock_wait": options.lock_wait,
        "rig_origin": by.model_dump(mode="json"),
        "rig_unreached": unreached,
        "rig_connect": connect.model_dump(mode="json"),
        "plan": plan.model_dump(mode="json"),
        "inventory": str(inventory),
    }


def leave(number: int, _frame: object) -> NoReturn:
    """Print one line and exit. pyinfra's own handler waits for the remote step, perhaps a build, and exits with 0."""
    # os.write does not use Python's buffer, which refuses to be entered twice.
    with suppress(OSError):
        os.write(2, (SHOW_CURSOR * os.isatty(2) + INTERRUPTED).encode())
    os._exit(128 + number)


def _limits() -> tuple[str, ...]:
    context = click.get_current_context(silent=True)
    return tuple(context.params.get("limit") or ()) if context else ()


def load_pyinfra() -> None:
    """Load pyinfra's command. It replaces functions of the standard library that wait: no thread may wait now."""
    with warnings.catch_warnings():
        # A run that has locked something has loaded ssl. It queries no server by TLS from now on.
        warnings.filterwarnings("ignore", "Monkey-patching ssl")
        import_module("pyinfra_cli.main")


@dataclass(frozen=True)
class RunResult:
    """What a run has brought about: the rigs that failed, in their order, why, and how fast started servers are.

    `downtimes` are the seconds for which restarted servers were down, by rig and service. `seconds` is how long the run
    took, by rig, where a screen has measured that.
    `output` is what pyinfra has printed, where that was not shown.
    """

    failed: tuple[str, ...]
    failures: Mapping[str, tuple[Failure, ...]] = field(default_factory=dict)
    speeds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    downtimes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    output: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)


def deploy_on(
    screen: Screen,
    planned: Mapping[str, tuple[Rig, Plan]],
    inventory: Path,
    unreached: Mapping[str, str],
    options: RunOptions,
) -> RunResult:
    """Apply plans as `deploy` does, and show that on a screen: pyinfra's own lines are not printed."""
    hidden = TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True)
    with shown_on(screen), redirect_stdout(hidden), redirect_stderr(hidden):
        result = _deploy(planned, inventory, 0, unreached, options)
    hidden.seek(0)
    return replace(result, output=plain(hidden.read()))


def deploy(
    planned: Mapping[str, tuple[Rig, Plan]],
    inventory: Path,
    verbosity: int,
    unreached: Mapping[str, str],
    options: RunOptions,
) -> tuple[str, ...]:
    """Apply plans to their hosts by `pyinfra inventory.py deploy.py -y`. Return the rigs that failed, in their order.

    `unreached`: by rig, why its inspection did not reach it; the run does not connect to such a rig. The function may
    be called again for other hosts.
    """
    return _deploy(planned, inventory, verbosity, unreached, options).failed


def _deploy(
    planned: Mapping[str, tuple[Rig, Plan]],
    inventory: Path,
    verbosity: int,
    unreached: Mapping[str, str],
    options: RunOptions,
) -> RunResult:
    hosts = rig_hosts(planned, inventory, options, unreached)
    try:
        run_pyinfra(hosts, str(ROOT / "deploy.py"), "-y", *["-v"] * verbosity)
    except SystemExit:
        pass
    finally:
        state = ctx_state.get()
        ctx_state.reset()
    if state is None:
        return RunResult(tuple(planned))
    there = {host.name: host for host in state.inventory}
    failures = {name: failures_of(host) for name, host in there.items()}
    speeds = {name: speeds_of(host) for name, host in there.items()}
    downtimes = {name: downtimes_of(host) for name, host in there.items()}
    failed = {host.name for host in state.failed_hosts}
    if state.current_stage < StateStage.Disconnect:
        failed = {*planned}  # the run ended before its results, as when no host is left
    return RunResult(tuple(name for name in planned if name in failed), failures, speeds, downtimes)


def run_pyinfra(hosts: list[RigHost], *arguments: str) -> NoReturn:
    """Run `pyinfra inventory.py` with these arguments over the hosts. Raise SystemExit, as pyinfra's command does."""
    # At its import, pyinfra's command replaces functions of the standard library by those of gevent.
    from pyinfra_cli.main import main

    argv, token = sys.argv, _prepared.set(hosts)
    # A config.py in the current folder is not part of the fleet.
    sys.argv = ["pyinfra", str(ROOT / "inventory.py"), *arguments, "--config", os.devnull]
    try:
        main()
    finally:
        _prepared.reset(token)
        sys.argv = argv
        for handler in tuple(logger.handlers):
            logger.removeHandler(handler)  # each run adds one: with two, each line is printed twice
    raise AssertionError("pyinfra's command ends the program")
