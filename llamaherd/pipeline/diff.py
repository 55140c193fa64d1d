"""How the texts of a host's files differ from those that are planned."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from difflib import unified_diff

from llamaherd.host.protocol import ask_host, question_of, take_facts
from llamaherd.host.remote import Remote
from llamaherd.plan import TextFile

MOST = 256 << 10
"""Bytes of a file that are looked at; the largest of ours has some 30 kB."""

_SECONDS = 60


def ask_diffs(remote: Remote, stale: Iterable[TextFile]) -> dict[str, str]:
    """A unified diff of each of these files, by path: from what is there to what is planned. Raises RemoteError."""
    planned = {file.path: file for file in stale}
    if not planned:
        return {}
    script = question_of("host/texts.sh.j2", files=list(planned), most=MOST)
    there = texts_of(ask_host(remote, script, _SECONDS))
    return {path: text_diff(there[path], file) for path, file in planned.items() if path in there}


def texts_of(lines: Iterable[str]) -> dict[str, str]:
    """The texts in an answer, by path. Raises UnaskedError."""
    found: dict[str, str] = {}

    def take(kind: str, fields: list[str]) -> bool:
        if kind != "text":
            return False
        path, encoded = fields
        found[path] = base64.b64decode(encoded, validate=True).decode(errors="replace")
        return True

    take_facts(lines, take)
    return found


def text_diff(there: str, file: TextFile) -> str:
    """The unified diff from the host's text to the planned one."""
    lines = unified_diff(
        there.splitlines(), file.text.splitlines(), f"{file.path} (there)", f"{file.path} (planned)", lineterm=""
    )
    return "\n".join(lines)
