"""Roles as pyinfra's deploys: what `deploy.py` is made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyinfra import host
from pyinfra.api import deploy

from llamaherd.deploy import operations
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.pipeline.selection import tasks_of
from llamaherd.plan import Plan
from llamaherd.role.role import Role


def taking_part() -> tuple[Role, ...]:
    """The roles of this run, in their order: ours, from packages to servers, and the fleet's own."""
    wanted = host.data.rig_roles
    return tuple(role for role in all_roles(Path(host.data.inventory)) if not wanted or role.name in wanted)


def check(plan: Plan, roles: Sequence[Role]) -> None:
    """Ask the host whether it can become as planned, before anything is changed."""
    deploy("preflight")(_check)(plan=plan, roles=roles, _sudo=True)


def apply(role: Role, plan: Plan, roles: Sequence[Role]) -> None:
    """Make one thing true: its tasks, each by one look and the changes that follow from it."""
    deploy(role.name)(_tasks)(role=role, plan=plan, roles=roles, _sudo=True)


def settle() -> None:
    """Fail the host where something has failed that kept nothing else from being done."""
    operations.settle(name="all that was declared", _sudo=True)


def _looking(roles: Sequence[Role]) -> Sequence[Role]:
    """The roles that look at the host: all, also where only some change it, which may need what others see."""
    return all_roles(Path(host.data.inventory)) if host.data.rig_roles else roles


def _check(plan: Plan, roles: Sequence[Role]) -> None:
    operations.preflight(name="can this host become as planned?", plan=plan, roles=roles, looking=_looking(roles))


def _tasks(role: Role, plan: Plan, roles: Sequence[Role]) -> None:
    try:
        tasks = tuple(tasks_of(plan, role))
    except operations.HOST_ERRORS as error:
        operations.refuse(name="tasks", why=str(error))
        return
    for task in host.loop(tasks):
        operations.carry_out(
            name=task.name,
            plan=plan,
            roles=roles,
            looking=_looking(roles),
            task=task,
            _ignore_errors=task.alone,
            _continue_on_error=task.goes_on,
        )
