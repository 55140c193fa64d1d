"""Power limits, clocks and fans: set anew only where what the driver and our notes say is not what is planned."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.converge.disks import Refusal
from llamaherd.converge.steps import RunScript, differs, put_files
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.nvidia_smi import GpuState, find
from llamaherd.host.state import HostState
from llamaherd.layout import POWER_FANS, POWER_PROGRAM, POWER_RUN, POWER_TABLE, POWER_UNIT, UNITS
from llamaherd.plan import CardPower, Plan
from llamaherd.text.render import render

ROUNDING = 1
"""Watts that a limit which is read may be off: drivers keep milliwatts."""

CLOCK_STEP = 15
"""MHz between two clocks of a card: one that is held may run so much above."""

FAN_STEP = 3
"""Points by which fans that are held may run beside their speed."""


def power_steps(plan: Plan, seen: HostState) -> list[RunScript]:
    """Write what holds the cards, and start it anew where a card is not held as planned. Raises UserError where a card
    cannot be, which shows only now if this run brought the driver."""
    if plan.power is None:
        return []
    for problem in power_refusals(plan, seen, driver_is_there=True) if plan.driver else ():
        raise UserError(problem.message, problem.help)
    unit = seen.power_unit
    restart = unit is None or unit.active != "active" or _not_as_planned(plan.power.cards, seen)
    changed = [file for file in plan.power.files if differs(file, seen)]
    if not restart and not changed and unit and (unit.enabled, unit.needs_reload) == ("enabled", False):
        return []
    script = render("steps/gpu-power.sh.j2", put=put_files(changed), unit=POWER_UNIT, restart=restart)
    held = "; ".join(f"{card.name} to {card.declared}" for card in plan.power.cards)
    return [RunScript(script, f"holding {held}" if restart else "")]


def power_removal_steps(plan: Plan, seen: HostState) -> list[RunScript]:
    """Give all cards their defaults back where nothing is declared of them any more."""
    if plan.power or seen.power_unit is None:
        return []
    script = render(
        "steps/remove-gpu-power.sh.j2",
        unit=UNITS / POWER_UNIT,
        programs=(POWER_PROGRAM, POWER_FANS),
        table=POWER_TABLE,
        notes=POWER_RUN,
    )
    return [RunScript(script, "giving cards their own power limits, clocks and fan speeds again")]


def power_refusals(plan: Plan, seen: HostState, *, driver_is_there: bool = False) -> list[Refusal]:
    """What the cards cannot be held to. Until a planned driver is there, cards that do not show are no problem."""
    if plan.power is None:
        return []
    if not seen.cards:
        if plan.driver and not driver_is_there:
            return []
        return [
            Refusal(
                f"power limits, clocks or fans are declared, and NVIDIA's driver does not answer: {seen.driver_says}",
                "install it, so that `nvidia-smi` shows the cards, or take `power_limit`, `clocks` and `fans` out",
            )
        ]
    # What is not in this host at all, preflight has said of all cards (converge/machine.py): here it is for cards that
    # a new driver has brought to light, or not.
    there = [card for card in plan.power.cards if driver_is_there or find(card.at, seen.cards)]
    return [problem for card in there for problem in _card_refusals(card, seen.cards)]


def _card_refusals(card: CardPower, cards: Sequence[GpuState]) -> list[Refusal]:
    seen = find(card.at, cards)
    if seen is None:
        there = ", ".join(f"{each.name} ({each.uuid} at {each.pci})" for each in cards)
        return [Refusal(f"card `{card.name}` ({card.at}) is not in this host", f"there is {there}")]
    return [*_fan_refusals(card, seen), *_limit_refusals(card, seen)]


def _fan_refusals(card: CardPower, seen: GpuState) -> list[Refusal]:
    if card.fans is None or seen.fan is not None:
        return []
    return [
        Refusal(
            f"card `{card.name}` ({seen.name}) has no fans that can be set",
            "take `fans` out: what cools it is the machine's",
        )
    ]


def _limit_refusals(card: CardPower, seen: GpuState) -> list[Refusal]:
    if card.limit is None:
        return []
    if seen.limit is None and card.clocks is None:
        return [
            Refusal(
                f"card `{card.name}` ({seen.name}) takes no power limit",
                "hold its clocks instead: `clocks: {max: 1800MHz}`, say",
            )
        ]
    if seen.least is not None and seen.most is not None and not seen.least <= card.limit <= seen.most:
        return [
            Refusal(
                f"card `{card.name}` ({seen.name}) takes a power limit of {seen.least:g} to {seen.most:g} W, "
                f"the inventory says {card.limit} W",
                f"write `power_limit: {min(max(card.limit, seen.least), seen.most):g}W`",
            )
        ]
    return []


def _not_as_planned(cards: Sequence[CardPower], seen: HostState) -> bool:
    """Whether a card is not held as planned, or one is held that is not planned."""
    found = [find(card.at, seen.cards) for card in cards]
    if set(seen.held) - {each.uuid for each in found if each}:
        return True
    return any(each is None or _drifted(card, each, seen) for card, each in zip(cards, found, strict=True))


def _drifted(card: CardPower, seen: GpuState, host: HostState) -> bool:
    held = host.held.get(seen.uuid)
    if held is None:
        return True
    # Forgotten by then, or soon: a card that nothing keeps loaded.
    if held.persistence == "on" and seen.persistent is False:
        return True
    if held.clocks != (",".join(map(str, card.clocks)) if card.clocks else "-"):
        return True
    if card.clocks and seen.clock is not None and seen.clock > card.clocks[1] + CLOCK_STEP:
        return True
    if held.fans != str(card.fans or "-"):
        return True
    if card.fans is not None and (seen.fan is None or abs(seen.fan - card.fans) > FAN_STEP):
        return True
    if card.limit is None:
        return held.limit != "-"
    # Whether a card takes a limit, only trying tells: some tell a range and refuse all the same.
    if held.limit == "refused":
        return card.clocks is None
    return held.limit != str(card.limit) or seen.limit is None or abs(seen.limit - card.limit) > ROUNDING
