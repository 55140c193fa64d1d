"""A host, asked what it is before anything is changed: one script in one connection, as in a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from llamaherd.converge.host import sends
from llamaherd.converge.steps import SendFile
from llamaherd.host.inspect import inspect_script, parse_state, script_lines
from llamaherd.host.remote import Remote, RemoteError
from llamaherd.pipeline.preflight import Preflight, survey, unreachable
from llamaherd.plan import Plan

_SECONDS = 120
"""A look takes a fraction of one; a disk that wakes up, or a driver that hangs, takes a while."""


def ask(plan: Plan, remote: Remote) -> Preflight:
    """The table of a rig; one that cannot be asked has one row."""
    try:
        result = remote.run(inspect_script(plan), _SECONDS)
        if result.code:
            said = result.err.strip().splitlines()[-1:] or ["it said nothing"]
            raise RemoteError(f"the host could not answer: {said[0]}", "it needs a POSIX shell, and Linux")
        seen = parse_state(script_lines(result.out.split("\n")))
    except RemoteError as error:
        return unreachable(plan.rig, error.message, error.help)
    except ValueError as error:
        return unreachable(plan.rig, str(error), "see what the login shell's own files print, and keep them from it")
    return survey(plan, seen, local_sizes(sends(plan, seen)))


def local_sizes(to_send: Iterable[SendFile]) -> dict[str, int]:
    """Bytes of the controller's files, by sha256."""
    return {send.sha256: size_of(send.local) for send in to_send}


def size_of(path: Path) -> int:
    """Bytes of a file; 0 for one that cannot be read, which is said elsewhere."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
