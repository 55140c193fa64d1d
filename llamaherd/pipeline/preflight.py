"""Compare a host with what its plan needs, before any change: facts, disk space, refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llamaherd.host.remote import NoPythonError, Remote, RemoteError
from llamaherd.host.state import HostState
from llamaherd.pipeline.inspection import inspect_host, python_row
from llamaherd.pipeline.plan import refusing_parts, role_parts
from llamaherd.plan import Plan
from llamaherd.role.changes import SendFile
from llamaherd.role.preflight import DiskNeed, PreflightRow, Refusal, disk_row
from llamaherd.role.role import Role
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
        seen = inspect_host(remote, plan, roles)
    except NoPythonError:
        return Preflight(plan.rig, (python_row(),))
    except RemoteError as error:
        return unreachable_host(plan.rig, error.message, error.help)
    return survey_host(plan, seen, roles, local_sizes(files_to_send(plan, seen, roles)))


def local_sizes(to_send: Iterable[SendFile]) -> dict[str, int]:
    """Return the bytes of the controller's files, by sha256."""
    return {send.sha256: file_size(send.local) for send in to_send}


def file_size(path: Path) -> int:
    """Return the bytes of a file; 0 for an unreadable one, which is reported elsewhere."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
