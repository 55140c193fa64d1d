"""The steps of `deploy.py`: pyinfra's deploys, and their operations, which inspect a host and apply changes to it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple
from weakref import WeakKeyDictionary

from pyinfra import host
from pyinfra.api import Host, StringCommand, deploy, operation
from pyinfra.api.command import PyinfraCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import ctx_host

from llamaherd.deploy.commands import GateCommand, RefuseCommand, command, wrong_file
from llamaherd.deploy.run_state import (
    HELP_PREFIX,
    begin_changes,
    end_changes,
    finish_host,
    note_begin,
    note_change,
    note_running,
    noted_failures,
    pause_host_lock,
    record_release,
    release_host_lock,
    show_detail,
    show_note,
    take_host_lock,
)
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.program import Events
from llamaherd.host.protocol import result_of
from llamaherd.host.remote import NoPythonError
from llamaherd.host.state import HostState
from llamaherd.inventory.api_keys import UnreadableKeyError, unreadable_key
from llamaherd.inventory.schema import Connect
from llamaherd.pipeline.inspection import INSPECT_SECONDS, inspect_request, python_change, state_of
from llamaherd.pipeline.load import inventory_folder
from llamaherd.pipeline.own_roles import all_roles, deploy_errors, load_deploy
from llamaherd.pipeline.plan import leftovers, role_parts, tasks_of
from llamaherd.pipeline.preview import file_size, files_to_send, local_sizes, survey_host, table_lines
from llamaherd.pipeline.removal import removing_roles
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Change, Report, SendFile, Services, operation_change
from llamaherd.role.role import Role, Run, Task
from llamaherd.text.numbers import show_size

SETTLING_INSPECTIONS = 15
"""The most inspections, one second apart, that find a port between two servers before it counts as taken."""

FRESH_SECONDS = 2
"""Seconds for which an inspection is used again while nothing changes: soon, other processes may change the host."""


class CachedInspection(NamedTuple):
    """The inspected state of a host, its time in seconds, and whether operations were carried out already."""

    at: float
    executing: bool
    plan: Plan
    state: HostState


_inspections: WeakKeyDictionary[Host, CachedInspection] = WeakKeyDictionary()


def forget_inspection() -> None:
    """Discard the inspection of the host, because the host changes now."""
    _inspections.pop(ctx_host.get(), None)


def observe(plan: Plan, roles: Sequence[Role]) -> HostState:
    """Return the state of the host by a recent inspection, or by a new one. Raises UserError if that fails."""
    here, executing = ctx_host.get(), host.state.is_executing
    last = _inspections.get(here)
    if last and last.plan is plan and last.executing == executing and monotonic() - last.at < FRESH_SECONDS:
        return last.state
    state = _inspect(plan, roles, install=executing)
    _inspections[here] = CachedInspection(monotonic(), executing, plan, state)
    return state


def _inspect(plan: Plan, roles: Sequence[Role], *, install: bool) -> HostState:
    """Inspect the host; if it has no python3, `install` that first. Raise UserError if it cannot be inspected."""
    here = ctx_host.get()
    complaints: list[str] = []
    events = Events(lambda stream, line: complaints.append(line) if stream == "stderr" else None)
    # This is no fact of pyinfra: pyinfra would print an error of its own before ours.
    done, output = here.run_shell_command(
        StringCommand("python3", "-I", "inspect"),
        print_output=here.state.print_fact_output,
        print_input=here.state.print_fact_input,
        _document=inspect_request(plan, roles),
        _events=events,
        _keep=False,
        _sudo=True,
        _timeout=INSPECT_SECONDS,
    )
    if events.no_python and install:
        _install_python(here)
        return _inspect(plan, roles, install=False)
    if not done and (error := _connector_error(output.stderr_lines)):
        raise error
    return state_of(result_of(events, [*complaints, *output.stderr_lines]), roles)


def _install_python(here: Host) -> None:
    """Install python3. Raise UserError if that fails."""
    change = python_change()
    show_detail(here, change.says)
    script = f"{{\n{change.script}\n}} </dev/null\n"
    done, output = here.run_shell_command(StringCommand("sh", "-s"), print_output=True, _stdin=script, _sudo=True)
    if not done:
        raise _connector_error(output.stderr_lines) or UserError(
            "python3 cannot be installed", "install it on the host"
        )


def settled_state(plan: Plan, roles: Sequence[Role], inspecting: Sequence[Role]) -> HostState:
    """Return the state of the host, once no port passes from one server to another. Raises UserError as `observe`."""
    state = observe(plan, inspecting)
    for again in range(SETTLING_INSPECTIONS if host.state.is_executing else 0):
        if not any(role.unsettled(part, state) for role, part in role_parts(plan, roles)):
            break
        if not again:
            show_detail(ctx_host.get(), "a port passes from one server to another: inspecting again")
        sleep(1)
        forget_inspection()
        state = observe(plan, inspecting)
    return state


def _connector_error(output: Sequence[str]) -> UserError | None:
    """Return the error with which the connector of the host ended; None if it ended otherwise."""
    *_, message, help_ = ("", "", *output)
    return UserError(message, help_.removeprefix(HELP_PREFIX)) if help_.startswith(HELP_PREFIX) else None


_SPARE_SECONDS = 300
"""Seconds that are added to those of a switch: downloads on the host slow everything down."""


def _drained(host: Host, services: Services, change: Change) -> AbstractContextManager[None]:
    """Return a context in which gateways send nothing new to the running servers that a change concerns."""
    names = {part.name for part in change.parts if part.away is not None}
    if not names or not host.state.is_executing:
        return nullcontext()
    plan = Plan.model_validate(host.data.plan)
    changed = {each.name: _change_seconds(each) for each in plan.instances if each.service in names}
    return services.drain(
        Path(host.data.inventory), plan, dict.fromkeys(changed, sum(changed.values())), _report_on(host)
    )


def _report_on(host: Host) -> Report:
    return lambda line: show_detail(host, line)


def _change_seconds(instance: InstancePlan) -> int:
    """Return the seconds that a change takes at most: after a failure, the previous server starts again."""
    gate = instance.gate.seconds if instance.gate else 0
    return gate + 2 * (instance.drain + instance.server.start_seconds) + _SPARE_SECONDS


Commands = Generator[PyinfraCommand, None, None]
HOST_ERRORS = (UserError, InventoryError, UnreadableKeyError)
"""Errors whose message reports why a plan cannot be applied to a host."""


@operation()
def check_host(plan: Plan, roles: Sequence[Role], inspecting: Sequence[Role]) -> Commands:
    """Check whether the plan can be applied to the host, and fail the host otherwise. Changes nothing.

    If an inspection has just found something to do, the lock is taken first: the state then stays until the changes.
    """
    here = ctx_host.get()
    try:
        if host.state.is_executing and host.data.rig_lock_first:
            # A host without python3 cannot hold a lock. The next inspection installs python3, and the first change
            # takes the lock.
            with suppress(NoPythonError):
                if not take_host_lock(here) and (held := host.data.rig_locked):
                    _inspections[here] = CachedInspection(held.at, True, plan, held.state)
                pause_host_lock(here)
        state = settled_state(plan, roles, inspecting)
        to_send = files_to_send(plan, state, roles)
        found = survey_host(plan, state, roles, local_sizes(to_send))
    except HOST_ERRORS as error:
        yield RefuseCommand([str(error)])
        return
    problems = [
        *(f"{row.why}\n  help: {row.help}" for row in found.refused),
        *filter(None, map(wrong_file, to_send)),
        *filter(
            None, map(unreadable_key, (instance.endpoint.key for instance in plan.chosen if instance.endpoint.key))
        ),
    ]
    if problems:
        yield RefuseCommand(problems, table_lines(found.doubtful) if found.refused else ())


@operation()
def carry_out(
    plan: Plan, roles: Sequence[Role], inspecting: Sequence[Role], task: Task, services: Services
) -> Commands:
    """Inspect the host, and carry out the changes that follow for a task; none if the host matches the plan.

    The inspection of the previous operation is used if it is recent and nothing has changed since. The task's notes
    follow from the same inspection.
    """
    here = ctx_host.get()
    try:
        changes, notes = _decide(plan, roles, inspecting, task)
        if changes and host.state.is_executing and take_host_lock(here):
            # Before that another run may have done it, or something else.
            forget_inspection()
            changes, notes = _decide(plan, roles, inspecting, task)
    except HOST_ERRORS as error:
        yield RefuseCommand([str(error)])
        return
    if changes:
        forget_inspection()
    try:
        yield from _commands(here, services, changes)
    finally:
        pause_host_lock(here)
    # pyinfra may run this once while it prepares, and again when it executes.
    for note in notes if host.state.is_executing else ():
        show_note(here, note)


def _commands(here: Host, services: Services, changes: Sequence[Change]) -> Commands:
    """Yield the commands of the changes, one after another."""
    for change in changes:
        if host.state.is_executing:
            begin_changes(here, change.parts)
        with _drained(here, services, change):
            for part in change.parts:
                if part.gated:
                    yield GateCommand(services.gate, part.gated, _report_on(here))
            carried = command(change)
            if isinstance(change.how, SendFile) and not isinstance(carried, RefuseCommand):
                local = change.how.local
                show_detail(here, f"sending {local.name} ({show_size(file_size(local))})")
            if host.state.is_executing and not isinstance(carried, RefuseCommand):
                note_begin(here)
            yield carried
            if host.state.is_executing:
                for part in change.parts:
                    note_change(here, part)
                end_changes(here)


def _decide(
    plan: Plan, roles: Sequence[Role], inspecting: Sequence[Role], task: Task
) -> tuple[Sequence[Change], Sequence[str]]:
    """Return the changes of a task on the host in its present state, and its notes for the user."""
    state = observe(plan, inspecting)
    note_running(ctx_host.get(), state)
    for role in roles if host.state.is_executing else ():
        if kept := role.keep(inventory_folder(Path(host.data.inventory)), plan, state):
            show_detail(ctx_host.get(), kept)
    run = Run(
        connect=Connect.model_validate(host.data.rig_connect),
        failed=bool(noted_failures(ctx_host.get())),
        executing=host.state.is_executing,
        retry=host.data.rig_retry,
        leftovers=leftovers(plan, roles, state),
    )
    return task.changes(state, run), task.notes(state, run) if task.notes else ()


@operation()
def hold_lock() -> Commands:
    """Take the host's lock, for operations of a fleet's own role. They change what was inspected before."""
    if host.state.is_executing:
        forget_inspection()
        try:
            take_host_lock(ctx_host.get())
        except HOST_ERRORS as error:
            yield RefuseCommand([str(error)])


@operation()
def note_own(hashes: Sequence[str]) -> Commands:
    """Note which operations of a fleet's own role have changed the host, for the release. `hashes` are pyinfra's."""
    here = ctx_host.get()
    for each in hashes if host.state.is_executing else ():
        done = host.state.get_op_data_for_host(here, each).operation_meta
        if done.is_complete() and done.did_change():
            note_begin(here)
            for name in host.state.get_op_meta(each).names:
                note_change(here, operation_change(name, "it has changed something"))
    pause_host_lock(here)
    yield from ()


@operation()
def refuse(why: str) -> Commands:
    """Fail a host whose tasks cannot be derived."""
    yield RefuseCommand([why])


@operation()
def record_run() -> Commands:
    """Record the release, and fail a host on which something has failed: print all failures again."""
    here = ctx_host.get()
    if host.state.is_executing:
        record_release(here)
        release_host_lock(here)
        finish_host(here)
    if reasons := noted_failures(here):
        yield RefuseCommand(reasons, noted=True)


def selected_roles() -> tuple[Role, ...]:
    """Return the roles of this run in their order: all, those that it is limited to, or those of a removal."""
    selected, roles = host.data.rig_roles, all_roles(Path(host.data.inventory))
    if host.data.rig_removing:
        return removing_roles(roles)
    return tuple(role for role in roles if not selected or role.name in selected)


def preflight(plan: Plan, roles: Sequence[Role]) -> None:
    """Fail a host that cannot be brought to its plan, before anything changes."""
    deploy("preflight")(_preflight)(plan=plan, roles=roles, _sudo=True)


def apply_role(role: Role, plan: Plan, roles: Sequence[Role], services: Services) -> None:
    """Run the tasks of a role. Each inspects the host and makes the changes that follow."""
    if role.deploy and plan.whole(role.thing):
        _apply_own(role)
    deploy(role.name)(_tasks)(role=role, plan=plan, roles=roles, services=services, _sudo=True)


def apply_own_roles() -> None:
    """Add the operations of those roles of the run that are plain pyinfra."""
    for role in host.loop(selected_roles()):
        if role.deploy:
            _apply_own(role)


def _apply_own(role: Role) -> None:
    """Add the operations of a role that is plain pyinfra. They run while this run holds the host's lock.

    Raise pyinfra's error for what the role's code raises: the run ends before it changes a host.
    """
    hold_lock(name=f"{role.name} | lock", _sudo=True)
    before = len(host.op_hash_order)
    try:
        with deploy_errors(role):
            load_deploy(role)(_sudo=True)
    except HOST_ERRORS as error:
        raise PyinfraError(f"\n{error}") from None
    note_own(name=f"{role.name} | record", hashes=tuple(host.op_hash_order[before:]), _sudo=True)


def finish() -> None:
    """Record the release, and fail a host of which a part has failed."""
    record_run(name="all that was declared", _sudo=True)


def _inspecting(roles: Sequence[Role]) -> Sequence[Role]:
    """Return the roles that inspect the host: all, because a role may need the state that another role reads."""
    return all_roles(Path(host.data.inventory)) if host.data.rig_roles else roles


def _preflight(plan: Plan, roles: Sequence[Role]) -> None:
    name = "can the plan be applied?"
    check_host(name=name, plan=plan, roles=roles, inspecting=_inspecting(roles))


def _tasks(role: Role, plan: Plan, roles: Sequence[Role], services: Services) -> None:
    try:
        tasks = tuple(tasks_of(plan, role))
    except HOST_ERRORS as error:
        refuse(name="tasks", why=str(error))
        return
    for task in host.loop(tasks):
        carry_out(
            name=task.name,
            plan=plan,
            roles=roles,
            inspecting=_inspecting(roles),
            task=task,
            services=services,
            _ignore_errors=task.alone,
            _continue_on_error=task.continues,
        )
