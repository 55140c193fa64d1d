"""Servers as they are on a host: see `templates/observe/serving.sh.j2`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SeenUnit:
    """A unit of ours: `run` is systemd's id of its last start, and `port` the one that its process was given."""

    active: str
    enabled: str
    needs_reload: bool
    run: str
    spec: str
    port: int | None = None


@dataclass(frozen=True)
class SeenContainer:
    """A container of ours; `run` is Docker's id of it."""

    status: str
    health: str
    run: str
    spec: str
    port: int | None = None


@dataclass
class SeenServing:
    """What else is known of a server that runs."""

    changed: list[str] = field(default_factory=list)
    """What is no longer as it was when the server was started: files that it reads, or the record of them itself."""

    def tell(self, what: str, fields: Sequence[str]) -> None:
        """Take in one line of the answer. Raises ValueError on one that cannot have been printed."""
        match what, fields:
            case "changed", [_, path]:
                self.changed.append(path)
            case _:
                raise ValueError(f"the host answered with a line that was not asked for: {what!r}, {fields!r}")
