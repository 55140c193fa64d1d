"""What a run would do to a host as it is seen: nothing, where all is as planned. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import Connect
from llamaherd.pipeline.preflight import refusals
from llamaherd.plan import Plan, TextFile
from llamaherd.role.changes import Change, reads_otherwise
from llamaherd.role.role import Role, Run

PASSING = "a port passes from one holder to another just now\n  help: ask again in a moment"


@dataclass(frozen=True)
class Outlook:
    """What a run would do: changes, or nothing but telling `notes`.

    `problems` are sentences that say why it would fail, and `unreached` why the host could not be asked. `stale` are
    planned files that are there with another text.
    """

    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    unreached: str = ""
    stale: tuple[TextFile, ...] = ()

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
    if problems := refusals(plan, seen, roles, local_sizes):
        return Outlook(problems=tuple(map(str, problems)))
    if any(role.unsettled(plan, seen) for role in roles):
        return Outlook(problems=(PASSING,))
    run = run_on(plan, roles, seen, connect, retry=retry)
    tasks = [task for role in roles for task in role.tasks(plan)]
    # A file that is sent, and then put in its place, is one change to people.
    said: dict[str, Change] = {}
    kept_from: list[str] = []
    for task in tasks:
        try:
            for change in task.changes(seen, run):
                said.setdefault(str(change), change)
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
    for role in roles:
        yield from role.brings(plan)
        yield from role.texts(plan)


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
    leftovers = [change for role in roles for change in role.leftovers(plan, seen)]
    return Run(connect=connect, failed=failed, executing=executing, retry=retry, leftovers=leftovers)
