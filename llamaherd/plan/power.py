"""What GPUs are declared to be held to, whoever is to set it."""

from __future__ import annotations

from llamaherd.inventory.schema import Rig
from llamaherd.plan.devices import gpu_ref
from llamaherd.plan.machine import GpuPower


def declared_power(rig: Rig) -> tuple[GpuPower, ...]:
    """The GPUs of a rig that have a limit, clocks or a fan speed, whoever is to set them."""
    gpus = rig.gpus.cards if rig.gpus else {}
    return tuple(
        GpuPower(
            name=name,
            at=gpu_ref(gpu, position),
            limit=gpu.power_limit,
            clocks=(gpu.clocks.min, gpu.clocks.max) if gpu.clocks else None,
            fans=gpu.fans,
        )
        for position, (name, gpu) in enumerate(gpus.items())
        if gpu.power_limit is not None or gpu.clocks or gpu.fans is not None
    )
