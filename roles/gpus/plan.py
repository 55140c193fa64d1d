"""The GPUs that are declared, and which of the host each is."""

from __future__ import annotations

from llamaherd.inventory.schema import Rig
from llamaherd.plan import GpuPlan
from llamaherd.plan.devices import gpu_ref
from llamaherd.role.role import Planning, PlanPart


def plan(planning: Planning) -> PlanPart:
    """All GPUs of a rig; under WSL they are Windows' to show."""
    rig = planning.rig
    return PlanPart(fields={"cards": declared_gpus(rig), "has_cards": rig.gpus is not None and rig.host.wsl is None})


def declared_gpus(rig: Rig) -> tuple[GpuPlan, ...]:
    """All GPUs of a rig."""
    gpus = rig.gpus.cards if rig.gpus else {}
    return tuple(
        GpuPlan(name=name, model=gpu.model, at=gpu_ref(gpu, 0) if gpu.uuid or gpu.pci or gpu.index is not None else "")
        for name, gpu in gpus.items()
    )
