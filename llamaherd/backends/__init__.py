"""What starts a server: each module writes a ServerSpec in the words of one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llamaherd.backends.compose import project
from llamaherd.backends.systemd import unit
from llamaherd.inventory.schema import Backend
from llamaherd.plan.base import TextFile, digest
from llamaherd.plan.server import ServerSpec

BACKENDS: Mapping[Backend, Callable[[ServerSpec, str], TextFile]] = {"systemd": unit, "compose": project}


def definition(backend: Backend, server: ServerSpec) -> tuple[str, TextFile]:
    """The spec of a server, and the file that defines it.

    The spec is the hash of the whole text that has no spec in it yet: nothing that matters can be left out.
    """
    write = BACKENDS[backend]
    spec = digest(write(server, "").text)
    return spec, write(server, spec)
