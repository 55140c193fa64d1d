"""Run pyinfra over hosts whose plans are made, as its own command does with `inventory.py` and `deploy.py`."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click
import pyinfra
from pyinfra import logger
from pyinfra.api import Config, Host, Inventory, State
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import HostData
from pyinfra.api.operations import run_ops
from pyinfra.api.output import set_echo, set_formatter
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_config, ctx_host, ctx_inventory, ctx_state
from pyinfra_cli.exceptions import UnexpectedInternalError, WrappedError
from pyinfra_cli.log import LogHandler, setup_logging
from pyinfra_cli.prints import print_results
from typing_extensions import override

from llamaherd.deploy.connector import RigConnector
from llamaherd.deploy.hosts import RunOptions, host_data, leave
from llamaherd.deploy.origin import origin
from llamaherd.deploy.run_state import record_release, release_host_lock
from llamaherd.host.signals import END_SIGNALS
from llamaherd.inventory.schema import Rig
from llamaherd.plan import Plan
from llamaherd.resources import ROOT

SHOWN_AS = "deploy.py"

INTERRUPTED = "interrupted; what was begun on a host goes on or is left as it is, and `herd up` goes on from there\n"


class Rigs(Inventory):
    """Hosts that are reached our way; pyinfra's own loads every connector there is, once more for each host."""

    @override
    def make_hosts_and_groups(self, names: Sequence[tuple[str, dict[str, Any]]], groups: object) -> None:
        self.host_data = dict(names)
        self.hosts = {name: Host(name, self, [], RigConnector) for name in self.host_data}
        for host in self.hosts.values():
            host.data = RigData(host, self.host_data[host.name], host.get_deploy_data)


class RigData(HostData):
    """A host's data, without the layers of groups and overrides that our inventories have not.

    For every operation pyinfra asks it for each of its forty arguments, of which next to none is here.
    """

    @override
    def __getattr__(self, key: str) -> Any:
        overrides, told, of_deploy = self.datas
        if key in overrides or key in told or key in of_deploy():
            return super().__getattr__(key)
        raise AttributeError(key)


def deploy(
    planned: Mapping[str, tuple[Rig, Plan]],
    path: Path,
    verbosity: int,
    unreached: Mapping[str, str],
    asked: RunOptions,
) -> tuple[str, ...]:
    """Make hosts as planned, in pyinfra's words, which go to stderr. Returns those that failed, in their order.

    `unreached` says, by name, why hosts could not be asked just now: they are not asked again. May be called again for
    other hosts: nothing of a run is left over for the next.
    """
    for ending in END_SIGNALS:
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, _leave)
    state = _begin(verbosity)
    try:
        try:
            by = origin(path)
            hosts = [
                (name, host_data(*each, path, by, asked, unreached.get(name, ""))) for name, each in planned.items()
            ]
            _run(state, hosts)
        finally:
            if state.initialised:
                for host in state.failed_hosts:
                    record_release(host)  # whose run ended before its last operation
                    release_host_lock(host)
                logger.info("--> Disconnecting from hosts...")
                disconnect_all(state)
    except PyinfraError as error:
        WrappedError(error.with_traceback(None)).show()
        return tuple(planned)  # pyinfra raises once no host is left, or before one was begun
    except Exception as error:
        UnexpectedInternalError(error).show()
        return tuple(planned)
    failed = {host.name for host in state.failed_hosts}
    return tuple(name for name in planned if name in failed)


def _begin(verbosity: int) -> State:
    """pyinfra as its command has it."""
    pyinfra.is_cli = True
    set_formatter(click.style)
    set_echo(click.echo)
    warnings.simplefilter("ignore")
    if not any(isinstance(handler, LogHandler) for handler in logger.handlers):
        setup_logging(logging.INFO)  # which adds a handler each time: lines would be said once more by every run
    ctx_host.reset()  # an earlier run that broke off while it prepared a host has left it there
    state = State(check_for_changes=False)
    state.cwd = str(ROOT)
    state.print_fact_info = state.print_noop_info = verbosity > 0
    state.print_input = state.print_fact_input = verbosity > 1
    state.print_output = state.print_fact_output = verbosity > 2
    ctx_state.set(state)
    return state


def _run(state: State, hosts: Sequence[tuple[str, dict[str, Any]]]) -> None:
    logger.info("--> Loading config...")
    config = Config()
    ctx_config.set(config)
    logger.info("--> Loading inventory...")
    make: type[Inventory] = Rigs
    inventory = make((hosts, {}))
    ctx_inventory.set(inventory)
    state.init(inventory, config)
    logger.info("--> Connecting to hosts...")
    state.set_stage(StateStage.Connect)
    connect_all(state)
    logger.info("--> Preparing operation files...")
    state.set_stage(StateStage.Prepare)
    _prepare(state)
    logger.info("--> Skipping change detection")
    logger.info("--> Beginning operation run...")
    state.set_stage(StateStage.Execute)
    run_ops(state)
    logger.info("--> Results:")
    state.set_stage(StateStage.Disconnect)
    print_results(state)


def _prepare(state: State) -> None:
    """Have every host that answers say its operations."""
    title = click.style(SHOWN_AS, bold=True)
    logger.info(f"Loading: {title}")
    code = compile((ROOT / SHOWN_AS).read_text(encoding="utf-8"), SHOWN_AS, "exec")
    state.current_op_file_number = 0
    state.current_deploy_filename = state.current_exec_filename = SHOWN_AS
    for host in state.inventory.get_active_hosts():
        with ctx_config.use(state.config.copy()), ctx_host.use(host):
            exec(code, {"__file__": SHOWN_AS})
            logger.info(f"{host.print_prefix}{click.style('Ready:', 'green')} {title}")


def _leave(number: int, frame: object) -> NoReturn:
    """At once; where a person has ended it, with what becomes of it."""
    if number == signal.SIGINT:
        with suppress(OSError):
            os.write(1, INTERRUPTED.encode())
    leave(number, frame)
