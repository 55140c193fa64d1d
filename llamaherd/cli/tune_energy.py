"""Whether a search for less energy can be made: looked at before anything is stopped."""

from __future__ import annotations

from llamaherd.checks.efficiency import NO_ENERGY, OTHER_AIM
from llamaherd.diagnostics.findings import InventoryError
from llamaherd.pipeline.load import read_lock
from llamaherd.pipeline.load_fleet import survey_fleet
from llamaherd.tune.energy import untold
from llamaherd.tune.planned import Tuned


def require_gpus(tuned: Tuned) -> None:
    """Raise InventoryError where an instance is on no GPU."""
    if not tuned.known.instance.on:
        raise _no_energy(tuned, "it is on no GPU, whose energy could be counted")


def require_energy(tuned: Tuned) -> None:
    """Raise InventoryError where its GPUs tell no energy, and UserError where its host cannot be watched."""
    if why := untold(tuned.rig.connect, tuned.declared):
        raise _no_energy(tuned, why)


def _no_energy(tuned: Tuned, why: str) -> InventoryError:
    rig, name = tuned.rig.rig, tuned.declared.name
    document = survey_fleet(tuned.inventory, read_lock(tuned.inventory)).documents[rig]
    place = document.value(("instances", name, "tune", "for"))
    return InventoryError([NO_ENERGY.at(place, f"no energy of {rig}/{name} is known: {why}", OTHER_AIM)])
