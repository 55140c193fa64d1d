"""The operations that pyinfra runs. One never raises: it fails its host alone, with a sentence."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from pyinfra import host, logger
from pyinfra.api import Host, operation
from pyinfra.api.command import PyinfraCommand
from pyinfra.context import ctx_host

from llamaherd.deploy.commands import RefuseCommand, command, wrong_file
from llamaherd.deploy.draining import drained
from llamaherd.deploy.driver_gating import JudgeDriverCommand, MeasureBeforeCommand
from llamaherd.deploy.gating import GateCommand
from llamaherd.deploy.inspecting import forget, observe, remember, settled
from llamaherd.deploy.reasons import noted
from llamaherd.deploy.recording import begun, did, record, saw
from llamaherd.deploy.turns import give_turn_back, pause_turn, take_turn
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.remote import NoPythonError
from llamaherd.inventory.keys import UnreadableKeyError, unreadable
from llamaherd.inventory.schema import Connect
from llamaherd.pipeline.load import inventory_folder
from llamaherd.pipeline.outlook import run_on
from llamaherd.pipeline.preflight import lines, sends, survey
from llamaherd.pipeline.preflight_ask import local_sizes, size_of
from llamaherd.plan import Plan
from llamaherd.role.changes import Change, SendFile
from llamaherd.role.role import Role, Task
from llamaherd.text.terminal import plain
from llamaherd.text.units import show_size

Commands = Generator[PyinfraCommand, None, None]
TOLD = (UserError, InventoryError, UnreadableKeyError)
"""What says in its own words why a host cannot become as planned."""


@operation()
def preflight(plan: Plan, roles: Sequence[Role], looking: Sequence[Role]) -> Commands:
    """Find out whether the host can become as planned. Changes nothing; fails the host where it cannot.

    Where a look has just found something to do, its turn comes first, so that what is seen now holds until it begins.
    """
    here = ctx_host.get()
    try:
        if host.state.is_executing and host.data.rig_turn_first:
            # A host without python3 cannot hold a lock. The next inspection installs python3, and the first change
            # takes the lock.
            with suppress(NoPythonError):
                if not take_turn(here) and (held := host.data.rig_held):
                    remember(plan, held.seen, held.at)
                pause_turn(here)
        seen = settled(plan, roles, looking)
        to_send = sends(plan, seen, roles)
        found = survey(plan, seen, roles, local_sizes(to_send))
    except TOLD as error:
        yield RefuseCommand([str(error)])
        return
    problems = [
        *(f"{row.why}\n  help: {row.help}" for row in found.refused),
        *filter(None, map(wrong_file, to_send)),
        *filter(None, map(unreadable, (instance.endpoint.key for instance in plan.chosen if instance.endpoint.key))),
    ]
    if problems:
        yield RefuseCommand(problems, lines(found.doubtful) if found.refused else ())


@operation()
def carry_out(plan: Plan, roles: Sequence[Role], looking: Sequence[Role], task: Task) -> Commands:
    """Look at the host, and carry out the changes that follow for a task: none, where all is as planned.

    A look of the operation before does, where that has changed nothing, and just now. The task's notes are told of that
    look too.
    """
    here = ctx_host.get()
    try:
        changes, told = _decide(plan, roles, looking, task)
        if changes and host.state.is_executing and take_turn(here):
            # Before that another run may have done it, or something else.
            forget()
            changes, told = _decide(plan, roles, looking, task)
    except TOLD as error:
        yield RefuseCommand([str(error)])
        return
    if changes:
        # What is done now is to be seen by whoever comes next.
        forget()
    try:
        yield from _commands(here, changes)
    finally:
        pause_turn(here)
    # While it prepares, pyinfra may ask whether there is anything to do, and ask again when it does it.
    for remark in told if host.state.is_executing else ():
        logger.warning(f"{host.print_prefix}{plain(remark)}")


def _commands(here: Host, changes: Sequence[Change]) -> Commands:
    """What carries changes out, one after the other."""
    for change in changes:
        with drained(here, change) if host.state.is_executing else nullcontext():
            for part in change.parts:
                if part.gated:
                    yield GateCommand(part.gated)
            if change.measured:
                yield MeasureBeforeCommand(change.measured)
            if change.judged:
                yield JudgeDriverCommand(change.judged)
            carried = command(change)
            if isinstance(change.how, SendFile) and not isinstance(carried, RefuseCommand):
                local = change.how.local
                logger.info(f"{host.print_prefix}sending {local.name} ({show_size(size_of(local))})")
            if host.state.is_executing and not isinstance(carried, RefuseCommand):
                begun(here)
            yield carried
            if host.state.is_executing:
                for part in change.parts:
                    did(here, part)


def _decide(
    plan: Plan, roles: Sequence[Role], looking: Sequence[Role], task: Task
) -> tuple[Sequence[Change], Sequence[str]]:
    """What a task changes on the host as it is now, and what it tells people of it."""
    seen = observe(plan, looking)
    saw(ctx_host.get(), seen)
    for role in roles if host.state.is_executing else ():
        if kept := role.keep(inventory_folder(Path(host.data.inventory)), plan, seen):
            logger.info(f"{host.print_prefix}{kept}")
    run = run_on(
        plan,
        roles,
        seen,
        Connect.model_validate(host.data.rig_connect),
        failed=bool(noted(ctx_host.get())),
        executing=host.state.is_executing,
        retry=host.data.rig_retry,
    )
    return task.changes(seen, run), task.notes(seen, run) if task.notes else ()


@operation()
def refuse(why: str) -> Commands:
    """Fail a host whose tasks cannot even be told."""
    yield RefuseCommand([why])


@operation()
def settle() -> Commands:
    """Write down what was done; fail a host where something has failed, and say all of that again."""
    here = ctx_host.get()
    if host.state.is_executing:
        record(here)
        give_turn_back(here)
    if reasons := noted(here):
        yield RefuseCommand(reasons)
