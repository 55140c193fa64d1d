"""The energy of candidates: who watches the GPUs of one, and whether they tell it at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llamaherd.bench.arms.units import Arm
from llamaherd.bench.holding import Holding
from llamaherd.bench.meter.look import gpus_of
from llamaherd.bench.meter.meter import Meter
from llamaherd.bench.meter.watch import Watch
from llamaherd.inventory.schema import Connect
from llamaherd.plan import InstancePlan

_SECONDS = 1200.0
"""That one candidate is watched at most: as long as GPUs are read five times a second."""
_REST = 1.0
_LONGER = 2.0
"""How many times as long as expected power limits may take. Up to `_SECONDS`, GPUs are read as often as else."""


@contextmanager
def watched(connect: Connect, arm: Arm, seconds: float = _SECONDS) -> Iterator[Watch]:
    """Watch the GPUs that a candidate is on while it runs, for so long at most. Raises UserError."""
    server = arm.instance.server.model_copy(update={"service": arm.service})
    instance = arm.instance.model_copy(update={"server": server})
    with Meter(connect, instance, max(_SECONDS, seconds)) as meter:
        yield Watch(meter, gpus_of(meter.first_look, server.cards))


@contextmanager
def limited(connect: Connect, limits: Sequence[int], arm: Arm, seconds: float) -> Iterator[tuple[Watch, Holding]]:
    """Watch the GPUs of a candidate while it runs, and hold them to these limits, for about so long. Raises UserError.

    What they were held to is back afterwards.
    """
    longest = _LONGER * seconds
    with (
        watched(connect, arm, longest) as watch,
        Holding(connect, watch.uuids, limits, longest, within=True) as holding,
    ):
        yield watch, holding


def require_taken(connect: Connect, uuids: Sequence[str], limits: Sequence[int]) -> None:
    """Raise UserError where not all of these GPUs take all of these limits. Nothing is changed."""
    with Holding(connect, uuids, limits, _REST):
        pass


def energy_told(connect: Connect, declared: InstancePlan) -> tuple[tuple[str, ...], str | None]:
    """The GPUs of an instance, and why their energy is not known; None where it is.

    Nothing is changed. Raises UserError.
    """
    with Meter(connect, declared, _SECONDS) as meter:
        uuids = gpus_of(meter.first_look, declared.server.cards)
        took = Watch(meter, uuids).rest(_REST)
        hello = meter.readings.hello
    if took and took.joules is not None:
        return uuids, None
    if hello and hello.no_smi:
        return uuids, f"nothing is known of its GPUs: {hello.no_smi}"
    return uuids, "its GPUs tell neither energy nor power" if uuids else "the host tells of no GPU that it is on"
