"""Verify the limits of GPUs by a query of the driver."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from llamaherd.host.responses import ProbeOutputs, parse_pairs
from llamaherd.layout import POWER_RUN, POWER_UNIT
from llamaherd.onhost.hardware import parse_number
from llamaherd.onhost.verification import Probe
from llamaherd.plan import GpuPower, Plan, PowerPlan
from llamaherd.role.report import Check
from llamaherd.role.role import Judging, Verified
from llamaherd.text.numbers import whole_number

QUERY = "index,uuid,pci.bus_id,power.limit,clocks.current.graphics,fan.speed"
"""The fields of the query. The output names them by their long names, whatever the query used."""

ROUNDING, CLOCK_STEP, FAN_STEP = 1, 15, 3
"""W, MHz and percent by which a GPU may be off: drivers keep milliwatts, clocks come in steps, fans turn."""

QueryRow = dict[str, str]


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield probes of the driver, the unit, and the notes of what each GPU is limited to."""
    if plan.power is None:
        return
    yield Probe("cards", "", ("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,nounits"), errors=True)
    unit = ("systemctl", "show", "-p", "ActiveState", "-p", "UnitFileState", POWER_UNIT)
    yield Probe("power unit", "", unit, errors=True)
    yield Probe("held", "", ("grep", "-r", "--include=GPU-*", "", str(POWER_RUN)))


def judge(judging: Judging) -> Verified:
    """Return the checks of GPUs' limits."""
    power = judging.plan.power
    return Verified(checks=tuple(Check(*each) for each in power_checks(power, judging.answers)) if power else ())


def power_checks(power: PowerPlan, answers: ProbeOutputs) -> Iterator[tuple[str, bool, str]]:
    """Yield a name, whether it is as declared, and what was found: for the unit, and for each GPU."""
    unit = parse_pairs(answers.get(("power unit", ""), ""))
    state, boot = unit.get("ActiveState", "not there"), unit.get("UnitFileState") or "not there"
    name = power.unit.path.rpartition("/")[2]
    yield "unit", (state, boot) == ("active", "enabled"), f"{name} is {state}, {boot}"
    printed = answers.get(("cards", ""), "")
    rows = _rows(printed)
    for gpu in power.cards:
        row = _row_of(gpu.at, rows)
        if row is None:
            first = (printed.strip().splitlines() or ["nvidia-smi printed nothing"])[0]
            yield gpu.name, False, f"{gpu.at} is not among the {len(rows)} GPUs" if rows else first
        else:
            yield gpu.name, *_judged(gpu, row, _note(row["uuid"], answers))


def _note(uuid: str, answers: ProbeOutputs) -> str:
    """Return the note of what a GPU is limited to: `FOLDER/GPU-…:NOTE` is a line of it."""
    lines = (line.partition(f"/{uuid}:") for line in answers.get(("held", ""), "").split("\n"))
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


def _judged(gpu: GpuPower, row: QueryRow, note: str) -> tuple[bool, str]:
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
        # No query tells whether clocks are locked: a note that they were, and a clock that does not say otherwise.
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
    return not problems, "; ".join(problems or found)
