"""CMake options that leave out the cards which the engine's instances are on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.checks.building import is_on
from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.engines.flags.codes import OPTION_AGAINST_RIG
from llamaherd.inventory.schema import Card, Engine

ALL = frozenset(("all", "all-major", "native"))
"""What CMake takes for every architecture, every major one, and that of the cards of the machine it builds on."""
ELEMENT = re.compile(r"([0-9]{2,3})([af]?)(-real|-virtual)?")


def compiled_for(subject: RigContext) -> Iterator[Finding]:
    """A build without CUDA for instances on cards, or for other architectures than theirs."""
    for name, engine in subject.rig.engines.items():
        cards = _cards(subject, name)
        if engine.source is None or not cards:
            continue
        where = ("engines", name, "options")
        if not is_on(engine.options.get("GGML_CUDA", True)):
            message = f"engine `{name}` is built without CUDA, and instances of it are on cards"
            place = subject.document.value((*where, "GGML_CUDA"))
            yield Finding(OPTION_AGAINST_RIG, place, message, "leave `GGML_CUDA` out: it is on where there are cards")
        elif missing := [card for card in cards.items() if not _covered(engine, card[1])]:
            card, declared = missing[0]
            architectures = engine.options["CMAKE_CUDA_ARCHITECTURES"]
            message = f"engine `{name}` is built for architecture {architectures}, which card `{card}` "
            message += f"({declared.model}, {declared.cuda_architecture}) does not run"
            help_ = "leave `CMAKE_CUDA_ARCHITECTURES` out: it is that of the cards in use"
            place = subject.document.value((*where, "CMAKE_CUDA_ARCHITECTURES"))
            yield Finding(OPTION_AGAINST_RIG, place, message, help_)


def _cards(subject: RigContext, engine: str) -> dict[str, Card]:
    declared = subject.rig.gpus.cards if subject.rig.gpus else {}
    names = [card for each in subject.rig.instances.values() if each.engine == engine for card in each.on]
    return {name: declared[name] for name in names if name in declared}


def _covered(engine: Engine, card: Card) -> bool:
    """Whether code of an architecture in the option runs on a card, or is compiled for it when it is loaded."""
    value = engine.options.get("CMAKE_CUDA_ARCHITECTURES")
    parts = [part.strip() for part in re.split("[;,]", str(value))] if value is not None else []
    if not parts or ALL & set(parts):
        return True
    found = [ELEMENT.fullmatch(part) for part in parts]
    return any(one is None or _runs(one, int(card.cuda_architecture.rstrip("af"))) for one in found)


def _runs(element: re.Match[str], card: int) -> bool:
    """NVIDIA's rules: machine code within a major version, PTX upwards; `a` on that one alone, `f` in its family.

    CUDA C++ Programming Guide, "Application Compatibility".
    """
    number, exact, kind = int(element[1]), element[2], element[3]
    if exact == "a":
        return number == card
    if exact == "f" or kind == "-real":
        return number // 10 == card // 10 and number <= card
    return number <= card
