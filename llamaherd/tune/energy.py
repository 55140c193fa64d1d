"""The energy of candidates: who watches the GPUs of one, and whether they tell it at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llamaherd.bench.arms.units import Arm
from llamaherd.bench.meter.look import gpus_of
from llamaherd.bench.meter.meter import Meter
from llamaherd.bench.meter.watch import Watch
from llamaherd.inventory.schema import Connect
from llamaherd.plan import InstancePlan

_SECONDS = 1200.0
"""That one candidate is watched at most: as long as GPUs are read five times a second."""
_REST = 1.0


@contextmanager
def watched(connect: Connect, arm: Arm) -> Iterator[Watch]:
    """Watch the GPUs that a candidate is on, while it runs. Raises UserError."""
    server = arm.instance.server.model_copy(update={"service": arm.service})
    instance = arm.instance.model_copy(update={"server": server})
    with Meter(connect, instance, _SECONDS) as meter:
        yield Watch(meter, gpus_of(meter.first_look, server.cards))


def untold(connect: Connect, declared: InstancePlan) -> str | None:
    """Why the energy of an instance's GPUs is not known; None where it is. Nothing is changed. Raises UserError."""
    with Meter(connect, declared, _SECONDS) as meter:
        uuids = gpus_of(meter.first_look, declared.server.cards)
        took = Watch(meter, uuids).rest(_REST)
        hello = meter.readings.hello
    if took and took.joules is not None:
        return None
    if hello and hello.no_smi:
        return f"nothing is known of its GPUs: {hello.no_smi}"
    return "its GPUs tell neither energy nor power" if uuids else "the host tells of no GPU that it is on"
