"""What a host is before anything is changed, row by row, beside what is wanted of it. Pure, as plan and state are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from llamaherd.host.state import HostState
from llamaherd.pipeline.disks import disk_refusals, needs
from llamaherd.pipeline.only import asked, parts
from llamaherd.plan import Plan
from llamaherd.role.changes import SendFile
from llamaherd.role.facts import Row
from llamaherd.role.refusal import Refusal, disk_row
from llamaherd.role.role import Role
from llamaherd.text.units import show_size


@dataclass(frozen=True)
class Preflight:
    """The rows of one rig."""

    rig: str
    rows: tuple[Row, ...]

    @property
    def refused(self) -> tuple[Row, ...]:
        """What stands in the way."""
        return tuple(row for row in self.rows if row.verdict == "refused")

    @property
    def doubtful(self) -> tuple[Row, ...]:
        """That, and what a person should know."""
        return tuple(row for row in self.rows if row.verdict != "ok")

    @property
    def ok(self) -> bool:
        """Whether nothing is refused."""
        return not self.refused

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {"rig": self.rig, "ok": self.ok, "rows": [asdict(row) for row in self.rows]}


def survey(plan: Plan, state: HostState, roles: Sequence[Role], local_sizes: Mapping[str, int]) -> Preflight:
    """The whole table. `local_sizes`: bytes of the controller's files, by sha256."""
    told = (row for role, part in asked(plan, roles) for row in role.facts(part, state))
    facts = [*told, *_disks(plan, state, roles, local_sizes)]
    return Preflight(plan.rig, _with_refusals(facts, refusals(plan, state, roles, local_sizes)))


def refusals(plan: Plan, state: HostState, roles: Sequence[Role], local_sizes: Mapping[str, int]) -> list[Refusal]:
    """What stands in the way, found before anything is changed. `local_sizes`: bytes by sha256."""
    said = [problem for role, part in asked(plan, roles) for problem in role.refusals(part, state)]
    return [*said, *disk_refusals(plan, state, roles, local_sizes)]


def sends(plan: Plan, state: HostState, roles: Iterable[Role]) -> list[SendFile]:
    """The files of the controller's that a run would send."""
    return [send for role, part in parts(plan, roles) for send in role.sends(part, state)]


def _disks(plan: Plan, state: HostState, roles: Sequence[Role], local_sizes: Mapping[str, int]) -> Iterator[Row]:
    for each in needs(plan, state, roles, local_sizes):
        to_come = f"{show_size(each.need)} to come" if each.need else ""
        yield Row(disk_row(each.folder), f"{show_size(each.free)} free", to_come)


def unreachable(rig: str, message: str, help_: str) -> Preflight:
    """The table of a host that could not be asked."""
    return Preflight(rig, (Row("host", "cannot be asked", "", "refused", message, help_),))


def lines(rows: Sequence[Row]) -> list[str]:
    """A table as plain text."""
    cells = [("", "found", "wanted", ""), *((row.what, row.found, row.wanted, row.verdict) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _with_refusals(facts: Sequence[Row], problems: Iterable[Refusal]) -> tuple[Row, ...]:
    """Every problem in the row that it is about, or in one of its own after that."""
    rows = list(facts)
    for problem in problems:
        what = problem.about or "host"
        places = [place for place, row in enumerate(rows) if row.what == what]
        if places and rows[places[-1]].verdict != "refused":
            fact = rows[places[-1]]
            rows[places[-1]] = Row(what, fact.found, fact.wanted, "refused", problem.message, problem.help)
        else:
            row = Row(what, "", "", "refused", problem.message, problem.help)
            rows.insert(places[-1] + 1 if places else len(rows), row)
    return tuple(rows)
