"""What GPUs cannot be held to: found before anything is changed, and again once a run has brought the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llamaherd.host.nvidia_smi import find_gpu
from llamaherd.host.state import HostState
from llamaherd.onhost.nvidia_smi import GpuState
from llamaherd.plan import GpuPower, Plan
from llamaherd.role.refusal import Refusal


def refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """All of it, in power's row."""
    return [replace(problem, about="power") for problem in power_refusals(plan, state)]


def power_refusals(plan: Plan, state: HostState, *, driver_is_there: bool = False) -> list[Refusal]:
    """What the GPUs cannot be held to. Until a planned driver is there, GPUs that do not show are no problem."""
    if plan.power is None:
        return []
    if not state.cards:
        if plan.driver and not driver_is_there:
            return []
        return [
            Refusal(
                f"power limits, clocks or fans are declared, and NVIDIA's driver does not answer: {state.driver_says}",
                "install it, so that `nvidia-smi` shows the GPUs, or take `power_limit`, `clocks` and `fans` out",
            )
        ]
    # What is not in this host at all, preflight has said of all GPUs (roles/gpus/): here it is for GPUs that
    # a new driver has brought to light, or not.
    there = [gpu for gpu in plan.power.cards if driver_is_there or find_gpu(gpu.at, state.cards)]
    return [problem for gpu in there for problem in _gpu_refusals(gpu, state.cards)]


def _gpu_refusals(gpu: GpuPower, gpus: Sequence[GpuState]) -> list[Refusal]:
    seen = find_gpu(gpu.at, gpus)
    if seen is None:
        there = ", ".join(f"{each.name} ({each.uuid} at {each.pci})" for each in gpus)
        return [Refusal(f"GPU `{gpu.name}` ({gpu.at}) is not in this host", f"there is {there}")]
    return [*_fan_refusals(gpu, seen), *_limit_refusals(gpu, seen)]


def _fan_refusals(gpu: GpuPower, seen: GpuState) -> list[Refusal]:
    if gpu.fans is None or seen.fan is not None:
        return []
    return [
        Refusal(
            f"GPU `{gpu.name}` ({seen.name}) has no fans that can be set",
            "take `fans` out: what cools it is the machine's",
        )
    ]


def _limit_refusals(gpu: GpuPower, seen: GpuState) -> list[Refusal]:
    if gpu.limit is None:
        return []
    if seen.limit is None and gpu.clocks is None:
        return [
            Refusal(
                f"GPU `{gpu.name}` ({seen.name}) takes no power limit",
                "hold its clocks instead: `clocks: {max: 1800MHz}`, say",
            )
        ]
    if seen.least is not None and seen.most is not None and not seen.least <= gpu.limit <= seen.most:
        return [
            Refusal(
                f"GPU `{gpu.name}` ({seen.name}) takes a power limit of {seen.least:g} to {seen.most:g} W, "
                f"the inventory says {gpu.limit} W",
                f"write `power_limit: {min(max(gpu.limit, seen.least), seen.most):g}W`",
            )
        ]
    return []
