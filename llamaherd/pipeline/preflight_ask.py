"""A host, asked what it is before anything is changed: one script in one connection, as in a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from llamaherd.host.remote import NoPythonError, Remote, RemoteError
from llamaherd.pipeline.inspect import inspect_host
from llamaherd.pipeline.preflight import Preflight, sends, survey, unreachable
from llamaherd.pipeline.python_first import python_row
from llamaherd.plan import Plan
from llamaherd.role.changes import SendFile
from llamaherd.role.role import Role


def ask_preflight(plan: Plan, roles: Sequence[Role], remote: Remote) -> Preflight:
    """The table of a rig; one that cannot be asked has one row."""
    try:
        seen = inspect_host(remote, plan, roles)
    except NoPythonError:
        return Preflight(plan.rig, (python_row(),))
    except RemoteError as error:
        return unreachable(plan.rig, error.message, error.help)
    return survey(plan, seen, roles, local_sizes(sends(plan, seen, roles)))


def local_sizes(to_send: Iterable[SendFile]) -> dict[str, int]:
    """Bytes of the controller's files, by sha256."""
    return {send.sha256: size_of(send.local) for send in to_send}


def size_of(path: Path) -> int:
    """Bytes of a file; 0 for one that cannot be read, which is said elsewhere."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
