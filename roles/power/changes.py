"""Power limits, clocks and fans: set anew only where what the driver and our notes say is not what is planned."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.nvidia_smi import find_gpu
from llamaherd.host.state import HostState
from llamaherd.layout import POWER_UNIT
from llamaherd.onhost.nvidia_smi import GpuState
from llamaherd.plan import GpuPower, Plan
from llamaherd.role.changes import Change, RunVerb, differences, differs, written_files
from roles.power.onhost import ApplyInput, RemoveInput
from roles.power.refusals import power_refusals
from roles.power.state import HeldGpu, PowerState

ROUNDING = 1
"""Watts that a limit which is read may be off: drivers keep milliwatts."""

CLOCK_STEP = 15
"""MHz between two clocks of a GPU: one that is held may run so much above."""

FAN_STEP = 3
"""Points by which fans that are held may run beside their speed."""


def power_changes(plan: Plan, state: HostState) -> list[Change]:
    """Write what holds the GPUs, and start it anew where one is not held as planned. Raises UserError where a GPU
    cannot be held, which shows only now if this run brought the driver."""
    if plan.power is None:
        return []
    for problem in power_refusals(plan, state, driver_is_there=True) if plan.driver else ():
        raise UserError(problem.message, problem.help)
    unit = PowerState.of(state).unit
    down = [] if unit and unit.active == "active" else [f"{POWER_UNIT} is {unit.active if unit else 'not there'}"]
    restart = [*down, *_not_as_planned(plan.power.cards, state)]
    changed = [file for file in plan.power.files if differs(file, state)]
    unsettled = [] if unit is None else [f"{POWER_UNIT} is not enabled"] * (unit.enabled != "enabled")
    unsettled += [f"systemd has not read {POWER_UNIT} anew"] * (unit is not None and unit.needs_reload)
    reasons = (*restart, *differences(changed, state), *unsettled)
    if not reasons:
        return []
    given = ApplyInput(written_files(changed), restart=bool(restart))
    held = "; ".join(f"{gpu.name} to {gpu.declared}" for gpu in plan.power.cards)
    how = RunVerb("power.apply", given, f"holding {held}" if restart else "")
    return [Change("restart" if restart else "update", "power", held, reasons, how)]


def power_leftovers(plan: Plan, state: HostState) -> list[Change]:
    """Give all GPUs their defaults back where nothing is declared of them any more."""
    if plan.power or PowerState.of(state).unit is None:
        return []
    how = RunVerb("power.remove", RemoveInput(), "giving GPUs their own power limits, clocks and fan speeds again")
    return [Change("remove", "power", POWER_UNIT, ("nothing is declared of any GPU",), how)]


def _not_as_planned(gpus: Sequence[GpuPower], state: HostState) -> list[str]:
    """Why GPUs are not held as planned, or which are held though nothing is planned of them."""
    found = [find_gpu(gpu.at, state.cards) for gpu in gpus]
    strange = PowerState.of(state).held.keys() - {each.uuid for each in found if each}
    why = [f"{uuid} is held, and nothing is declared of it" for uuid in sorted(strange)]
    for gpu, each in zip(gpus, found, strict=True):
        drift = _drift(gpu, each, state) if each else "the driver does not show it"
        why += [f"{gpu.name}: {drift}"] if drift else []
    return why


def _drift(gpu: GpuPower, seen: GpuState, host: HostState) -> str:
    """How a GPU is held otherwise than planned, by our note and by the driver; empty where it is not."""
    held = PowerState.of(host).held.get(seen.uuid)
    if held is None:
        return "there is no note that it is held"
    # Forgotten by then, or soon: a GPU that nothing keeps loaded.
    if held.persistence == "on" and seen.persistent is False:
        return "persistence mode is off"
    return _clock_drift(gpu, seen, held) or _fan_drift(gpu, seen, held) or _limit_drift(gpu, seen, held)


def _clock_drift(gpu: GpuPower, seen: GpuState, held: HeldGpu) -> str:
    wanted = ",".join(map(str, gpu.clocks)) if gpu.clocks else "-"
    if held.clocks != wanted:
        return f"clocks were set to {held.clocks} MHz"
    too_fast = gpu.clocks and seen.clock is not None and seen.clock > gpu.clocks[1] + CLOCK_STEP
    return f"it runs at {seen.clock} MHz" if too_fast else ""


def _fan_drift(gpu: GpuPower, seen: GpuState, held: HeldGpu) -> str:
    if held.fans != str(gpu.fans or "-"):
        return f"fans were set to {held.fans} %"
    if gpu.fans is not None and (seen.fan is None or abs(seen.fan - gpu.fans) > FAN_STEP):
        return f"fans run at {seen.fan} %"
    return ""


def _limit_drift(gpu: GpuPower, seen: GpuState, held: HeldGpu) -> str:
    if gpu.limit is None:
        return "" if held.limit == "-" else f"its limit was set to {held.limit} W"
    # Whether a GPU takes a limit, only trying tells: some tell a range and refuse all the same.
    if held.limit == "refused":
        return "it took no limit, and no clocks are declared" if gpu.clocks is None else ""
    if held.limit != str(gpu.limit):
        return f"its limit was set to {held.limit} W"
    if seen.limit is None or abs(seen.limit - gpu.limit) > ROUNDING:
        return f"its limit is {'not told' if seen.limit is None else f'{seen.limit:g} W'}"
    return ""
