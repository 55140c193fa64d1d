"""Run pyinfra's own command over hosts whose plans exist."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from pyinfra import logger
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_state
from pyinfra_cli.main import main

from llamaherd.deploy.hosts import RigHost, RunOptions, prepared_hosts, rig_hosts
from llamaherd.inventory.schema import Rig
from llamaherd.plan import Plan
from llamaherd.resources import ROOT


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
    hosts = rig_hosts(planned, inventory, options, unreached)
    try:
        run_pyinfra(hosts, str(ROOT / "deploy.py"), "-y", *["-v"] * verbosity)
    except SystemExit:
        pass
    finally:
        state = ctx_state.get()
        ctx_state.reset()
    if state is None or state.current_stage < StateStage.Disconnect:
        return tuple(planned)  # the run ended before its results, as when no host is left
    failed = {host.name for host in state.failed_hosts}
    return tuple(name for name in planned if name in failed)


def run_pyinfra(hosts: list[RigHost], *arguments: str) -> NoReturn:
    """Run `pyinfra inventory.py` with these arguments over the hosts. Raise SystemExit, as pyinfra's command does."""
    argv = sys.argv
    # A config.py in the current folder is not part of the fleet.
    sys.argv = ["pyinfra", str(ROOT / "inventory.py"), *arguments, "--config", os.devnull]
    try:
        with prepared_hosts(hosts):
            main()
    finally:
        sys.argv = argv
        for handler in tuple(logger.handlers):
            logger.removeHandler(handler)  # each run adds one: with two, each line is printed twice
    raise AssertionError("pyinfra's command ends the program")
