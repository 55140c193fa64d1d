"""What became of things that were to be removed on a host: of models, builds, images and caches alike. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llamaherd.host.protocol import take_facts


@dataclass(frozen=True)
class Outcome:
    """What was removed, and what was not and why.

    `busy`: how far another run is, as far as it says, because of which nothing was done.
    """

    removed: tuple[str, ...]
    kept: dict[str, str]
    busy: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all went that was to go."""
        return not self.kept and self.busy is None


def outcome(lines: Iterable[str]) -> Outcome:
    """What a script said of its removals. Raises UnaskedError for what it cannot have said."""
    removed: list[str] = []
    kept: dict[str, str] = {}
    busy: str | None = None

    def take(kind: str, fields: list[str]) -> bool:
        nonlocal busy
        match kind, fields:
            case "removed", [what]:
                removed.append(what)
            case "kept", [what, why]:
                kept[what] = why
            case "busy", progress:
                busy = " ".join(progress)
            case _:
                return False
        return True

    take_facts(lines, take)
    return Outcome(tuple(removed), kept, busy)
