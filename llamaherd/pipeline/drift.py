"""Drift, told from a moved inventory: what would be done even for the plan that was carried out last. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from llamaherd.layout import UNPLANNED
from llamaherd.pipeline.outlook import Outlook
from llamaherd.role.changes import Change


@dataclass(frozen=True)
class Causes:
    """Why a change is to be made: reasons for which the host has moved, and those for which the inventory has."""

    drift: tuple[str, ...] = ()
    inventory: tuple[str, ...] = ()

    def __str__(self) -> str:
        moved = {"drift": self.drift, "the inventory has moved": self.inventory}
        return " and ".join(what for what, reasons in moved.items() if reasons)


def causes(found: Outlook, before: Outlook, texts: Mapping[str, bool]) -> tuple[Causes, ...]:
    """The causes of each change, in their order; `before` is what would be done for the plan of the last run.

    A key is in no plan, nor is what is made of keys, such as a gateway's configuration. `texts` says of these whether
    they are as a run wrote them; of what no run noted nobody can say which side has changed it.
    """
    again = {(change.kind, change.name, reason) for change in before.changes for reason in change.reasons}

    def of(change: Change) -> Causes:
        drift, inventory = [], []
        for reason in change.reasons:
            path = _of_keys(reason)
            moved = (change.kind, change.name, reason) in again if path is None else not texts.get(path, True)
            if moved:
                drift.append(reason)
            elif path is None or path in texts:
                inventory.append(reason)
        return Causes(tuple(drift), tuple(inventory))

    return tuple(map(of, found.changes))


def _of_keys(reason: str) -> str | None:
    """The file that has another text by this reason, if that is made of keys."""
    path, says, _ = reason.partition(" has another text")
    return path if says and any(PurePosixPath(path).is_relative_to(each) for each in UNPLANNED) else None
