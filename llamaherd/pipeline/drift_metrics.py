"""Export a diff as Prometheus metrics, and deliver them to the rig that runs monitoring."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.drift import Delivery, DriftInput
from llamaherd.pipeline.diff import SavedRig
from llamaherd.pipeline.fleet_files import FLEET, survey_fleet

METRICS = {
    "llamaherd_diff_seconds": "When herd diff looked, in seconds since 1970.",
    "llamaherd_diff_seen_seconds": "The same, of a host that could be seen.",
    "llamaherd_diff_failed": "Whether a host could not be asked, or cannot become as planned.",
    "llamaherd_diff_changes": "Changes that herd up would make.",
    "llamaherd_diff_drift_changes": "Those for which the host has moved.",
    "llamaherd_diff_inventory_changes": "Those for which the inventory has moved.",
}
"""Their names, each with what it is."""


def metrics_text(rigs: Sequence[SavedRig], at: int) -> str:
    """The text of the file, for a look at `at`, in seconds since 1970."""
    told = [("llamaherd_diff_seconds", f" {at}"), *(each for rig in rigs for each in _rig_metrics(rig, at))]
    lines: list[str] = []
    for name, meaning in METRICS.items():
        if of_it := [f"{name}{rest}" for figure, rest in told if figure == name]:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", *of_it]
    return "".join(f"{line}\n" for line in lines)


def _rig_metrics(rig: SavedRig, at: int) -> Iterator[tuple[str, str]]:
    """The figures of one rig; the names of rigs are words that need no quoting."""
    labels = f'{{rig="{rig.rig}"}}'
    failed = bool(rig.unreached or rig.problems)
    yield "llamaherd_diff_failed", f"{labels} {int(failed)}"
    if failed:
        return
    yield "llamaherd_diff_seen_seconds", f"{labels} {at}"
    yield "llamaherd_diff_changes", f"{labels} {len(rig.changes)}"
    if all(change.drift is not None for change in rig.changes):
        yield "llamaherd_diff_drift_changes", f"{labels} {sum(bool(change.drift) for change in rig.changes)}"
        yield "llamaherd_diff_inventory_changes", f"{labels} {sum(bool(change.inventory) for change in rig.changes)}"


_DELIVERY_SECONDS = 60


@dataclass(frozen=True)
class MonitoredFleet:
    """The rig that watches a fleet, and all that its inventory declares."""

    rig: Rig
    rigs: Mapping[str, Rig]

    def require_all(self, looked: Collection[str]) -> None:
        """Raise UserError where a look is not of all rigs: what is told is all that is known of drift."""
        if missing := sorted(self.rigs.keys() - looked):
            raise UserError(f"what is told is of the whole fleet, and {missing[0]} is not looked at", "name its folder")


def monitored_fleet(inventory: Path) -> MonitoredFleet:
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
    return MonitoredFleet(surveyed.around[declared.on], surveyed.around)


def deliver_metrics(watcher: Rig, text: str) -> None:
    """Write figures where the monitoring rig's exporter reads them. Raise RemoteError or UserError."""
    delivery = query_verb(
        Remote(watcher.connect), "llamaherd.drift.write", DriftInput(text), Delivery, _DELIVERY_SECONDS
    )
    if not delivery.read:
        raise UserError(f"nothing on {watcher.rig} reads figures of drift", f"`herd up {watcher.rig}` changes that")
