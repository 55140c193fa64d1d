"""Which engines are built with CUDA here, and for which cards: what the checks of a toolkit go by."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.engines import is_on
from llamaherd.inventory.schema import Card, Engine, Instance, Rig
from llamaherd.reference import toolchains


def built_with_cuda(rig: Rig) -> dict[str, Engine]:
    """The engines that are built with the rig's toolkit: from a source, and an instance of theirs is on a GPU."""
    return {
        instance.engine: engine
        for instance in rig.instances.values()
        if instance.on and (engine := rig.engines.get(instance.engine)) and _with_toolkit(engine)
    }


def gpus_built_for(rig: Rig) -> dict[str, Card]:
    """The GPUs that an engine is compiled for with the rig's toolkit."""
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
    """The instances that run on a GPU with an engine that is built with the rig's toolkit."""
    engines = built_with_cuda(rig)
    return {name: each for name, each in rig.instances.items() if each.on and each.engine in engines}


def one_of_each(cards: Mapping[str, Card]) -> dict[str, Card]:
    """The first GPU of each model and architecture: what is said of it holds for the others."""
    first: dict[tuple[str, str], str] = {}
    for name, card in cards.items():
        first.setdefault((card.model, card.cuda_architecture), name)
    return {name: cards[name] for name in first.values()}


def _with_toolkit(engine: Engine) -> bool:
    options = engine.options
    return engine.source is not None and is_on(options.get("GGML_CUDA", True)) and "CMAKE_CUDA_COMPILER" not in options


def host_compiler(rig: Rig, engine: Engine) -> str | None:
    """The program for the host's part of CUDA code, where that is not the distribution's own g++ and nobody said so."""
    declared = toolchains.release(rig.gpus.cuda) if rig.gpus else None
    flags = str(engine.options.get("CMAKE_CUDA_FLAGS", ""))
    if declared is None or "CMAKE_CUDA_HOST_COMPILER" in engine.options or "-allow-unsupported-compiler" in flags:
        return None
    beside = toolchains.beside_gcc(rig.host.os, declared)
    return f"/usr/bin/g++-{beside}" if beside else None


def host_compilers(rig: Rig) -> set[str]:
    """The distribution's packages of these programs."""
    compilers = (host_compiler(rig, engine) for engine in built_with_cuda(rig).values())
    return {compiler.rpartition("/")[2] for compiler in compilers if compiler}
