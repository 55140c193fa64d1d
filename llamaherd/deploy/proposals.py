"""Preview the roles of a fleet that are plain pyinfra: what pyinfra proposes before a run, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Connect
from llamaherd.plan import Plan
from llamaherd.role.changes import Change, operation_change
from llamaherd.role.role import Role
from llamaherd.text.terminal import plain

PROPOSAL_SECONDS = 300
"""The longest that a preview of one host may take. Facts of pyinfra are one command each."""

HELP_PREFIX = "  help: "
"""The beginning of the last line, if an error of ours ends the process."""


class ProposalRequest(TypedDict):
    """What the process reads from stdin."""

    connect: Connect
    plan: Plan
    inventory: Path
    roles: tuple[str, ...]


class Operation(TypedDict):
    """One operation in the output of `pyinfra --dry --json`."""

    names: list[str]
    hosts_with_change: list[str]
    hosts_with_conditional_change: list[str]


class DryRun(TypedDict):
    """The output of `pyinfra --dry --json`, as far as it is read."""

    plan: list[Operation]


_REQUEST = TypeAdapter(ProposalRequest)
_DRY_RUN = TypeAdapter(DryRun)


def proposed_changes(inventory: Path, connect: Connect, plan: Plan, roles: Sequence[Role]) -> tuple[Change, ...]:
    """Return the operations of plain pyinfra roles that would change this host. Raise UserError if pyinfra fails."""
    names = tuple(role.name for role in roles if role.deploy and plan.whole(role.thing))
    if not names:
        return ()
    what = f"the preview of role {', '.join(names)}"
    request = ProposalRequest(connect=connect, plan=plan, inventory=inventory, roles=names)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", __name__],
            input=_REQUEST.dump_json(request),
            capture_output=True,
            timeout=PROPOSAL_SECONDS,
            check=False,
        )
        found = _DRY_RUN.validate_json(ended.stdout)
    except subprocess.TimeoutExpired:
        raise UserError(f"{what} took longer than {PROPOSAL_SECONDS} s", "see what its facts read") from None
    except ValidationError:
        *_, message, help_ = ("", "", *plain(ended.stderr.decode(errors="replace")).strip().splitlines())
        if help_.startswith(HELP_PREFIX):
            raise UserError(message, help_.removeprefix(HELP_PREFIX)) from None
        raise UserError(f"{what} failed: {help_}", "correct the role") from None
    return tuple(_changes(found))


def _changes(found: DryRun) -> Iterator[Change]:
    for each in found["plan"]:
        if each["hosts_with_change"]:
            yield operation_change(each["names"][0], "proposed by pyinfra")
        elif each["hosts_with_conditional_change"]:
            yield operation_change(each["names"][0], "proposed by pyinfra, if its condition is met then")


def main() -> NoReturn:
    """Print what `pyinfra --dry --json` prints for the roles of a request on stdin."""
    from llamaherd.deploy.origin import origin
    from llamaherd.deploy.run import CONNECTOR, RunOptions, host_data, run_pyinfra

    request = _REQUEST.validate_json(sys.stdin.buffer.read())
    plan, inventory, options = request["plan"], request["inventory"], RunOptions(roles=request["roles"])
    data = host_data(request["connect"], plan, inventory, origin(inventory), options)
    operations = "llamaherd.deploy.operations.apply_own_roles"
    run_pyinfra([(f"@{CONNECTOR}/{plan.rig}", data)], operations, "--dry", "--json")


if __name__ == "__main__":
    main()
