"""Power: limits, clocks and fans of GPUs, set at every boot by a unit of ours."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.responses import ProbeOutputs
from llamaherd.host.state import HostState, StatePart, find_gpu
from llamaherd.inventory.schema import Rig
from llamaherd.layout import POWER_FANS, POWER_PROGRAM, POWER_RUN, POWER_TABLE, POWER_UNIT, UNITS, service_of
from llamaherd.onhost.hardware import GpuState, parse_number
from llamaherd.onhost.services import ServiceState
from llamaherd.onhost.verbs import NoInput
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Estimate, GpuPower, Plan, PowerPlan, TextFile
from llamaherd.plan.devices import declared_power
from llamaherd.render import render
from llamaherd.role.changes import Change, RunVerb, file_differences, file_differs, written_files
from llamaherd.role.preflight import PreflightRow, Refusal
from llamaherd.role.report import Check, service_check, service_probe
from llamaherd.role.role import Inspection, Judging, Planning, PlanPart, Role, Task, Verified
from llamaherd.text.numbers import whole_number
from roles.power.onhost import ApplyInput, Found, InspectInput

ROUNDING = 1
"""Watts that a limit which is read may be off: drivers keep milliwatts."""

CLOCK_STEP = 15
"""MHz between two clocks of a GPU: one that is held may run so much above."""

FAN_STEP = 3
"""Points by which the speed of held fans may differ."""


QUERY = "index,uuid,pci.bus_id,power.limit,clocks.current.graphics,fan.speed"
"""The fields of the query. The output names them by their long names, whatever the query used."""

QueryRow = dict[str, str]


def plan(planning: Planning) -> PlanPart:
    """Return how GPUs are held, and under WSL, the limits for Windows."""
    rig = planning.rig
    windows = declared_power(rig) if rig.host.wsl is not None else ()
    return PlanPart(fields={"power": plan_power(rig), "windows_power": windows})


def plan_power(rig: Rig) -> PowerPlan | None:
    """Return how GPUs are held; None without declared limits, and under WSL, where Windows manages GPUs."""
    gpus = declared_power(rig)
    if not gpus or rig.host.wsl is not None:
        return None
    return PowerPlan(
        cards=gpus,
        fans=_program(POWER_FANS, "gpu_fans.py"),
        program=_program(POWER_PROGRAM, "gpu_power.py"),
        table=TextFile(path=str(POWER_TABLE), text=_table(rig.rig, gpus)),
        unit=TextFile(
            path=str(UNITS / POWER_UNIT),
            text=render(
                "power/gpu-power.service.j2",
                rig=rig.rig,
                program=POWER_PROGRAM,
                table=POWER_TABLE,
                before=_served(rig),
            ),
        ),
    )


def _program(path: PurePosixPath, module: str) -> TextFile:
    """Return the text of a module that is shipped alone, as a program."""
    text = (Path(__file__).parent / "onhost" / module).read_text(encoding="utf-8")
    return TextFile(path=str(path), text=text, mode="0755")


def _table(rig: str, gpus: Iterable[GpuPower]) -> str:
    head = (
        f"# Written by llamaherd for rig `{rig}`: change the inventory, not this file.\n# card, which one, W, MHz, %\n"
    )
    return head + "".join(
        f"{gpu.name} {gpu.at} {gpu.limit or '-'} {','.join(map(str, gpu.clocks or '-'))} {gpu.fans or '-'}\n"
        for gpu in gpus
    )


def _served(rig: Rig) -> list[str]:
    """Return the units that need held GPUs when they start: at boot, Docker starts containers."""
    return sorted(
        {
            f"{service_of(rig.server_of(name))}.service" if each.backend == "systemd" else "docker.service"
            for name, each in rig.instances.items()
        }
    )


class GpuNote(NamedTuple):
    """Our note of a GPU's limits: watts or `refused`, MHz, `on`, percent.

    `-` means no limit and `?` an unknown one. Old notes do not contain fans.
    """

    limit: str = "?"
    clocks: str = "?"
    persistence: str = "?"
    fans: str = "-"


@dataclass(frozen=True)
class PowerState(StatePart):
    """The unit that holds GPUs to their limits, and its notes about them."""

    unit: ServiceState | None = None
    held: Mapping[str, GpuNote] = field(default_factory=dict)
    """By UUID."""


def inspection_input(plan: Plan) -> InspectInput | None:
    """Return what to inspect. Held GPUs are inspected also if no GPU is declared, so that they are released."""
    return None if plan.wsl else InspectInput(notes=plan.power is not None)


def state_parts(found: Found) -> tuple[PowerState]:
    """Return the part of the host's state. Raise ValueError for a note of too many words."""
    if any(len(words) > len(GpuNote._fields) for words in found.held.values()):
        raise ValueError(f"the note about a GPU has more than {len(GpuNote._fields)} words")
    return (PowerState(found.unit, {uuid: GpuNote(*words) for uuid, words in found.held.items()}),)


def power_refusals(plan: Plan, state: HostState, *, driver_is_there: bool = False) -> list[Refusal]:
    """Return limits that GPUs do not support. A GPU that is not shown is no problem until the driver is."""
    if plan.power is None:
        return []
    if not state.gpus.shown:
        if plan.driver and not driver_is_there:
            return []
        return [
            Refusal(
                "power limits, clocks or fans are declared, and NVIDIA's driver does not respond: "
                f"{state.gpus.problem}",
                "install it, so that `nvidia-smi` shows the GPUs, or take `power_limit`, `clocks` and `fans` out",
            )
        ]
    # What is not in this host at all, preflight has output of all GPUs (roles/gpus/): here it is for GPUs that
    # a new driver has brought to light, or not.
    there = [gpu for gpu in plan.power.cards if driver_is_there or find_gpu(gpu.at, state.gpus.shown)]
    return [problem for gpu in there for problem in _gpu_refusals(gpu, state.gpus.shown)]


def _gpu_refusals(gpu: GpuPower, gpus: Sequence[GpuState]) -> Iterator[Refusal]:
    found = find_gpu(gpu.at, gpus)
    if found is None:
        there = ", ".join(f"{each.name} ({each.uuid} at {each.pci})" for each in gpus)
        yield Refusal(f"GPU `{gpu.name}` ({gpu.at}) is not in this host", f"there is {there}")
        return
    name = f"GPU `{gpu.name}` ({found.name})"
    if gpu.fans is not None and found.fan is None:
        yield Refusal(f"{name} has no fans that can be set", "take `fans` out: what cools it is the machine's")
    if gpu.limit is None:
        return
    if found.limit is None and gpu.clocks is None:
        help_ = "hold its clocks instead, for example `clocks: {max: 1800MHz}`"
        yield Refusal(f"{name} takes no power limit", help_)
    elif found.least is not None and found.most is not None and not found.least <= gpu.limit <= found.most:
        limits = f"{found.least:g} to {found.most:g} W"
        yield Refusal(
            f"{name} takes a power limit of {limits}, but the inventory declares {gpu.limit} W",
            f"write `power_limit: {min(max(gpu.limit, found.least), found.most):g}W`",
        )


def facts(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """Yield the limits of GPUs."""
    if plan.power:
        wanted = "; ".join(f"{card.name}: {card.declared}" for card in plan.power.cards)
        yield PreflightRow("power", "GPUs respond" if state.gpus.shown else "no GPU responds", wanted)


def power_changes(plan: Plan, state: HostState) -> list[Change]:
    """Write the program that holds the GPUs, and restart it if a GPU has other limits. Raise UserError if a GPU
    cannot be held, which shows only now if this run installed the driver."""
    if plan.power is None:
        return []
    for problem in power_refusals(plan, state, driver_is_there=True) if plan.driver else ():
        raise UserError(problem.message, problem.help)
    unit = PowerState.of(state).unit
    down = [] if unit and unit.active == "active" else [f"{POWER_UNIT} is {unit.active if unit else 'not there'}"]
    restart = [*down, *_not_as_planned(plan.power.cards, state)]
    changed = [file for file in plan.power.files if file_differs(file, state)]
    unsettled = [f"{POWER_UNIT} is not enabled"] if unit and unit.enabled != "enabled" else []
    unsettled += [f"systemd has not read {POWER_UNIT} anew"] if unit and unit.needs_reload else []
    reasons = (*restart, *file_differences(changed, state), *unsettled)
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
    how = RunVerb("power.remove", NoInput(), "giving GPUs their own power limits, clocks and fan speeds again")
    return [Change("remove", "power", POWER_UNIT, ("nothing is declared of any GPU",), how)]


def _not_as_planned(gpus: Sequence[GpuPower], state: HostState) -> list[str]:
    """Return the GPUs with other limits than planned, and those with limits and no plan."""
    found = [find_gpu(gpu.at, state.gpus.shown) for gpu in gpus]
    strange = PowerState.of(state).held.keys() - {each.uuid for each in found if each}
    why = [f"{uuid} is held, and nothing is declared of it" for uuid in sorted(strange)]
    for gpu, each in zip(gpus, found, strict=True):
        drift = _drift(gpu, each, state) if each else "the driver does not show it"
        why += [f"{gpu.name}: {drift}"] if drift else []
    return why


def _drift(gpu: GpuPower, found: GpuState, host: HostState) -> str:
    """Return how a GPU's limits differ from the plan, by our note and by the driver; empty if they match."""
    held = PowerState.of(host).held.get(found.uuid)
    if held is None:
        return "there is no note that it is held"
    # Forgotten by then, or soon: a GPU that nothing keeps loaded.
    if held.persistence == "on" and found.persistent is False:
        return "persistence mode is off"
    return _clock_drift(gpu, found, held) or _fan_drift(gpu, found, held) or _limit_drift(gpu, found, held)


def _clock_drift(gpu: GpuPower, found: GpuState, held: GpuNote) -> str:
    wanted = ",".join(map(str, gpu.clocks)) if gpu.clocks else "-"
    if held.clocks != wanted:
        return f"clocks were set to {held.clocks} MHz"
    too_fast = gpu.clocks and found.clock is not None and found.clock > gpu.clocks[1] + CLOCK_STEP
    return f"it runs at {found.clock} MHz" if too_fast else ""


def _fan_drift(gpu: GpuPower, found: GpuState, held: GpuNote) -> str:
    if held.fans != str(gpu.fans or "-"):
        return f"fans were set to {held.fans} %"
    if gpu.fans is not None and (found.fan is None or abs(found.fan - gpu.fans) > FAN_STEP):
        return f"fans run at {found.fan} %"
    return ""


def _limit_drift(gpu: GpuPower, found: GpuState, held: GpuNote) -> str:
    if gpu.limit is None:
        return "" if held.limit == "-" else f"its limit was set to {held.limit} W"
    # Whether a GPU takes a limit, only trying tells: some tell a range and refuse all the same.
    if held.limit == "refused":
        return "it took no limit, and no clocks are declared" if gpu.clocks is None else ""
    if held.limit != str(gpu.limit):
        return f"its limit was set to {held.limit} W"
    if found.limit is None or abs(found.limit - gpu.limit) > ROUNDING:
        return f"its limit is {'not reported' if found.limit is None else f'{found.limit:g} W'}"
    return ""


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of the driver, the unit, and the notes of what each GPU is limited to."""
    if plan.power is None:
        return
    yield Probe("cards", "", ("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,nounits"), errors=True)
    yield service_probe("power unit", POWER_UNIT)
    yield Probe("held", "", ("grep", "-r", "--include=GPU-*", "", str(POWER_RUN)))


def judge(judging: Judging) -> Verified:
    """Return the checks of GPUs' limits."""
    power = judging.plan.power
    return Verified(checks=tuple(power_checks(power, judging.outputs)) if power else ())


def power_checks(power: PowerPlan, outputs: ProbeOutputs) -> Iterator[Check]:
    """Yield the checks of the unit and of each GPU."""
    yield service_check("unit", outputs.get(("power unit", ""), ""), POWER_UNIT)
    printed = outputs.get(("cards", ""), "")
    rows = _rows(printed)
    for gpu in power.cards:
        row = _row_of(gpu.at, rows)
        if row is None:
            first = (printed.strip().splitlines() or ["nvidia-smi printed nothing"])[0]
            yield Check(gpu.name, False, f"{gpu.at} is not among the {len(rows)} GPUs" if rows else first)
        else:
            yield _gpu_check(gpu, row, _note(row["uuid"], outputs))


def _note(uuid: str, outputs: ProbeOutputs) -> str:
    """Return the note of what a GPU is limited to: `FOLDER/GPU-…:NOTE` is a line of it."""
    lines = (line.partition(f"/{uuid}:") for line in outputs.get(("held", ""), "").split("\n"))
    return "\n".join(note for _, found, note in lines if found)


def _rows(printed: str) -> list[QueryRow]:
    """Return the GPUs by the names of fields; units stand after these, as in `power.limit [W]`."""
    header, *lines = csv.reader(printed.splitlines(), skipinitialspace=True) if printed else [[]]
    names = [name.partition(" ")[0] for name in header]
    return [dict(zip(names, line, strict=True)) for line in lines if "uuid" in names and len(line) == len(names)]


def _row_of(at: str, rows: Sequence[QueryRow]) -> QueryRow | None:
    if (place := whole_number(at)) is not None:
        return dict(enumerate(sorted(rows, key=lambda row: row["pci.bus_id"].upper()))).get(place)
    return next((row for row in rows if at.upper() in (row["uuid"].upper(), row["pci.bus_id"].upper())), None)


def _gpu_check(gpu: GpuPower, row: QueryRow, note: str) -> Check:
    limit, clock = parse_number(row["power.limit"]), parse_number(row.get("clocks.current.graphics", ""))
    problems, found = [], []
    if gpu.limit is not None:
        refused = note.startswith("refused ") or limit is None
        if refused and gpu.clocks:
            found.append("takes no power limit, its clocks are held instead")
        elif limit is None:
            problems.append(f"takes no power limit, declared are {gpu.limit} W")
        elif abs(limit - gpu.limit) > ROUNDING:
            problems.append(
                f"may draw {limit:g} W, declared are {gpu.limit} W: another program changed it; `herd up` restores it"
            )
        else:
            found.append(f"may draw {limit:g} W")
    if gpu.clocks:
        least, most = gpu.clocks
        # The driver does not report locked clocks: the note of the lock counts, unless the present clock is another.
        if note.split()[1:2] != [f"{least},{most}"]:
            problems.append(f"its clocks are not limited to {least} to {most} MHz: `herd up`")
        elif clock is not None and clock > most + CLOCK_STEP:
            problems.append(f"runs at {clock:g} MHz, expected are {least} to {most} MHz: `herd up`")
        else:
            found.append(f"limited to {least} to {most} MHz")
    if gpu.fans is not None:
        speed = parse_number(row["fan.speed"])
        if speed is None:
            problems.append(f"has no fans that can be set, declared are {gpu.fans} %")
        elif abs(speed - gpu.fans) > FAN_STEP:
            problems.append(
                f"its fans run at {speed:g} %, declared are {gpu.fans} %: another was set, or it is too hot; "
                "`herd up` sets ours"
            )
        elif note.split()[3:4] != [str(gpu.fans)]:
            problems.append(f"its fans are not held at {gpu.fans} %: `herd up`")
        else:
            found.append(f"fans at {speed:g} %")
    return Check(gpu.name, not problems, "; ".join(problems or found))


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """Return the limits of GPUs, and those that this system does not support."""
    rows = [f"{gpu.name}: {gpu.declared} ({gpu.at})" for gpu in (plan.power.cards if plan.power else ())]
    rows += [f"{gpu.name}: {gpu.declared}, which is Windows' to set" for gpu in plan.windows_power]
    return [f"  {'power' if not number else '':10} {row}" for number, row in enumerate(rows)]


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield the task before servers, which may be slower afterwards, and no longer trip a fuse."""
    if plan.power:
        yield Task("limits, clocks and fans", lambda state, _: power_changes(plan, state))


ROLE = Role(
    name="power",
    summary="GPUs have their power limits, clocks and fan speeds from every boot on.",
    plan=plan,
    brings=lambda plan: plan.power.files if plan.power else (),
    inspection=Inspection("power.inspect", inspection_input, Found, state_parts),
    refusals=lambda plan, state: [replace(each, about="power") for each in power_refusals(plan, state)],
    facts=facts,
    leftovers=power_leftovers,
    tasks=tasks,
    probes=probes,
    judge=judge,
    section="cards",
    describe=describe,
)
