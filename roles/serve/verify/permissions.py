"""Who may write to the files that a server stands on, and read its key."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.plan import InstancePlan
from llamaherd.text.numbers import parse_mode


def permissions(instance: InstancePlan, said: str) -> Iterator[str]:
    """Of the files that a server stands on, those that are not root's alone to write, and its key if others read it.

    Each line of what was said: octal mode, owner, kind, path.
    """
    for line in said.split("\n"):
        mode, owner, kind, path = (*line.split("\t", 3), "", "", "", "")[:4]
        if not path:
            continue
        if path == instance.key_file:
            if (kind, mode, owner) != ("f", "400", instance.server.user):
                yield f"{path} is not {instance.server.user}'s alone (mode {mode}, of {owner}): `herd up`"
        elif kind == "l":
            yield f"{path} is a symbolic link: `herd up`"
        elif owner != "root" or parse_mode(mode) & 0o022:
            yield f"{path} is not root's alone to write (mode {mode}, of {owner}): `herd up`"
