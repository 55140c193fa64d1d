"""The steps of `deploy.py`, as pyinfra's deploys: preflight, each role, and the record of the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyinfra import host
from pyinfra.api import deploy
from pyinfra.api.exceptions import PyinfraError

from llamaherd.deploy import operations
from llamaherd.pipeline.own_roles import all_roles, deploy_errors, load_deploy
from llamaherd.pipeline.selection import tasks_of
from llamaherd.plan import Plan
from llamaherd.role.role import Role
from llamaherd.role.services import Services


def selected_roles() -> tuple[Role, ...]:
    """Return the roles of this run in their order: all roles, or those that the run is limited to."""
    selected = host.data.rig_roles
    return tuple(role for role in all_roles(Path(host.data.inventory)) if not selected or role.name in selected)


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
    operations.hold_lock(name=f"{role.name} | lock", _sudo=True)
    before = len(host.op_hash_order)
    try:
        with deploy_errors(role):
            load_deploy(role)(_sudo=True)
    except operations.HOST_ERRORS as error:
        raise PyinfraError(f"\n{error}") from None
    operations.note_own(name=f"{role.name} | record", hashes=tuple(host.op_hash_order[before:]), _sudo=True)


def finish() -> None:
    """Record the release, and fail a host of which a part has failed."""
    operations.finish(name="all that was declared", _sudo=True)


def _inspecting(roles: Sequence[Role]) -> Sequence[Role]:
    """Return the roles that inspect the host: all, because a role may need the state that another role reads."""
    return all_roles(Path(host.data.inventory)) if host.data.rig_roles else roles


def _preflight(plan: Plan, roles: Sequence[Role]) -> None:
    name = "can the plan be applied?"
    operations.preflight(name=name, plan=plan, roles=roles, inspecting=_inspecting(roles))


def _tasks(role: Role, plan: Plan, roles: Sequence[Role], services: Services) -> None:
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
            inspecting=_inspecting(roles),
            task=task,
            services=services,
            _ignore_errors=task.alone,
            _continue_on_error=task.goes_on,
        )
