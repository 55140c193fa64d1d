"""What the cards of a rig are held to: power limits, clocks and fans, from every boot on. Pure, as all of the plan."""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.inventory.schema import Card, Rig
from llamaherd.layout import POWER_FANS, POWER_PROGRAM, POWER_TABLE, POWER_UNIT, UNITS
from llamaherd.plan import CardPlan, CardPower, InstancePlan, PowerPlan, TextFile
from llamaherd.plan.devices import address
from llamaherd.text.render import render


def declared_power(rig: Rig) -> tuple[CardPower, ...]:
    """The cards of a rig that have a limit, clocks or a fan speed, whoever is to set them."""
    cards = rig.gpus.cards if rig.gpus else {}
    return tuple(
        CardPower(
            name=name,
            at=_at(card, position),
            limit=card.power_limit,
            clocks=(card.clocks.min, card.clocks.max) if card.clocks else None,
            fans=card.fans,
        )
        for position, (name, card) in enumerate(cards.items())
        if card.power_limit is not None or card.clocks or card.fans is not None
    )


def declared_cards(rig: Rig) -> tuple[CardPlan, ...]:
    """All cards of a rig."""
    cards = rig.gpus.cards if rig.gpus else {}
    return tuple(
        CardPlan(
            name=name, model=card.model, at=_at(card, 0) if card.uuid or card.pci or card.index is not None else ""
        )
        for name, card in cards.items()
    )


def plan_power(rig: Rig, instances: Iterable[InstancePlan]) -> PowerPlan | None:
    """How they are held; None where nothing is declared, and under WSL, where cards are Windows'."""
    cards = declared_power(rig)
    if not cards or rig.host.wsl is not None:
        return None
    return PowerPlan(
        cards=cards,
        fans=TextFile(path=str(POWER_FANS), text=render("gpu-fans.py"), mode="0755"),
        program=TextFile(path=str(POWER_PROGRAM), text=render("gpu-power.sh"), mode="0755"),
        table=TextFile(path=str(POWER_TABLE), text=_table(rig.rig, cards)),
        unit=TextFile(
            path=str(UNITS / POWER_UNIT),
            text=render(
                "gpu-power.service.j2", rig=rig.rig, program=POWER_PROGRAM, table=POWER_TABLE, before=_served(instances)
            ),
        ),
    )


def _at(card: Card, position: int) -> str:
    """Which card it is. One that nothing tells from others is the only one: anything else is a finding."""
    if card.uuid:
        return card.uuid
    if card.pci:
        domain, bus, device, function = address(card.pci)
        return f"{domain:08X}:{bus:02X}:{device:02X}.{function}"
    return str(position if card.index is None else card.index)


def _table(rig: str, cards: Iterable[CardPower]) -> str:
    head = (
        f"# Written by llamaherd for rig `{rig}`: change the inventory, not this file.\n# card, which one, W, MHz, %\n"
    )
    return head + "".join(
        f"{card.name} {card.at} {card.limit or '-'} {','.join(map(str, card.clocks or '-'))} {card.fans or '-'}\n"
        for card in cards
    )


def _served(instances: Iterable[InstancePlan]) -> list[str]:
    """The units that are to find cards held already: at boot, Docker starts what is in containers."""
    return sorted({f"{each.service}.service" if each.backend == "systemd" else "docker.service" for each in instances})
