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
    "llamaherd_diff_seconds": "When herd diff ran, in seconds since 1970.",
    "llamaherd_diff_seen_seconds": "When herd diff last inspected a host, in seconds since 1970.",
    "llamaherd_diff_failed": "Whether the inspection of a host failed, or its plan cannot be applied.",
    "llamaherd_diff_changes": "Changes that herd up would make.",
    "llamaherd_diff_drift_changes": "Changes for which the host has moved.",
    "llamaherd_diff_inventory_changes": "Changes for which the inventory has moved.",
}
"""The help text of each metric."""


def metrics_text(rigs: Sequence[SavedRig], at: int) -> str:
    """Return the metrics of a diff at `at`, in seconds since 1970, in Prometheus' text format."""
    samples = [("llamaherd_diff_seconds", f" {at}"), *(each for rig in rigs for each in _rig_metrics(rig, at))]
    lines: list[str] = []
    for name, meaning in METRICS.items():
        if own := [f"{name}{rest}" for metric, rest in samples if metric == name]:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", *own]
    return "".join(f"{line}\n" for line in lines)


def _rig_metrics(rig: SavedRig, at: int) -> Iterator[tuple[str, str]]:
    """Yield the metrics of one rig; names of rigs need no escaping."""
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
    """The rig that runs the monitoring of a fleet, and all rigs of the inventory."""

    rig: Rig
    rigs: Mapping[str, Rig]

    def require_all(self, compared: Collection[str]) -> None:
        """Raise UserError if a diff leaves out a rig: the metrics of a diff replace all earlier ones."""
        if missing := sorted(self.rigs.keys() - compared):
            raise UserError(f"`--tell` needs every rig, but {missing[0]} was left out", "name the inventory's folder")


def monitored_fleet(inventory: Path) -> MonitoredFleet:
    """Return the rig that receives metrics of drift. Raises UserError if there is none."""
    surveyed = survey_fleet(inventory)
    file = (inventory if inventory.is_dir() else inventory.parent) / FLEET
    declared = surveyed.own.monitoring if surveyed.own else None
    if declared is None or not declared.drift:
        raise UserError(
            f"no rig receives metrics of drift by {file}",
            "declare it, as in `monitoring: {on: attic, drift: true}`, and run `herd up`",
        )
    if declared.on not in surveyed.around:
        raise UserError(f"rig `{declared.on}` runs the monitoring, but cannot be read", "`herd check` prints why")
    return MonitoredFleet(surveyed.around[declared.on], surveyed.around)


def deliver_metrics(watcher: Rig, text: str) -> None:
    """Write metrics to the file that the monitoring rig's exporter reads. Raise RemoteError or UserError."""
    delivery = query_verb(
        Remote(watcher.connect), "llamaherd.drift.write", DriftInput(text), Delivery, _DELIVERY_SECONDS
    )
    if not delivery.read:
        raise UserError(f"nothing on {watcher.rig} reads metrics of drift", f"`herd up {watcher.rig}` changes that")
