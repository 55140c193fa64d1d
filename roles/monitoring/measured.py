"""What `herd bench` has found of the servers that are watched, which lies in files beside the inventory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from llamaherd.inventory.schema import Instance, Rig
from llamaherd.inventory.schema.gateway import FleetFile

if TYPE_CHECKING:
    from llamaherd.bench.results.result import Result


def measured(folder: Path, rigs: Mapping[str, Rig], fleet: FleetFile) -> dict[str, float]:
    """Tokens a second of each server by its newest result with enough runs, by `RIG.INSTANCE`."""
    if fleet.monitoring is None:
        return {}
    from llamaherd.bench.results.store import results_folder

    watched = {name: rig for name, rig in rigs.items() if fleet.monitoring.watches(name)}
    return dict(_speeds(results_folder(folder), watched))


def _speeds(results: Path, rigs: Mapping[str, Rig]) -> Iterator[tuple[str, float]]:
    # Reading results takes modules that most fleets do without.
    from llamaherd.bench.results.expected import slowest_of
    from llamaherd.bench.results.store import last_result

    for rig_name, rig in sorted(rigs.items()):
        for name, instance in sorted(rig.instances.items()):
            # A result with too few runs takes no floor away, and makes none.
            found = last_result(results, rig_name, name, wanted=lambda each: slowest_of(each) is not None)
            speed = slowest_of(found) if found and _counts(found, instance, rig) else None
            if speed:
                yield f"{rig_name}.{name}", speed


def _counts(found: Result, instance: Instance, rig: Rig) -> bool:
    """Whether it says how fast this server should be: measured undisturbed, with the model and engine of today."""
    known, engine = found.provenance, rig.engines.get(instance.engine)
    # Of an image that is not ours, a result knows the engine by its name in the inventory.
    same = engine is not None and known.engine.kind in (engine.kind, instance.engine)
    return same and known.model == instance.model and not found.method.anyway and not known.host.swapped_bytes
