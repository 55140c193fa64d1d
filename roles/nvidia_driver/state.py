"""The driver's part of a host's state. `llamaherd/host/driver.py` has the values, as GPUs are judged by them too."""

from __future__ import annotations

from llamaherd.host.driver import GLOBS, DriverState, PackageState, Persistence, RefusedDriver
from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.reference.drivers import DriverSource
from roles.nvidia_driver.onhost.inspection import Found, Question


def question(plan: Plan) -> Question | None:
    """Return what to inspect."""
    return Question(tuple(GLOBS)) if plan.driver else None


def take(state: HostState, found: Found) -> None:
    """Add what was found to the host's state. Raise ValueError where a field cannot be what it is."""
    unknown = "of a version that it does not tell"
    state.nvidia = DriverState(
        packages={
            name: PackageState(version, _source(found.origins.get(name, ())))
            for name, version in found.packages.items()
        },
        loaded=None if found.loaded is None else found.loaded or unknown,
        uvm=found.uvm,
        disk=dict(found.disk),
        library=found.library,
        says=found.problem,
        runfile=found.runfile,
        persistence=Persistence(found.persistence.active, found.persistence.enabled) if found.persistence else None,
        components={name.rpartition("/")[2] for name in found.components},
        free=found.free,
        tried=found.tried,
        kept=found.kept,
        judging=found.judging,
        answered=found.answered,
        reading=found.reading,
        refused=_refused(found.refused),
    )


def _source(origins: tuple[str, ...]) -> DriverSource | None:
    """Return whose repository has a version. Two may have the same; then it is unknown."""
    match origins:
        case ("nvidia",):
            return "nvidia"
        case ("distribution",):
            return "distribution"
        case _:
            return None


def _refused(fields: tuple[str, ...]) -> RefusedDriver | None:
    match fields:
        case ():
            return None
        case [_, _, _, _, _] | [_, _, _, _, _, _]:
            return RefusedDriver(*fields)
        case _:
            raise ValueError("a refused driver has five fields or six")
