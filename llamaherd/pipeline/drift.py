"""Drift, told from a moved inventory: what would be done even for the plan that was carried out last. Pure."""

from __future__ import annotations

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


def causes(found: Outlook, before: Outlook) -> tuple[Causes, ...]:
    """The causes of each change, in their order; `before` is what would be done for the plan of the last run.

    A key is in no plan, nor is what is made of keys, such as a gateway's configuration: nobody can say which side has
    changed its text. That of a newer llamaherd would look as if somebody had changed the host.
    """
    again = {(change.kind, change.name, reason) for change in before.changes for reason in change.reasons}

    def of(change: Change) -> Causes:
        told = [reason for reason in change.reasons if not _untold(reason)]
        drift = tuple(reason for reason in told if (change.kind, change.name, reason) in again)
        return Causes(drift, tuple(reason for reason in told if reason not in drift))

    return tuple(map(of, found.changes))


def _untold(reason: str) -> bool:
    path, says, _ = reason.partition(" has another text")
    return bool(says) and any(PurePosixPath(path).is_relative_to(each) for each in UNPLANNED)
