"""Whether the energy of GPUs is told, and whether they take power limits: looked at before anything is stopped."""

from __future__ import annotations

from llamaherd.checks.efficiency import NO_ENERGY, NO_LIMITS, NO_POWER, OTHER_AIM
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.diagnostics.rule import Rule
from llamaherd.host.ssh import RemoteError
from llamaherd.pipeline.load import read_lock
from llamaherd.pipeline.load_fleet import survey_fleet
from llamaherd.tune.aim import Aim
from llamaherd.tune.energy import energy_told, require_taken
from llamaherd.tune.planned import Tuned


def require_gpus(tuned: Tuned, aim: Aim) -> None:
    """Raise InventoryError where an instance is on no GPU, and its aim is energy."""
    if aim.of_energy and not tuned.known.instance.on:
        raise _error(tuned, NO_ENERGY, "for", "it is on no GPU, whose energy could be counted")


def require_energy(tuned: Tuned, aim: Aim) -> None:
    """Raise InventoryError where its GPUs tell no energy, or do not take its power limits, and either is needed.

    Raises UserError where its host cannot be watched.
    """
    limits = tuned.known.instance.tried_limits
    if not aim.of_energy and not limits:
        return
    uuids, why = energy_told(tuned.rig.connect, tuned.declared)
    if why:
        raise _error(tuned, *((NO_ENERGY, "for") if aim.of_energy else (NO_LIMITS, "power")), why)
    try:
        if limits:
            require_taken(tuned.rig.connect, uuids, limits)
    except RemoteError:
        raise
    except UserError as error:
        raise _error(tuned, NO_LIMITS, "power", error.message) from None


def _error(tuned: Tuned, rule: Rule, key: str, why: str) -> InventoryError:
    rig, name = tuned.rig.rig, tuned.declared.name
    document = survey_fleet(tuned.inventory, read_lock(tuned.inventory)).documents[rig]
    place = document.value(("instances", name, "tune", key))
    if rule is NO_ENERGY:
        return InventoryError([rule.at(place, f"no energy of {rig}/{name} is known: {why}", OTHER_AIM)])
    return InventoryError([rule.at(place, f"power limits of {rig}/{name} cannot be tried: {why}", NO_POWER)])
