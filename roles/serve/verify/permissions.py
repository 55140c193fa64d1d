"""Who may write to the files that a server stands on, and read its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llamaherd.plan import InstancePlan
from roles.serve.onhost.verified import OwnedFile


def permissions(instance: InstancePlan, files: Iterable[OwnedFile]) -> Iterator[str]:
    """Yield files of a server that other users than root can write to, and its key if other users can read it."""
    for each in files:
        whose = f"(mode {each.mode:o}, of {each.owner})"
        if each.path == instance.key_file:
            if (each.kind, each.mode, each.owner) != ("file", 0o400, instance.server.user):
                yield f"{each.path} is not {instance.server.user}'s alone {whose}: `herd up`"
        elif each.kind == "link":
            yield f"{each.path} is a symbolic link: `herd up`"
        elif each.owner != "root" or each.mode & 0o022:
            yield f"{each.path} is not root's alone to write {whose}: `herd up`"
