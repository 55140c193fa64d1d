"""CMake options that leave out the GPUs which the engine's instances are on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import is_on
from llamaherd.inventory.schema import Card, Engine

ALL = frozenset(("all", "all-major", "native"))
"""What CMake takes for every architecture, every major one, and that of the GPUs of the machine it builds on."""
ELEMENT = re.compile(r"([0-9]{2,3})([af]?)(-real|-virtual)?")


OPTION_AGAINST_RIG = Rule(
    "LH215",
    "A CMake option leaves out the GPUs that the engine's instances are on.",
    why="A build without CUDA sees no GPU; code for one architecture runs on others only within NVIDIA's rules.",
    example="""
    engines:
      main: {options: {CMAKE_CUDA_ARCHITECTURES: "120"}}
    """,
    way_out="leave the option out: llamaherd builds for the GPUs in use.",
)


def compiled_for(subject: RigContext) -> Iterator[Finding]:
    """A build without CUDA for instances on GPUs, or for other architectures than theirs."""
    for name, engine in subject.rig.engines.items():
        cards = _cards(subject, name)
        if engine.source is None or not cards:
            continue
        where = ("engines", name, "options")
        if not is_on(engine.options.get("GGML_CUDA", True)):
            message = f"engine `{name}` is built without CUDA, and instances of it are on GPUs"
            place = subject.document.value((*where, "GGML_CUDA"))
            yield OPTION_AGAINST_RIG.at(place, message, "leave `GGML_CUDA` out: it is on where there are GPUs")
        elif missing := [card for card in cards.items() if not _covered(engine, card[1])]:
            card, declared = missing[0]
            architectures = engine.options["CMAKE_CUDA_ARCHITECTURES"]
            message = f"engine `{name}` is built for architecture {architectures}, which GPU `{card}` "
            message += f"({declared.model}, {declared.cuda_architecture}) does not run"
            help_ = "leave `CMAKE_CUDA_ARCHITECTURES` out: it is that of the GPUs in use"
            place = subject.document.value((*where, "CMAKE_CUDA_ARCHITECTURES"))
            yield OPTION_AGAINST_RIG.at(place, message, help_)


def _cards(subject: RigContext, engine: str) -> dict[str, Card]:
    declared = subject.rig.gpus.cards if subject.rig.gpus else {}
    names = [card for each in subject.rig.instances.values() if each.engine == engine for card in each.on]
    return {name: declared[name] for name in names if name in declared}


def _covered(engine: Engine, card: Card) -> bool:
    """Whether code of an architecture in the option runs on a GPU, or is compiled for it when it is loaded."""
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
