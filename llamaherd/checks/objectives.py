"""Expectations and objectives that cannot be measured: power, energy and quality."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.engines import TRAITS
from llamaherd.inventory.schema import Engine, Instance, Rig
from llamaherd.memory.divergence import CONTEXTS, longest_chunk

NEVER_ABOVE = Rule(
    "LH080",
    "More power is expected than an instance can take.",
    why="""
    `power` of `expect` is the most of all GPUs of an instance while it writes. On no GPU there is none to be
    measured, and GPUs that are held to less never take it: nothing would ever be said.
    """,
    example="""
    instances:
      small: {engine: main, model: small, context: 8192, port: 8003, expect: {power: 65W}}
    """,
    way_out="write what its GPUs take while it writes, or take `power` out of `expect`.",
    severity="warning",
)


def check_expected_power(subject: RigContext) -> Iterator[Finding]:
    """Power that no measurement can find exceeded."""
    for name, instance in subject.rig.instances.items():
        power = instance.expect.power if instance.expect else None
        if power is None:
            continue
        place = subject.document.value(("instances", name, "expect", "power"))
        if not instance.on:
            message = f"instance `{name}` is on no GPU: no power of it can be measured"
            yield NEVER_ABOVE.at(place, message, "take `power` out of `expect`")
            continue
        limits = [card.power_limit for card in subject.cards(instance)]
        known = [limit for limit in limits if limit is not None]
        if len(known) == len(instance.on) and power > sum(known):
            message = f"instance `{name}` never takes {power} W: its GPUs are held to {sum(known)} W together"
            yield NEVER_ABOVE.at(place, message, f"write less than `{sum(known)}W`, or raise `power_limit`")


NO_ENERGY = Rule(
    "LH082",
    "The aim is efficiency where no GPU tells energy.",
    why="""
    `for: efficiency` searches for the least energy that GPUs take for a token. It is read from their own counters, or
    from the power that they tell. An instance on the CPU has no GPU, and some drivers tell neither: then nobody would
    know which candidate is better. `herd tune` looks at the host for that, before it stops anything.
    """,
    example="""
    instances:
      helper: {tune: {for: efficiency}}
    """,
    after="`helper` is on no GPU.",
    way_out="choose another aim, such as `turn`; or name GPUs in `on`.",
)

NO_LIMITS = Rule(
    "LH083",
    "Power limits are to be tried where no GPU takes them.",
    why="""
    `power` of `tune` has a search hold the GPUs of an instance to one limit after the other, in the end. An instance on
    the CPU has none, and Windows alone sets those of its GPUs under WSL. Laptops and some virtual machines have limits
    that cannot be set, and every GPU has a range: `herd tune` asks the host for that before it stops anything.
    """,
    example="""
    instances:
      helper: {tune: {power: {max: 120W}}}
    """,
    after="`helper` is on no GPU.",
    way_out="take `power` out of `tune`, or name limits that its GPUs take.",
)

NO_POWER = "take `power` out of `tune`, or name limits that its GPUs take"
NO_POWER_OPTION = "leave out `--power`, or name limits that its GPUs take"
OTHER_AIM = "choose another aim: `turn`, `decode` or `throughput` need no energy"


def check_energy_objective(subject: RigContext) -> Iterator[Finding]:
    """Instances on no GPU whose aim is efficiency."""
    for name, instance in subject.rig.instances.items():
        if instance.tune and instance.tune.for_ == "efficiency" and not instance.on:
            place = subject.document.value(("instances", name, "tune", "for"))
            yield NO_ENERGY.at(place, f"instance `{name}` is on no GPU, whose energy could be counted", OTHER_AIM)


def check_power_limit_trials(subject: RigContext) -> Iterator[Finding]:
    """Instances whose GPUs are to be held to power limits, and which have none that could be."""
    for name, instance in subject.rig.instances.items():
        if instance.tried_limits and (why := why_unlimited(subject.rig, name)):
            place = subject.document.value(("instances", name, "tune", "power"))
            yield NO_LIMITS.at(place, f"no power limit can be tried: {why}", NO_POWER)


def why_unlimited(rig: Rig, name: str) -> str:
    """Why GPUs of an instance cannot be held to a power limit; empty where the inventory does not tell."""
    if not rig.instances[name].on:
        return f"instance `{name}` is on no GPU"
    return "under WSL, Windows sets power limits" if rig.host.wsl else ""


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


def check_quality(subject: RigContext) -> Iterator[Finding]:
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


def check_gate_quality(subject: RigContext) -> Iterator[Finding]:
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
        elif (most := longest_chunk(instance)) < CONTEXTS[-1]:
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
