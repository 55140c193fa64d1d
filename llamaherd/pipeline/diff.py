"""How the texts of a host's files differ from those that are planned."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import unified_diff

from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote
from llamaherd.onhost.queries import TextsFound, TextsInput
from llamaherd.plan import TextFile

_SECONDS = 60


def ask_diffs(remote: Remote, stale: Iterable[TextFile]) -> dict[str, str]:
    """Return a unified diff of each file, by path, from the host's text to the planned text. Raise RemoteError."""
    planned = {file.path: file for file in stale}
    if not planned:
        return {}
    found = query_verb(remote, "llamaherd.queries.texts", TextsInput(tuple(planned)), TextsFound, _SECONDS)
    there = found.texts
    return {path: text_diff(there[path], file) for path, file in planned.items() if path in there}


def text_diff(there: str, file: TextFile) -> str:
    """The unified diff from the host's text to the planned one."""
    lines = unified_diff(
        there.splitlines(), file.text.splitlines(), f"{file.path} (there)", f"{file.path} (planned)", lineterm=""
    )
    return "\n".join(lines)
