"""Which engines are built with CUDA here, and for which cards: what the checks of a toolkit go by."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.inventory.schema import Card, Engine, Instance, Rig


def built_with_cuda(rig: Rig) -> dict[str, Engine]:
    """The engines that are built with the rig's toolkit: from a source, and an instance of theirs is on a card."""
    return {
        instance.engine: engine
        for instance in rig.instances.values()
        if instance.on and (engine := rig.engines.get(instance.engine)) and _with_toolkit(engine)
    }


def built_for(rig: Rig) -> dict[str, Card]:
    """The cards that an engine is compiled for with the rig's toolkit."""
    engines = built_with_cuda(rig)
    cards: Mapping[str, Card] = rig.gpus.cards if rig.gpus else {}
    return {
        name: cards[name]
        for instance in rig.instances.values()
        if instance.engine in engines and "CMAKE_CUDA_ARCHITECTURES" not in engines[instance.engine].options
        for name in instance.on
        if name in cards
    }


def served_by_builds(rig: Rig) -> dict[str, Instance]:
    """The instances that run on a card with an engine that is built with the rig's toolkit."""
    engines = built_with_cuda(rig)
    return {name: each for name, each in rig.instances.items() if each.on and each.engine in engines}


def is_on(value: str | int | bool) -> bool:
    """Whether CMake takes an option's value for true."""
    return str(value).upper() not in {"0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND", ""}


def _with_toolkit(engine: Engine) -> bool:
    options = engine.options
    return engine.source is not None and is_on(options.get("GGML_CUDA", True)) and "CMAKE_CUDA_COMPILER" not in options
