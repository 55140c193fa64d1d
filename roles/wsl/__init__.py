"""WSL: what `.wslconfig` and wsl.conf are to say, and scripts that Windows is to run."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.plan import Plan
from llamaherd.role.role import Inspection, Role, Task
from roles.wsl.changes import wsl_changes, wsl_notes
from roles.wsl.describe import describe
from roles.wsl.onhost.inspection import Found
from roles.wsl.plan import plan
from roles.wsl.refusals import refusals
from roles.wsl.state import question, take


def tasks(plan: Plan) -> Iterator[Task]:
    """Early: what waits for a restart of WSL is better known before hours of building than after."""
    if plan.wsl:
        yield Task(
            ".wslconfig, wsl.conf and scripts",
            lambda state, _: wsl_changes(plan, state),
            notes=lambda state, _: wsl_notes(plan, state),
        )


ROLE = Role(
    name="wsl",
    summary="WSL around the host gives it what is declared, and Windows has the scripts that it is to run.",
    plan=plan,
    inspection=Inspection("wsl.inspection.inspect", question, Found, take),
    refusals=refusals,
    tasks=tasks,
    describe=describe,
)
