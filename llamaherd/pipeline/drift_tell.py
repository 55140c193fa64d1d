"""The rig that watches, told what a look has found: its exporter reads the file that is put there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.drift import Delivery, DriftInput
from llamaherd.pipeline.fleet_file import FLEET
from llamaherd.pipeline.load_fleet import survey_fleet

_SECONDS = 60


@dataclass(frozen=True)
class Watching:
    """The rig that watches a fleet, and all that its inventory declares."""

    rig: Rig
    rigs: Mapping[str, Rig]

    def require_all(self, looked: Collection[str]) -> None:
        """Raise UserError where a look is not of all rigs: what is told is all that is known of drift."""
        if missing := sorted(self.rigs.keys() - looked):
            raise UserError(f"what is told is of the whole fleet, and {missing[0]} is not looked at", "name its folder")


def watching(inventory: Path) -> Watching:
    """The rig that is to be told. Raises UserError where none is."""
    surveyed = survey_fleet(inventory)
    file = (inventory if inventory.is_dir() else inventory.parent) / FLEET
    declared = surveyed.own.monitoring if surveyed.own else None
    if declared is None or not declared.drift:
        raise UserError(
            f"nobody is to be told of drift by {file}",
            "declare it, as in `monitoring: {on: attic, drift: true}`, and run `herd up`",
        )
    if declared.on not in surveyed.around:
        raise UserError(f"rig `{declared.on}` watches, and cannot be read", "`herd check` says why")
    return Watching(surveyed.around[declared.on], surveyed.around)


def tell(watcher: Rig, text: str) -> None:
    """Write figures where the monitoring rig's exporter reads them. Raise RemoteError or UserError."""
    delivery = query_verb(Remote(watcher.connect), "llamaherd.drift.write", DriftInput(text), Delivery, _SECONDS)
    if not delivery.read:
        raise UserError(f"nothing on {watcher.rig} reads figures of drift", f"`herd up {watcher.rig}` changes that")
