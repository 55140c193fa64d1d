"""Whether cards are held to what is declared: asked of the driver by a query of its own, and judged here."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from llamaherd.host.answers import Answers, pairs
from llamaherd.host.nvidia_smi import number
from llamaherd.plan import CardPower, PowerPlan

QUERY = "index,uuid,pci.bus_id,power.limit,clocks.current.graphics,fan.speed"
"""The fields that the driver is asked for. Its answer names them, by their long names whatever it was asked by."""

ROUNDING, CLOCK_STEP, FAN_STEP = 1, 15, 3
"""W, MHz and percent by which a card may be off: drivers keep milliwatts, clocks come in steps, fans turn."""

Row = dict[str, str]


def power_checks(power: PowerPlan, answers: Answers) -> Iterator[tuple[str, bool, str]]:
    """A name, whether it is as declared, and what was found: for the unit, and for each card."""
    unit = pairs(answers.get(("power unit", ""), ""))
    state, boot = unit.get("ActiveState", "not there"), unit.get("UnitFileState") or "not there"
    name = power.unit.path.rpartition("/")[2]
    yield "unit", (state, boot) == ("active", "enabled"), f"{name} is {state}, {boot}"
    said = answers.get(("cards", ""), "")
    rows = _rows(said)
    for card in power.cards:
        row = _row_of(card.at, rows)
        if row is None:
            first = (said.strip().splitlines() or ["nvidia-smi said nothing"])[0]
            yield card.name, False, f"{card.at} is not among the {len(rows)} cards" if rows else first
        else:
            yield card.name, *_judged(card, row, answers.get(("held", row["uuid"]), ""))


def _rows(said: str) -> list[Row]:
    """The cards by the names of fields; units stand after these, as in `power.limit [W]`."""
    header, *lines = csv.reader(said.splitlines(), skipinitialspace=True) if said else [[]]
    names = [name.partition(" ")[0] for name in header]
    return [dict(zip(names, line, strict=True)) for line in lines if "uuid" in names and len(line) == len(names)]


def _row_of(at: str, rows: Sequence[Row]) -> Row | None:
    if at.isdigit():
        return dict(enumerate(sorted(rows, key=lambda row: row["pci.bus_id"].upper()))).get(int(at))
    return next((row for row in rows if at.upper() in (row["uuid"].upper(), row["pci.bus_id"].upper())), None)


def _judged(card: CardPower, row: Row, note: str) -> tuple[bool, str]:
    limit, clock = number(row["power.limit"]), number(row.get("clocks.current.graphics", ""))
    problems, found = [], []
    if card.limit is not None:
        refused = note.startswith("refused ") or limit is None
        if refused and card.clocks:
            found.append("takes no power limit, its clocks are held instead")
        elif limit is None:
            problems.append(f"takes no power limit, declared are {card.limit} W")
        elif abs(limit - card.limit) > ROUNDING:
            problems.append(f"may draw {limit:g} W, declared are {card.limit} W: somebody set another limit; converge")
        else:
            found.append(f"may draw {limit:g} W")
    if card.clocks:
        least, most = card.clocks
        # No query tells whether clocks are locked: a note that they were, and a clock that does not say otherwise.
        if note.split()[1:2] != [f"{least},{most}"]:
            problems.append(f"its clocks are not held to {least} to {most} MHz: converge")
        elif clock is not None and clock > most + CLOCK_STEP:
            problems.append(f"runs at {clock:g} MHz, held should be {least} to {most} MHz: converge")
        else:
            found.append(f"held to {least} to {most} MHz")
    if card.fans is not None:
        speed = number(row["fan.speed"])
        if speed is None:
            problems.append(f"has no fans that can be set, declared are {card.fans} %")
        elif abs(speed - card.fans) > FAN_STEP:
            problems.append(
                f"its fans run at {speed:g} %, declared are {card.fans} %: another was set, or it is too hot; converge"
            )
        elif note.split()[3:4] != [str(card.fans)]:
            problems.append(f"its fans are not held at {card.fans} %: converge")
        else:
            found.append(f"fans at {speed:g} %")
    return not problems, "; ".join(problems or found)
