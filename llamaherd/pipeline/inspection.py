"""Inspect a host in one run of the program there; a host without python3 gets python3 first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from llamaherd.host.program import Program, packed_program, request
from llamaherd.host.protocol import (
    NotInspectedError,
    UnexpectedLineError,
    is_unread,
    marked_lines,
    probe_script,
    query_host,
    split_facts,
)
from llamaherd.host.remote import Remote
from llamaherd.host.state import FileState, HostState, StatePart
from llamaherd.onhost.apt import LOCK_SECONDS
from llamaherd.onhost.document import DocumentError, decode
from llamaherd.onhost.verification import Inspected, InspectInput
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.role.changes import Change, RunScript
from llamaherd.role.preflight import PreflightRow
from llamaherd.role.role import Role, no_parts
from llamaherd.text.quoting import Written

NO_PYTHON_NOTE = "the host has no python3 yet: its other changes follow once it is there"


def python_change() -> Change:
    """Return the change that installs python3."""
    reason = "the host has none, and all that llamaherd does there needs it"
    return Change("install", "package", "python3", (reason,), RunScript(install_script(), "installing python3"))


def install_script() -> str:
    """Return the shell script that installs python3."""
    return render("host/install-python.sh.j2", wait=LOCK_SECONDS)


def python_row() -> PreflightRow:
    """Return preflight's row about it."""
    return PreflightRow(
        "python3",
        "missing",
        "python3",
        "note",
        "the rest is inspected once it is there",
        "run `herd up`: it installs python3 first",
    )


INSPECT_SECONDS = 33
"""From the login to the end of an inspection, whatever a host prints meanwhile: one that does not end costs the others
no more. An inspection takes a fraction of one; a disk that wakes up, or a driver that hangs, takes a while."""


def inspect_input(plan: Plan, roles: Sequence[Role]) -> InspectInput:
    """Return what to inspect on a host for this plan."""
    files = [
        *(file.path for role in roles for file in role.brings(plan)),
        *(path for role in roles for path in role.files(plan)),
        *(path for each in plan.repositories for path in (each.keyring, each.sources.path)),
    ]
    parts = {
        role.inspection.verb: given
        for role in roles
        if role.inspection and (given := role.inspection.given(plan)) is not None
    }
    scripts = {
        role.name: probe_script("host/inspect.sh.j2", reports=True, part=Written(script))
        for role in roles
        if (script := role.inspect(plan))
    }
    return InspectInput(tuple(dict.fromkeys(files)), parts, scripts)


def inspect_request(plan: Plan, roles: Sequence[Role]) -> bytes:
    """Return the document that inspects a host for this plan."""
    return request("inspect", inspect_input(plan, roles))


def program_for(roles: Sequence[Role]) -> Program:
    """Return the program with what these roles run on hosts."""
    own = next((role.folder.parent for role in roles if role.folder), None)
    return packed_program(own)


def inspect_host(remote: Remote, plan: Plan, roles: Sequence[Role]) -> HostState:
    """Inspect a host. Raise RemoteError where that fails, and UnreadError where a part of it does not respond."""
    return state_of(query_host(remote, program_for(roles), inspect_request(plan, roles), INSPECT_SECONDS), roles)


def state_of(result: object, roles: Sequence[Role]) -> HostState:
    """Return the state of a host from the result of its inspection.

    Raise UnexpectedLineError if the program cannot have returned the result, and NotInspectedError if a part of the
    host did not respond: what is unknown is not absent, and nothing follows from the rest.
    """
    try:
        found = decode(Inspected, result)
        results = {
            role.name: decode(role.inspection.found, found.parts[role.inspection.verb])
            for role in roles
            if role.inspection and role.inspection.verb in found.parts
        }
    except DocumentError as error:
        raise UnexpectedLineError(str(error)) from None
    parts: list[StatePart] = []
    unknown = {*found.unknown}
    for role in roles:
        if role.inspection and role.name in results:
            with _unexpected(role.inspection.verb):
                parts += role.inspection.parts(results[role.name])
    readers = {role.name: role.parse for role in roles}
    for name, printed in found.lines.items():
        facts = split_facts(marked_lines(printed))
        unknown.update(fact[1] for fact in facts if is_unread(fact))
        with _unexpected(name):
            parts += readers.get(name, no_parts)([fact for fact in facts if not is_unread(fact)])
    if unknown:
        raise NotInspectedError(unknown)
    files = {
        path: FileState(f"{each.mode:o}", (str(each.number), each.owner), each.written, each.sha256)
        for path, each in found.files.items()
    }
    return replace(HostState.of(*parts, files=files), unsettled=found.unsettled)


@contextmanager
def _unexpected(source: str) -> Iterator[None]:
    """Raise UnexpectedLineError for an error about the output of a verb or of a role's script."""
    try:
        yield
    except (ValueError, LookupError) as error:
        raise UnexpectedLineError(f"{source}: {error}") from None
