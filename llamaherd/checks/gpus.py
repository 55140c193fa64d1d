"""Cards: whether they can be told apart, and what power, clocks and fans they are given."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.inventory.schema import Card
from llamaherd.plan.devices import address
from llamaherd.reference.cards import BOARD_WATTS, CARDS, OTHER_SIZES
from llamaherd.text.units import show_mib

LEAST_WATTS = 100
"""Below this no large card does work worth its idle power: six 3090s fell from 62.6 t/s at 150 W to 12.1 at 100 W
(llmgarage.ai, February 2026). Of a smaller card it is half of what it is made for; of one not known here, nothing."""

MOST_PART = 1.5
"""Of the board power of NVIDIA's own design, what no partner's card goes beyond: the greediest 3090 takes 1.4 times."""

COLLAPSES_BELOW = {"RTX 3090": 200}
"""Measured, in watts: at 200 W it decodes 6 % slower and reads prompts 40 % slower than at 350 W, and below that it
collapses (llmgarage.ai, February 2026; jeanfbrito.github.io)."""

SAME_SIZE = 0.1
"""By how much a size may differ from the table's: 24GB is 7 % less than the 24576 MiB that such a card has."""

LEAST_FANS = 40
"""Percent, below which a fixed speed leaves a busy card to get hot and slow down: it does not rise under load."""


def identities(subject: RigContext) -> Iterator[Finding]:
    """Two cards that are one, and cards that cannot be numbered."""
    cards = subject.rig.gpus.cards if subject.rig.gpus else {}
    taken: dict[tuple[str, object], str] = {}
    for name, card in cards.items():
        for key, value in _identity(card):
            where = ("gpus", "cards", name, key)
            if other := taken.get((key, value)):
                message = f"cards `{other}` and `{name}` have the same `{key}`, so that they would be one"
                help_ = "give each its own: `nvidia-smi --query-gpu=index,pci.bus_id,uuid,name --format=csv` shows them"
                yield Finding("LH049", subject.document.value(where), message, help_)
            taken.setdefault((key, value), name)
        if card.index is not None and card.index >= len(cards):
            message = f"card `{name}` is the one with number {card.index}, and the rig declares {len(cards)} of them"
            help_ = f"numbers begin with 0; write one up to {len(cards) - 1}, or declare the other cards as well"
            yield Finding("LH049", subject.document.value(("gpus", "cards", name, "index")), message, help_, "warning")
    yield from _not_numbered(subject)


def sizes(subject: RigContext) -> Iterator[Finding]:
    """Memory that no card of the declared name has."""
    for name, card in (subject.rig.gpus.cards if subject.rig.gpus else {}).items():
        known = CARDS.get(card.model)
        if known is None or card.memory is None:
            continue
        made = [size << 20 for size in (known.memory_mib, *OTHER_SIZES.get(card.model, ()))]
        if not any(abs(card.memory - size) <= SAME_SIZE * size for size in made):
            shown = " or ".join(map(show_mib, made))
            message = f"card `{name}` is declared with {show_mib(card.memory)}, and an {card.model} has {shown}"
            help_ = (
                "leave `memory` out, unless `nvidia-smi` shows that much; what else holds some of it, `reserved` says"
            )
            place = subject.document.value(("gpus", "cards", name, "memory"))
            yield Finding("LH274", place, message, help_, "warning")


def power(subject: RigContext) -> Iterator[Finding]:
    """Limits, clocks and fan speeds that a card refuses, that do more harm than good, or that are not Linux' to set."""
    cards = subject.rig.gpus.cards if subject.rig.gpus else {}
    for name, card in cards.items():
        where = ("gpus", "cards", name)
        if card.clocks and card.clocks.min > card.clocks.max:
            message = f"card `{name}` has a lowest clock of {card.clocks.min} MHz and a highest of {card.clocks.max}"
            help_ = f"write `clocks: {{min: {card.clocks.max}, max: {card.clocks.min}}}`, or leave `min` out"
            if "min" not in card.clocks.model_fields_set:
                help_ = "write a highest above that, as in `clocks: {max: 1800MHz}`"
            yield Finding("LH051", subject.document.value((*where, "clocks")), message, help_)
        if (card.power_limit or card.clocks or card.fans) and len(cards) > 1 and not list(_identity(card)):
            own = "limits" if card.power_limit or card.clocks else "a fan speed"
            message = f"card `{name}` has {own} of its own, and nothing tells it from the other cards"
            help_ = "add its `uuid`, which `nvidia-smi -L` shows"
            yield Finding("LH049", subject.document.key(where), message, help_)
        if subject.rig.host.wsl is not None:
            yield from _under_wsl(subject, name, card)
            continue
        if card.power_limit is not None:
            place = subject.document.value((*where, "power_limit"))
            yield from (
                Finding("LH050", place, message, help_, "note" if _laptop(card) else "warning")
                for message, help_ in _unwise_limit(name, card, card.power_limit)
            )
        if card.fans is not None:
            place = subject.document.value((*where, "fans"))
            yield from (
                Finding("LH050", place, message, help_, "warning")
                for message, help_ in _unwise_fans(name, card, card.fans)
            )


def _identity(card: Card) -> Iterator[tuple[str, object]]:
    if card.uuid is not None:
        yield "uuid", card.uuid.lower()
    if card.pci is not None:
        yield "pci", address(card.pci)
    if card.index is not None:
        yield "index", card.index


def _not_numbered(subject: RigContext) -> Iterator[Finding]:
    """CUDA takes no PCI address, so that a card's number is counted, for which all addresses must be known."""
    cards = subject.rig.gpus.cards if subject.rig.gpus else {}
    without = [name for name, card in cards.items() if card.pci is None]
    used = {name for instance in subject.rig.instances.values() for name in instance.on}
    counted = [name for name, card in cards.items() if card.pci is not None and name in used]
    if without and counted:
        message = f"card `{counted[0]}` is given by its PCI address and `{without[0]}` is not, so that it has no number"
        help_ = "give all cards of the rig by `pci`, or each by its `uuid`, which `nvidia-smi -L` shows"
        yield Finding("LH049", subject.document.value(("gpus", "cards", counted[0], "pci")), message, help_)


def _under_wsl(subject: RigContext, name: str, card: Card) -> Iterator[Finding]:
    for key, given, command in (
        ("power_limit", card.power_limit, f"-pl {card.power_limit}"),
        ("clocks", card.clocks, f"-lgc {card.clocks.min},{card.clocks.max}" if card.clocks else ""),
    ):
        if given is not None:
            message = f"`{key}` of card `{name}` cannot be set inside WSL: the card belongs to Windows"
            help_ = f"run gpu-power.ps1, which `herd up` writes for Windows: it does `nvidia-smi.exe {command}` there"
            yield Finding("LH048", subject.document.key(("gpus", "cards", name, key)), message, help_, "warning")
    if card.fans is not None:
        message = f"`fans` of card `{name}` cannot be set inside WSL, nor by what `herd up` writes for Windows"
        help_ = "take it out, and set the fans in Windows with the tool of the card's maker or the NVIDIA app"
        yield Finding("LH048", subject.document.key(("gpus", "cards", name, "fans")), message, help_, "warning")


def _unwise_limit(name: str, card: Card, limit: int) -> Iterator[tuple[str, str]]:
    """What is doubtful about a power limit in watts, and what to write."""
    board = BOARD_WATTS.get(card.model)
    least = COLLAPSES_BELOW.get(card.model, min(LEAST_WATTS, board // 2) if board else 0)
    if _laptop(card):
        if card.clocks is None:
            message = f"card `{name}` is a laptop's, and many of those refuse a power limit"
            yield message, "add `clocks: {max: 1800MHz}`, say, to which it is held where it refuses"
    elif board and limit > MOST_PART * board:
        message = f"{limit} W is more than card `{name}` can take: {card.model} is made for {board} W"
        yield message, "`nvidia-smi -q -d POWER` shows the least and the most that yours takes"
    elif limit < least:
        message = f"{limit} W is so little that card `{name}` ({card.model}) collapses rather than saves"
        yield message, f"write `power_limit: {least}W` or more"


def _unwise_fans(name: str, card: Card, percent: int) -> Iterator[tuple[str, str]]:
    """What is doubtful about a fixed speed of fans, and what to write."""
    if _laptop(card):
        yield f"card `{name}` is a laptop's, whose fans belong to the firmware", "take `fans` out"
    elif percent < LEAST_FANS:
        message = f"fans of card `{name}` at {percent} % stay so under load, and a card that gets hot slows down"
        yield message, f"write `fans: {LEAST_FANS}%` or more, or take `fans` out: the card then controls them itself"


def _laptop(card: Card) -> bool:
    known = CARDS.get(card.model)
    return known.laptop if known else "laptop" in card.model.lower()
