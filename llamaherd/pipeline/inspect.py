"""A host inspected: one shell script that asks for everything, each role for its part; and the answer parsed.

Pure: others carry the script there and the answer back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llamaherd.host.protocol import UnreadError, question_of, take_facts
from llamaherd.host.state import FileState, HostState
from llamaherd.plan import Plan
from llamaherd.role.role import Role
from llamaherd.text.numbers import parse_mode, parse_real


def inspect_script(plan: Plan, roles: Sequence[Role]) -> str:
    """The script that asks a host for all that the plan needs to know of it."""
    files = [
        *(file.path for role in roles for file in role.brings(plan)),
        *(path for role in roles for path in role.files(plan)),
        *(path for each in plan.repositories for path in (each.keyring, each.sources.path)),
    ]
    parts = [(role.waits, part) for role in roles if (part := role.inspect(plan))]
    return question_of(
        "host/inspect.sh.j2",
        reports=True,
        files=list(dict.fromkeys(files)),
        parts=[part for waits, part in parts if not waits],
        beside=[part for waits, part in parts if waits],
    )


def parse_state(lines: Iterable[str], roles: Sequence[Role]) -> HostState:
    """What the facts of these lines say.

    Raises UnaskedError on one that the script cannot have printed, and UnreadError where a part of the host that they
    depend on did not respond: what is not known is not absent, and nothing follows from the rest.
    """
    state = HostState()
    stats: dict[str, list[str]] = {}

    def take(kind: str, fields: list[str]) -> bool:
        match kind, fields:
            case "file", [path, stat]:
                stats[path] = stat.split()
            case "sum", [sha256, path]:
                mode, uid, user, written = stats.get(path, [])
                parse_mode(mode)
                state.files[path] = FileState(mode, (uid, user), parse_real(written), sha256)
            case "unread", [part]:
                state.unread.add(part)
            case _:
                return any(role.parse(state, kind, fields) for role in roles)
        return True

    take_facts(lines, take)
    if state.unread:
        raise UnreadError(state.unread)
    return state
