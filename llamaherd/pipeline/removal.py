"""Remove from a host what llamaherd put there: a plan without anything, the roles that apply it, and the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.removal import Outcome
from llamaherd.onhost.uninstall import Installed, UninstallInput
from llamaherd.pipeline.own_roles import OUR_ROLES
from llamaherd.plan import MonitoringPlan, Only, Plan, StorePlan
from llamaherd.role.role import Role
from llamaherd.store.holdings import Holdings, inspect_store, remove_unused
from llamaherd.store.unused import HostItems, inspect_items, remove_items

_SERVERS = "serve"
"""The role whose tasks remove servers that are not declared."""
_FIELDS = ("instances", "power", "suspend", "gateway", "virtual_address", "chat", "monitoring")
"""The fields of a plan that are empty after a removal."""
_SECONDS = 600
"""Units may take minutes to stop, and large folders to be removed."""


def empty_plan(rig: Rig, roles: Sequence[Role]) -> Plan:
    """Return the plan of a rig that serves nothing, limited to the roles that remove earlier work."""
    return Plan(
        rig=rig.rig,
        os=rig.host.os,
        packages=(),
        files=(),
        builds=(),
        store=StorePlan(path=rig.store.path),
        models=(),
        images=(),
        instances=(),
        of_fleet=True,
        monitoring=MonitoringPlan(),
        only=Only(roles=tuple(role.thing for role in roles if _removes(role)), fields=_FIELDS),
    )


def removing_roles(roles: Sequence[Role]) -> tuple[Role, ...]:
    """Return the roles of a removal: only servers have tasks, and each role with leftovers removes these.

    Other roles of ours only inspect the host. A fleet's own role without leftovers has no part in it.
    """
    return tuple(_removing(role) for role in roles if _removes(role) or role.name in OUR_ROLES)


def _removes(role: Role) -> bool:
    return role.leftovers is not Role.leftovers or role.name == _SERVERS


def _removing(role: Role) -> Role:
    still = replace(role, keep=Role.keep, refusals=Role.refusals, deploy=None)
    return still if role.name == _SERVERS else replace(still, tasks=Role.tasks)


def unremovable_roles(roles: Sequence[Role]) -> tuple[str, ...]:
    """Return the names of the fleet's own roles whose work stays on the host: they do not declare how to remove it."""
    return tuple(role.name for role in roles if role.name not in OUR_ROLES and not _removes(role))


def inspect_installed(rig: Rig) -> Installed:
    """Return what is on the host besides the work of roles. Raise RemoteError."""
    given = UninstallInput(rig.store.path)
    return query_verb(Remote(rig.connect), "llamaherd.uninstall.inspect", given, Installed, _SECONDS)


@dataclass(frozen=True)
class Stored:
    """The models, engines and caches on a host, with their users."""

    holdings: Holdings
    items: HostItems

    @property
    def unused(self) -> bool:
        """Return whether a part of it has no user, and can be removed at once."""
        return bool(self.holdings.removals or self.items.removals)


def inspect_stored(rig: Rig, plan: Plan) -> Stored:
    """Return the models, engines and caches on the host. No release counts as a user. Raise RemoteError."""
    remote = Remote(rig.connect)
    items = inspect_items(plan, remote, 0)
    own = tuple(each for each in items.things if each.kind != "packages")  # apt's
    return Stored(inspect_store(plan, remote, 0), replace(items, things=own))


@dataclass(frozen=True)
class Removed:
    """The results of the steps of a removal."""

    outcomes: tuple[Outcome, ...]

    @property
    def ok(self) -> bool:
        """Return whether everything was removed."""
        return all(each.ok for each in self.outcomes)


def remove_rest(rig: Rig, plan: Plan, *, purge: bool, report: Callable[[str], None]) -> Removed:
    """Remove units and containers from the host; with a purge also models, engines, accounts and folders.

    Servers and services of roles are removed before. What another program uses stays. Raise RemoteError.
    """
    remote = Remote(rig.connect)
    outcomes = [_uninstall(rig, remote, report, purge=False)]
    if purge and outcomes[0].ok:
        stored = inspect_stored(rig, plan)
        outcomes.append(remove_unused(stored.holdings, remote, 0))
        outcomes.append(remove_items(stored.items, remote, 0))
        if all(each.busy is None for each in outcomes):
            outcomes.append(_uninstall(rig, remote, report, purge=True))
    return Removed(tuple(outcomes))


def _uninstall(rig: Rig, remote: Remote, report: Callable[[str], None], *, purge: bool) -> Outcome:
    given = UninstallInput(rig.store.path, purge)
    return query_verb(remote, "llamaherd.uninstall.remove", given, Outcome, _SECONDS, report)
