"""Power's lines of `herd plan`."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.plan import Estimate, GpuPower, Plan


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """What GPUs are held to, and what of that this system cannot do."""

    def row(gpu: GpuPower, note: str) -> str:
        return f"{gpu.name}: {gpu.declared}{note}"

    rows = [row(gpu, f" ({gpu.at})") for gpu in (plan.power.cards if plan.power else ())]
    rows += [row(gpu, ", which is Windows' to set") for gpu in plan.windows_power]
    return [f"  {'power' if not number else '':10} {row}" for number, row in enumerate(rows)]
