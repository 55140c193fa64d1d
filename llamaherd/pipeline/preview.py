"""Compare hosts with what their plans need, and preview what a run would change, by one inspection of each host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.program import Program
from llamaherd.host.protocol import query_host
from llamaherd.host.remote import AT_ONCE, NoPythonError, Remote, RemoteError
from llamaherd.host.ssh import UnreachableError
from llamaherd.host.state import HostState
from llamaherd.inventory.api_keys import UnreadableKeyError, unreadable_key
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.pipeline.inspection import (
    INSPECT_SECONDS,
    NO_PYTHON_NOTE,
    inspect_host,
    inspect_request,
    python_change,
    python_row,
    state_of,
)
from llamaherd.pipeline.plan import leftovers, refusing_parts, role_parts, tasks_of
from llamaherd.plan import Plan, TextFile
from llamaherd.role.changes import Change, SendFile, text_differs
from llamaherd.role.preflight import DiskNeed, PreflightRow, Refusal, disk_row
from llamaherd.role.role import Role, Run
from llamaherd.text.numbers import show_size


def disk_needs(plan: Plan, state: HostState, roles: Sequence[Role], local_sizes: Mapping[str, int]) -> list[DiskNeed]:
    """Return the need of each disk: models, running builds and a toolkit are the bulk; a finished build is small."""
    # Several folders may be on one disk, which then needs the sum.
    combined: dict[str, DiskNeed] = {}
    for need in (need for role, part in role_parts(plan, roles) for need in role.needs(part, state, local_sizes)):
        there = combined.get(need.device)
        combined[need.device] = need._replace(need=need.need + (there.need if there else 0))
    return list(combined.values())


def _missing_space(plan: Plan, state: HostState, each: DiskNeed) -> Refusal | None:
    """Return the refusal of a disk with too little space; None if it has enough."""
    folder, free, _, need = each
    if need <= free:
        return None
    planned = {model.folder for model in plan.models}
    unused = sum(size for folder, size in state.models.kept.items() if folder not in planned)
    prune = f"`herd models prune {plan.rig}` would free up to {show_size(unused)}; or " if unused else ""
    return Refusal(
        f"{folder} has {show_size(free)} free, and up to {show_size(need)} are needed",
        f"{prune}free {show_size(need - free)} there, or mount a larger disk",
        disk_row(folder),
    )


@dataclass(frozen=True)
class Preflight:
    """The rows of one rig."""

    rig: str
    rows: tuple[PreflightRow, ...]

    @property
    def refused(self) -> tuple[PreflightRow, ...]:
        """The rows that stop a run."""
        return tuple(row for row in self.rows if row.verdict == "refused")

    @property
    def doubtful(self) -> tuple[PreflightRow, ...]:
        """The rows that stop a run, and the rows with a note."""
        return tuple(row for row in self.rows if row.verdict != "ok")

    @property
    def ok(self) -> bool:
        """Return whether nothing is refused."""
        return not self.refused

    def as_json(self) -> dict[str, Any]:
        """Return the table as plain JSON values."""
        return {"rig": self.rig, "ok": self.ok, "rows": [asdict(row) for row in self.rows]}


def survey_host(plan: Plan, state: HostState, roles: Sequence[Role], local_sizes: Mapping[str, int]) -> Preflight:
    """Return the whole table. `local_sizes`: bytes of the controller's files, by sha256."""
    of_roles = (row for role, part in refusing_parts(plan, roles) for row in role.facts(part, state))
    facts = [*of_roles, *_disk_rows(plan, state, roles, local_sizes)]
    return Preflight(plan.rig, _with_refusals(facts, refusals(plan, state, roles, local_sizes)))


def refusals(plan: Plan, state: HostState, roles: Sequence[Role], local_sizes: Mapping[str, int]) -> list[Refusal]:
    """Return the reasons against a run, before anything is changed. `local_sizes`: bytes by sha256."""
    of_roles = [problem for role, part in refusing_parts(plan, roles) for problem in role.refusals(part, state)]
    of_disks = (_missing_space(plan, state, each) for each in disk_needs(plan, state, roles, local_sizes))
    return [*of_roles, *filter(None, of_disks)]


def files_to_send(plan: Plan, state: HostState, roles: Iterable[Role]) -> list[SendFile]:
    """Return the files of the controller that a run would send."""
    return [send for role, part in role_parts(plan, roles) for send in role.sends(part, state)]


def _disk_rows(
    plan: Plan, state: HostState, roles: Sequence[Role], local_sizes: Mapping[str, int]
) -> Iterator[PreflightRow]:
    for each in disk_needs(plan, state, roles, local_sizes):
        to_come = f"{show_size(each.need)} to come" if each.need else ""
        yield PreflightRow(disk_row(each.folder), f"{show_size(each.free)} free", to_come)


def unreachable_host(rig: str, message: str, help_: str) -> Preflight:
    """Return the table of a host that could not be inspected."""
    return Preflight(rig, (PreflightRow("host", "unreachable", "", "refused", message, help_),))


def table_lines(rows: Sequence[PreflightRow]) -> list[str]:
    """Return a table as plain text."""
    cells = [("", "found", "wanted", ""), *((row.what, row.found, row.wanted, row.verdict) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _with_refusals(facts: Sequence[PreflightRow], problems: Iterable[Refusal]) -> tuple[PreflightRow, ...]:
    """Return the rows with every problem in the row that it is about, or in a further row below."""
    rows = list(facts)
    for problem in problems:
        what = problem.about or "host"
        places = [place for place, row in enumerate(rows) if row.what == what]
        if places and rows[places[-1]].verdict != "refused":
            fact = rows[places[-1]]
            rows[places[-1]] = PreflightRow(what, fact.found, fact.wanted, "refused", problem.message, problem.help)
        else:
            row = PreflightRow(what, "", "", "refused", problem.message, problem.help)
            rows.insert(places[-1] + 1 if places else len(rows), row)
    return tuple(rows)


def run_preflight(plan: Plan, roles: Sequence[Role], remote: Remote) -> Preflight:
    """Return the table of a rig; an unreachable rig has one row."""
    try:
        state = inspect_host(remote, plan, roles)
    except NoPythonError:
        return Preflight(plan.rig, (python_row(),))
    except RemoteError as error:
        return unreachable_host(plan.rig, error.message, error.help)
    return survey_host(plan, state, roles, local_sizes(files_to_send(plan, state, roles)))


def local_sizes(to_send: Iterable[SendFile]) -> dict[str, int]:
    """Return the bytes of the controller's files, by sha256."""
    return {send.sha256: file_size(send.local) for send in to_send}


def file_size(path: Path) -> int:
    """Return the bytes of a file; 0 for an unreadable one, which is reported elsewhere."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


PASSING = "a port passes from one server to another just now\n  help: run the command again in a moment"


@dataclass(frozen=True)
class Preview:
    """What a run would do: its changes and the `notes` that it would print.

    `problems` are the reasons why it would fail, and `unreached` is why the inspection failed. `stale` are planned
    files that have another text on the host. `left` are changes outside of the selected part; None if they are unknown.
    `paused` are the names of instances whose servers stay paused. `silent`: the host does not respond at all.
    `unsettled` is why the newest release has not the state of the host. `running` are the specs of the servers then, by
    service.
    """

    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    unreached: str = ""
    stale: tuple[TextFile, ...] = ()
    left: tuple[Change, ...] | None = ()
    paused: frozenset[str] = frozenset()
    silent: bool = False
    unsettled: str = ""
    running: Mapping[str, str] = field(default_factory=dict)

    @property
    def as_planned(self) -> bool:
        """Return whether there is nothing to do."""
        return not (self.changes or self.problems or self.unreached)


def preview_changes(
    plan: Plan,
    roles: Sequence[Role],
    state: HostState,
    connect: Connect,
    local_sizes: Mapping[str, int],
    *,
    retry: bool = False,
) -> Preview:
    """Return what a run would change on this host. `local_sizes`: bytes of the controller's files, by sha256.

    `retry` is as for a run. Raises what roles raise, such as UnreadableKeyError; but a UserError of one task becomes a
    problem, and the other tasks are previewed.
    """
    found = _preview_part(plan, roles, state, connect, local_sizes, retry=retry)
    return replace(found, left=_left(found, plan, roles, state, connect)) if plan.only else found


def _left(
    chosen: Preview, plan: Plan, roles: Sequence[Role], state: HostState, connect: Connect
) -> tuple[Change, ...] | None:
    """Return what a run without a selection would also change; None if it would fail. Sizes of files do not count."""
    try:
        whole = _preview_part(plan.model_copy(update={"only": None}), roles, state, connect, {}, retry=False)
    except (UserError, InventoryError, UnreadableKeyError):
        return None
    mine = {(change.kind, change.name) for change in chosen.changes}
    left = tuple(change for change in whole.changes if (change.kind, change.name) not in mine)
    return left if left or not whole.problems else None


def _preview_part(
    plan: Plan,
    roles: Sequence[Role],
    state: HostState,
    connect: Connect,
    local_sizes: Mapping[str, int],
    *,
    retry: bool,
) -> Preview:
    if problems := refusals(plan, state, roles, local_sizes):
        return Preview(problems=tuple(map(str, problems)))
    if any(role.unsettled(part, state) for role, part in role_parts(plan, roles)):
        return Preview(problems=(PASSING,))
    run = Run(connect=connect, failed=False, executing=True, retry=retry, leftovers=leftovers(plan, roles, state))
    tasks = [task for role in roles for task in tasks_of(plan, role)]
    # A file that is sent and then moved to its path is shown as one change.
    shown: dict[str, Change] = {}
    kept_from: list[str] = []
    for task in tasks:
        try:
            for change in task.changes(state, run):
                for part in change.parts:
                    shown.setdefault(str(part), part)
        except UserError as error:
            kept_from.append(str(error))
    changes = tuple(shown.values())
    notes = (
        () if changes or kept_from else tuple(note for task in tasks if task.notes for note in task.notes(state, run))
    )
    # Files whose text is planned and contains no secret.
    texts = (file for role, part in role_parts(plan, roles) for file in (*role.brings(part), *role.texts(part)))
    stale = tuple(file for file in texts if file.path in state.files and text_differs(file, state))
    paused = frozenset(each.name for each in plan.instances if state.pause_left(each.service) is not None)
    return Preview(changes, notes, tuple(kept_from), stale=stale, paused=paused)


T = TypeVar("T")

ROLE_ERRORS = (UserError, InventoryError, UnreadableKeyError)
"""Errors of roles that have a message for the user."""


Proposed = Callable[[Connect, Plan, Sequence[Role]], Sequence[Change]]
"""Returns the changes that roles of plain pyinfra would make on a host. Raises UserError."""


class Hosts:
    """Logs in to hosts while their plans are made. Each host then gets one request."""

    def __init__(self, rigs: Mapping[str, Rig], program: Program, proposed: Proposed = lambda *_: ()) -> None:
        """Start the logins, and the program on each host. `proposed` previews roles of plain pyinfra."""
        self._proposed = proposed
        self._pool = ThreadPoolExecutor(max(1, min(AT_ONCE, len(rigs))))
        self._further: ThreadPoolExecutor | None = None
        self._requests: dict[str, Future[bytes]] = {name: Future() for name in rigs}
        self._results = {
            name: self._pool.submit(
                query_host, Remote(rig.connect, note_key=True), program, document.result, INSPECT_SECONDS
            )
            for (name, rig), document in zip(rigs.items(), self._requests.values(), strict=True)
        }

    def leave(self) -> None:
        """End all requests without waiting for the hosts."""
        for document in self._requests.values():
            document.cancel()
        for pool in filter(None, (self._pool, self._further)):
            pool.shutdown(wait=False, cancel_futures=True)

    def outlooks(
        self,
        planned: Mapping[str, tuple[Rig, Plan]],
        roles: Sequence[Role],
        *,
        retry: bool = False,
        folder: Path | None = None,
    ) -> dict[str, Preview]:
        """Return what a run would change on each host; with `retry`, also changes that were rolled back before.

        In `folder`, the inventory's, roles keep what checks need of a host's state before they connect.
        """
        self._send_requests(planned, roles)
        found = {name: self._outlook(name, *each, roles, retry=retry, folder=folder) for name, each in planned.items()}
        self._pool.shutdown()
        return found

    def begin(
        self, planned: Mapping[str, tuple[Rig, Plan]], roles: Sequence[Role], more: Callable[[str, Preview], T]
    ) -> dict[str, Future[T]]:
        """Start the preview of each host, and return the future result of `more` for each of them."""

        def preview(name: str, rig: Rig, plan: Plan) -> T:
            return more(name, self._outlook(name, rig, plan, roles, retry=False, folder=None))

        self._send_requests(planned, roles)
        self._further = ThreadPoolExecutor(max(1, min(AT_ONCE, len(planned))))
        return {name: self._further.submit(preview, name, *each) for name, each in planned.items()}

    def _send_requests(self, planned: Mapping[str, tuple[Rig, Plan]], roles: Sequence[Role]) -> None:
        for name, (_, plan) in planned.items():
            try:
                self._requests[name].set_result(inspect_request(plan, roles))
            except ROLE_ERRORS as error:
                self._requests[name].set_exception(error)

    def _outlook(
        self, name: str, rig: Rig, plan: Plan, roles: Sequence[Role], *, retry: bool, folder: Path | None
    ) -> Preview:
        try:
            state = state_of(self._results[name].result(), roles)
            kept = [role.keep(folder, plan, state) for role in roles] if folder else []
            keys = [each.endpoint.key for each in plan.chosen if each.endpoint.key]
            if missing := tuple(filter(None, map(unreadable_key, keys))):
                return Preview(problems=missing)
            sizes = local_sizes(files_to_send(plan, state, roles))
            found = preview_changes(plan, roles, state, rig.connect, sizes, retry=retry)
            if not found.problems:
                found = replace(found, changes=(*found.changes, *self._proposed(rig.connect, plan, roles)))
            notes = (*found.notes, *filter(None, kept))
            running = state.running if state.unsettled else {}
            return replace(found, notes=notes, unsettled=state.unsettled, running=running)
        except NoPythonError:
            return Preview(changes=(python_change(),), notes=(NO_PYTHON_NOTE,))
        except RemoteError as error:
            return Preview(unreached=str(error), silent=isinstance(error, UnreachableError))
        except ROLE_ERRORS as error:
            return Preview(problems=(str(error),))
