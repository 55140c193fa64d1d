"""Whether the energy of GPUs is told, and whether they take power limits: looked at before anything is stopped."""

from __future__ import annotations

from llamaherd.checks.efficiency import NO_ENERGY, NO_LIMITS, NO_POWER, NO_POWER_OPTION, OTHER_AIM, why_unlimited
from llamaherd.diagnostics.findings import InventoryError, Place, UserError
from llamaherd.host.ssh import RemoteError
from llamaherd.pipeline.load import read_lock
from llamaherd.pipeline.load_fleet import survey_fleet
from llamaherd.tune.aim import Aim
from llamaherd.tune.energy import energy_told, require_taken
from llamaherd.tune.planned import Tuned


def require_gpus(tuned: Tuned, aim: Aim) -> None:
    """Raise InventoryError where an instance is on no GPU, and its aim is energy, or where none can be limited."""
    if aim.of_energy and not tuned.known.instance.on:
        raise _no_energy(tuned, "it is on no GPU, whose energy could be counted")
    if tuned.watts and (why := why_unlimited(tuned.rig, tuned.declared.name)):
        raise _no_limits(tuned, why)


def require_energy(tuned: Tuned, aim: Aim) -> None:
    """Raise InventoryError where its GPUs tell no energy, or do not take its power limits, and either is needed.

    Raises UserError where its host cannot be watched.
    """
    limits = tuned.watts
    if not aim.of_energy and not limits:
        return
    uuids, why = energy_told(tuned.rig.connect, tuned.declared)
    if why:
        raise _no_energy(tuned, why) if aim.of_energy else _no_limits(tuned, why)
    try:
        if limits:
            require_taken(tuned.rig.connect, uuids, limits)
    except RemoteError:
        raise
    except UserError as error:
        raise _no_limits(tuned, error.message) from None


def _no_energy(tuned: Tuned, why: str) -> InventoryError:
    message = f"no energy of {tuned.rig.rig}/{tuned.declared.name} is known: {why}"
    return InventoryError([NO_ENERGY.at(_place(tuned, "for"), message, OTHER_AIM)])


def _no_limits(tuned: Tuned, why: str) -> InventoryError:
    message = f"power limits of {tuned.rig.rig}/{tuned.declared.name} cannot be tried: {why}"
    declared = tuned.watts == tuned.known.instance.tried_limits
    help_ = NO_POWER if declared else NO_POWER_OPTION
    return InventoryError([NO_LIMITS.at(_place(tuned, "power"), message, help_)])


def _place(tuned: Tuned, key: str) -> Place:
    """Where its inventory says so, or where it would."""
    document = survey_fleet(tuned.inventory, read_lock(tuned.inventory)).documents[tuned.rig.rig]
    return document.value(("instances", tuned.declared.name, "tune", key))
