"""Drift, told from a moved inventory: what would be done even for the plan that was carried out last. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.layout import KEYS
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

    A key is in no plan, so that nobody can say which side has changed it.
    """
    again = {(change.kind, change.name, reason) for change in before.changes for reason in change.reasons}

    def of(change: Change) -> Causes:
        told = [reason for reason in change.reasons if not reason.startswith(f"{KEYS}/")]
        drift = tuple(reason for reason in told if (change.kind, change.name, reason) in again)
        return Causes(drift, tuple(reason for reason in told if reason not in drift))

    return tuple(map(of, found.changes))
