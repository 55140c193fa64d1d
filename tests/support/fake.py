"""Roles carried out on pyinfra's @fake connector, which keeps what would have gone to the host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from pyinfra import host
from pyinfra.api import Config, Inventory, State
from pyinfra.api.connect import connect_all
from pyinfra.api.deploy import add_deploy
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from llamaherd.deploy import operations as deploys
from llamaherd.deploy import run_state
from llamaherd.host.program import Events
from llamaherd.host.protocol import BEGIN, END
from llamaherd.onhost.document import dump
from llamaherd.pipeline.inspection import install_script
from llamaherd.plan import Plan
from llamaherd.role.changes import Services
from llamaherd.role.role import Role
from roles import ROLES
from tests.support.host_lines import inspected

SERVICES = Services(gate=lambda _: None, drain=lambda *_: nullcontext())
"""A run in which each gate accepts, and no gateway exists."""


class Host(FakeConnector):
    """@fake, which also keeps what arrived on stdin, scripts and documents alike, and what was sent as a file."""

    def __init__(self, state: State, host: Any) -> None:
        super().__init__(state, host)
        self.scripts: list[str] = []
        self.sent: list[str] = []
        self.documents: list[dict[str, Any]] = []
        self.broken: Callable[[str], bool] = lambda _: False
        self.world: list[str] = []
        self.python = True
        self.earlier: list[list[str]] = []

    def run_shell_command(self, command: Any, *args: Any, **arguments: Any) -> Any:
        document = bytes(arguments.get("_document") or b"")
        script = str(arguments.get("_stdin") or document.decode())
        self.scripts.append(script)
        if document and not is_question(script):
            self.documents.append(json.loads(document))
        if self.broken(script):
            return False, CommandOutput([OutputLine("stdout", "working"), OutputLine("stderr", "it broke")])
        if install_script() in script:
            self.python = True
            return True, CommandOutput([])
        if "_events" in arguments:
            self.executed_commands.append("inspect")
            if not self.python:
                arguments["_events"].no_python = True
                return False, CommandOutput([])
            return inspect(arguments["_events"], self.earlier.pop(0) if self.earlier else self.world)
        return super().run_shell_command(command, *args, **arguments)

    def put_file(self, filename_or_io: Any, remote_filename: str, *args: Any, **arguments: Any) -> bool:
        self.sent.append(remote_filename)
        return super().put_file(filename_or_io, remote_filename, *args, **arguments)


class Alone:
    """In the place of a turn: nobody else knows of this host."""

    def __init__(self, *_: object) -> None:
        pass

    def take(self, *_: object, **__: object) -> bool:
        """It has been ours all along."""
        return False

    def note_changes(self) -> None:
        """Nobody is to know that this run changes the host."""

    def give_back(self) -> None:
        """There is nothing to give."""


@dataclass
class Ran:
    """What became of a run."""

    operations: list[str]
    changed: list[str] = field(default_factory=list)
    failed: bool = False
    commands: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    """What the program on the host was given."""

    @property
    def steps(self) -> list[str]:
        """The scripts that are to change something."""
        return [script for script in self.scripts if not is_question(script)]


def inspect(events: Events, world: Iterable[str]) -> tuple[bool, CommandOutput]:
    """Return what an inspection of a host in this state returns."""
    events.hear("stdout", dump({"event": "result", "value": inspected(world)}))
    return True, CommandOutput([])


def play_inspections() -> None:
    """Have @fake hosts of pyinfra's own command be in the state that their data has as `world`."""
    run = FakeConnector.run_shell_command

    def play(self: FakeConnector, command: Any, *args: Any, **arguments: Any) -> Any:
        if "_events" in arguments:
            return inspect(arguments["_events"], self.host.data.get("world"))
        return run(self, command, *args, **arguments)

    patch.object(FakeConnector, "run_shell_command", play).start()


def is_question(script: str) -> bool:
    """Return whether a script or a document inspects the host, and changes nothing."""
    return BEGIN in script or '"verb":"inspect"' in script


def snapshot(world: Iterable[str]) -> list[str]:
    """Return what a script prints between its marks, on a host whose login shell prints something, too."""
    return ["Welcome home", "", BEGIN, *world, END]


def host_data(plan: Plan, world: Iterable[str]) -> dict[str, Any]:
    """Return pyinfra's data of a @fake host that is in the state of these lines."""
    world = list(world)
    return {
        "plan": plan.model_dump(mode="json"),
        "inventory": "inventory",
        "rig_connect": {"host": "@local"},
        "rig_retry": False,
        "rig_lock_first": False,
        "rig_locked": None,
        "rig_roles": [],
        "rig_back_to": None,
        "rig_removing": False,
        "rig_lock_wait": 0,
        "rig_origin": {},
        "fake_responses": {"sh -s": snapshot(world)},
        "world": world,
        "fake_delay": 0,
        "fake_delay_jitter": 0,
    }


def run(
    plan: Plan,
    world: Iterable[str],
    responses: dict[str, Any] | None = None,
    broken: Callable[[str], bool] = lambda _: False,
    earlier: Iterable[list[str]] = (),
    roles: Sequence[Role] = ROLES,
    python: bool = True,
    turn: type[Alone] | None = None,
) -> Ran:
    """All roles, on a host that answers every question with the lines of `world`, and where `broken` scripts fail.

    The first looks answer with the worlds of `earlier` instead. A host without `python` has none until it is installed.
    With a `turn`, the host is locked by it before preflight.
    """
    data = host_data(plan, world) | {"rig_lock_first": turn is not None, "inventory": "/nowhere/box.yaml"}
    data["fake_responses"] |= responses or {}
    inventory = Inventory((["@fake/box"], data))
    state = State(inventory, Config())
    connect_all(state)
    (host,) = inventory
    connector = Host(state, host)
    host.connector = connector
    connector.broken = broken
    connector.world = list(world)
    state.set_stage(StateStage.Prepare)
    add_deploy(state, lambda: _deploy(plan, roles))
    order = state.get_op_order()
    ran = Ran([next(iter(state.op_meta[each].names)) for each in order])
    state.set_stage(StateStage.Execute)
    connector.scripts.clear()
    connector.sent.clear()
    connector.documents.clear()
    connector.executed_commands.clear()
    connector.earlier = list(earlier)
    connector.python = python
    with patch.object(run_state, "HostLock", turn or Alone):
        try:
            run_ops(state)
        except PyinfraError:
            ran.failed = True
    done = [each for each in order if state.ops[host][each].operation_meta.is_complete()]
    ran.changed = [
        next(iter(state.op_meta[each].names)) for each in done if state.ops[host][each].operation_meta.did_change()
    ]
    ran.failed = ran.failed or any(not state.ops[host][each].operation_meta.did_succeed() for each in done)
    ran.commands, ran.scripts, ran.sent = connector.executed_commands, connector.scripts, connector.sent
    ran.documents = connector.documents
    return ran


def _deploy(plan: Plan, roles: Sequence[Role]) -> None:
    """What deploy.py has pyinfra do."""
    deploys.preflight(plan, roles)
    for role in host.loop(roles):
        deploys.apply_role(role, plan, roles, SERVICES)
    deploys.finish()
