"""Quality that is declared where nothing could be judged by it."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import TRAITS
from llamaherd.inventory.schema import Engine, Instance
from llamaherd.memory.reading import CONTEXTS, longest

_COARSEST = ("q4_0", "iq4_nl")
"""Types of a cache than which none that is tried is coarser."""

NOTHING_JUDGED = Rule(
    "LH081",
    "Quality is declared where nothing can be judged by it.",
    why="""
    `quality` of `tune` lets a search try coarser types of the cache, and `kld` of `gate` says how far a change may take
    a server from what it said. Both are judged by a program that is built with the engine and runs as a unit in the
    server's place. An image has no such program, and a server in a container is neither tuned nor gated. A text is read
    in pieces of 512 tokens at least, which a request must have room for. Where K and V have two types, or flash
    attention is off, or the cache is as coarse as it gets, a search tries no other type: that is a warning.
    """,
    example="""
    instances:
      boxed:
        {engine: main, model: small, context: 8192, port: 8003, backend: compose, tune: {quality: {kld: 0.005}}}
    """,
    way_out="take `quality` out of `tune` or `kld` out of `gate`, or serve it as a unit, by an engine that is built.",
    sometimes=("warning",),
)


def judged(subject: RigContext) -> Iterator[Finding]:
    """Quality of an instance whose caches nothing can judge, or of which no other cache is tried."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if instance.quality is None or engine is None:
            continue
        place = subject.document.value(("instances", name, "tune", "quality"))
        if why := _unable(instance, engine):
            message = f"the quality of instance `{name}` cannot be judged: {why}"
            help_ = "take `quality` out of `tune`; only a unit of an engine that is built on the host is judged"
            yield NOTHING_JUDGED.at(place, message, help_)
        elif not instance.tried_models and (idle := _idle(instance)):
            message = f"nothing of instance `{name}` would be judged: {idle}"
            yield NOTHING_JUDGED.at(place, message, "take `quality` out of `tune`", "warning")


def gate_judged(subject: RigContext) -> Iterator[Finding]:
    """A gate's `kld` of a unit that nothing can judge. A container's gate measures nothing at all, which LH330 says."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if engine is None or instance.gate is None or instance.gate.kld is None or instance.backend == "compose":
            continue
        place = subject.document.value(("instances", name, "gate", "kld"))
        message = f"the gate of instance `{name}` cannot judge what it says: "
        if why := _unable(instance, engine):
            help_ = "take `kld` out of `gate`; only a unit of an engine that is built on the host is judged"
            yield NOTHING_JUDGED.at(place, message + why, help_)
        elif (most := longest(instance)) < CONTEXTS[-1]:
            why = f"a request has {most} tokens of context, and the least that is read at once are {CONTEXTS[-1]}"
            yield NOTHING_JUDGED.at(place, message + why, "give each slot more `context`, or take `kld` out of `gate`")


def _unable(instance: Instance, engine: Engine) -> str | None:
    if TRAITS[engine.kind].divergence is None:
        return f"{engine.kind} has no program that compares caches"
    if instance.backend == "compose":
        return "it is a container"
    return "its engine is an image" if engine.source is None else None


def _idle(instance: Instance) -> str | None:
    kv = instance.kv
    if kv.k != kv.v:
        return f"K is {kv.k} and V is {kv.v}, and no other types are tried then"
    if instance.flash_attention == "off":
        return "flash attention is off, which other types need"
    return f"no type that is tried is coarser than {kv.k}" if kv.k in _COARSEST else None
