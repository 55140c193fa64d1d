"""What a run would do to a host as it is seen: nothing, where all is as planned. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect
from llamaherd.pipeline.preflight import refusals
from llamaherd.plan import Plan
from llamaherd.role.changes import Change
from llamaherd.role.role import Role, Run


@dataclass(frozen=True)
class Outlook:
    """What a run would do: changes, or nothing but telling `notes`.

    `open` where only the run itself finds out, and `unreached` says why a host could not be asked.
    """

    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    open: bool = False
    unreached: str = ""

    @property
    def as_planned(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.changes or self.open or self.unreached)


def outlook(
    plan: Plan, roles: Sequence[Role], seen: HostState, connect: Connect, local_sizes: Mapping[str, int]
) -> Outlook:
    """What would be done to this host. `local_sizes`: bytes of the controller's files, by sha256.

    What stands in the way is for the run to say. Raises what roles raise, such as UnreadableKeyError.
    """
    if refusals(plan, seen, roles, local_sizes) or any(role.unsettled(plan, seen) for role in roles):
        return Outlook(open=True)
    run = run_on(plan, roles, seen, connect)
    tasks = [task for role in roles for task in role.tasks(plan)]
    changes = tuple(change for task in tasks for change in task.changes(seen, run))
    notes = () if changes else tuple(note for task in tasks if task.notes for note in task.notes(seen, run))
    return Outlook(changes, notes)


def run_on(
    plan: Plan,
    roles: Sequence[Role],
    seen: HostState,
    connect: Connect,
    *,
    failed: bool = False,
    executing: bool = True,
) -> Run:
    """What roles may know of a run on a host that looks so."""
    leftovers = [change for role in roles for change in role.leftovers(plan, seen)]
    return Run(connect=connect, failed=failed, executing=executing, leftovers=leftovers)
