"""What gives cards to containers: versions of it that do not, and declared in vain."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding

FIRST_TOOLKIT = (1, 18, 0)
"""The first container toolkit whose unit describes cards for CDI at every boot (its release notes)."""

FIRST_UNDER_WSL = (1, 19, 1)
"""The first whose unit does so under WSL (the same)."""


def container_toolkit(subject: RigContext) -> Iterator[Finding]:
    """A version of the container toolkit that describes no cards; one that no container needs."""
    rig = subject.rig
    if rig.gpus is None or "container_toolkit" not in rig.gpus.model_fields_set:
        return
    place = ("gpus", "container_toolkit")
    if not any(each.backend == "compose" and each.on for each in rig.instances.values()):
        message = "a container toolkit is declared, and no instance in a container is on a card"
        help_ = "write `backend: compose` for an instance with `on`, or take `container_toolkit` out"
        yield Finding("LH074", subject.document.key(place), message, help_, "warning")
        return
    declared, first = rig.gpus.container_toolkit.version, FIRST_UNDER_WSL if rig.host.wsl is not None else FIRST_TOOLKIT
    if declared and tuple(map(int, declared.split("."))) < first:
        least = ".".join(map(str, first))
        message = f"container toolkit {declared} does not describe cards for CDI at boot, by which containers get them"
        help_ = f"write `version: {least}` or a newer one, or leave it out for the newest"
        yield Finding("LH074", subject.document.value((*place, "version")), message, help_)
