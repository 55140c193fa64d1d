"""What a run would do to a host as it is seen: nothing, where all is as planned. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.state import HostState
from llamaherd.inventory.keys import UnreadableKeyError
from llamaherd.inventory.schema import Connect
from llamaherd.pipeline.only import leftovers, parts, tasks_of
from llamaherd.pipeline.preflight import refusals
from llamaherd.plan import Plan, TextFile
from llamaherd.role.changes import Change, reads_otherwise
from llamaherd.role.role import Role, Run

PASSING = "a port passes from one holder to another just now\n  help: ask again in a moment"


@dataclass(frozen=True)
class Outlook:
    """What a run would do: changes, or nothing but telling `notes`.

    `problems` are sentences that say why it would fail, and `unreached` why the host could not be asked. `stale` are
    planned files that are there with another text. `left` are changes of what was not chosen, where only a part was;
    None where they cannot be told.
    """

    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    unreached: str = ""
    stale: tuple[TextFile, ...] = ()
    left: tuple[Change, ...] | None = ()

    @property
    def as_planned(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.changes or self.problems or self.unreached)


def outlook(
    plan: Plan,
    roles: Sequence[Role],
    seen: HostState,
    connect: Connect,
    local_sizes: Mapping[str, int],
    *,
    retry: bool = False,
) -> Outlook:
    """What would be done to this host. `local_sizes`: bytes of the controller's files, by sha256; `retry` as for a run.

    Raises what roles raise, such as UnreadableKeyError; but what keeps one task from being done keeps no other.
    """
    found = _outlook(plan, roles, seen, connect, local_sizes, retry=retry)
    return replace(found, left=_left(found, plan, roles, seen, connect)) if plan.only else found


def _left(
    chosen: Outlook, plan: Plan, roles: Sequence[Role], seen: HostState, connect: Connect
) -> tuple[Change, ...] | None:
    """What a run for all would change besides; None where it could not. Files that it would send are not weighed."""
    try:
        whole = _outlook(plan.model_copy(update={"only": None}), roles, seen, connect, {}, retry=False)
    except (UserError, InventoryError, UnreadableKeyError):
        return None
    mine = {(change.kind, change.name) for change in chosen.changes}
    left = tuple(change for change in whole.changes if (change.kind, change.name) not in mine)
    return left if left or not whole.problems else None


def _outlook(
    plan: Plan,
    roles: Sequence[Role],
    seen: HostState,
    connect: Connect,
    local_sizes: Mapping[str, int],
    *,
    retry: bool,
) -> Outlook:
    if problems := refusals(plan, seen, roles, local_sizes):
        return Outlook(problems=tuple(map(str, problems)))
    if any(role.unsettled(part, seen) for role, part in parts(plan, roles)):
        return Outlook(problems=(PASSING,))
    run = run_on(plan, roles, seen, connect, retry=retry)
    tasks = [task for role in roles for task in tasks_of(plan, role)]
    # A file that is sent, and then put in its place, is one change to people.
    said: dict[str, Change] = {}
    kept_from: list[str] = []
    for task in tasks:
        try:
            for change in task.changes(seen, run):
                for part in change.parts:
                    said.setdefault(str(part), part)
        except UserError as error:
            kept_from.append(str(error))
    changes = tuple(said.values())
    notes = (
        () if changes or kept_from else tuple(note for task in tasks if task.notes for note in task.notes(seen, run))
    )
    there = (file for file in texts(plan, roles) if file.path in seen.files)
    stale = tuple(file for file in there if reads_otherwise(file, seen))
    return Outlook(changes, notes, tuple(kept_from), stale=stale)


def texts(plan: Plan, roles: Sequence[Role]) -> Iterator[TextFile]:
    """The files whose text is planned, and holds no secret."""
    for role, part in parts(plan, roles):
        yield from role.brings(part)
        yield from role.texts(part)


def run_on(
    plan: Plan,
    roles: Sequence[Role],
    seen: HostState,
    connect: Connect,
    *,
    failed: bool = False,
    executing: bool = True,
    retry: bool = False,
) -> Run:
    """What roles may know of a run on a host that looks so."""
    return Run(connect=connect, failed=failed, executing=executing, retry=retry, leftovers=leftovers(plan, roles, seen))
