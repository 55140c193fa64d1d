"""Has the server of a group load the model that is measured: what a swap takes is no part of a measurement."""

from __future__ import annotations

from llamaherd.bench.asking.client import Failure, Patience, Target
from llamaherd.bench.asking.plain import tell
from llamaherd.bench.job import Job, Teller
from llamaherd.bench.meter.look import obstacles
from llamaherd.bench.meter.meter import Meter
from llamaherd.diagnostics.findings import UserError
from llamaherd.plan import InstancePlan

_LOOK = 60.0
"""Seconds that looking around may take before."""


def load(job: Job, target: Target, teller: Teller) -> None:
    """Load it, once nothing is in the way: what others ask of the group's other models ends first.

    Nothing is done for a server of its own. Raises InTheWayError, and UserError where it does not load.
    """
    if job.group is None:
        return
    with Meter(job.connect, job.group, _LOOK) as meter:
        job.let_through(obstacles(meter.first_look, job.plan, job.group))
    teller.progress(0.0, job.seconds, f"loading {job.instance.model}")
    ask_to_load(job, job.group, target)


def ask_to_load(job: Job, group: InstancePlan, target: Target) -> None:
    """Ask the group's server what the model is like, for which it is loaded. Raises UserError."""
    seconds = group.server.start_seconds + group.drain
    found = tell(target, _path(job.instance), patience=Patience(first=seconds, silence=seconds, total=seconds))
    if isinstance(found, Failure):
        raise UserError(
            f"{group.name} does not load {job.instance.model}: {found.message}",
            f"see its log: journalctl -u {group.service}",
        )


def _path(instance: InstancePlan) -> str:
    """Where a model tells of itself, for which it is loaded."""
    endpoint = instance.endpoint
    return endpoint.of_model(endpoint.locked_path, instance.model, load=True)
