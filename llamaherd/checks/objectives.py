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
    `power` of `expect` is the most of all GPUs of an instance while it writes. An instance on no GPU has no power to
    measure, and GPUs limited to less never take it: a finding would never occur.
    """,
    example="""
    instances:
      small: {engine: main, model: small, context: 8192, port: 8003, expect: {power: 65W}}
    """,
    fix="write the power of its GPUs while it writes, or take `power` out of `expect`.",
    severity="warning",
)


def check_expected_power(subject: RigContext) -> Iterator[Finding]:
    """Report expected power that no measurement can exceed."""
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
            message = f"instance `{name}` never takes {power} W: its GPUs are limited to {sum(known)} W together"
            yield NEVER_ABOVE.at(place, message, f"write less than `{sum(known)}W`, or raise `power_limit`")


NO_ENERGY = Rule(
    "LH082",
    "The objective is efficiency, and no GPU reports energy.",
    why="""
    `for: efficiency` searches for the least energy that GPUs take for a token. It is read from their own counters, or
    from the power that they report. An instance on the CPU has no GPU, and some drivers report neither: then no
    candidate can be called better. `herd tune` checks the host for that, before it stops anything.
    """,
    example="""
    instances:
      helper: {tune: {for: efficiency}}
    """,
    after="`helper` is on no GPU.",
    fix="choose another objective, such as `turn`; or name GPUs in `on`.",
)

NO_LIMITS = Rule(
    "LH083",
    "Power limits are to be tried, and no GPU takes them.",
    why="""
    `power` of `tune` makes a search limit the GPUs of an instance to one value after the other, at its end. An instance
    on the CPU has none, and Windows alone sets those of its GPUs under WSL. Laptops and some virtual machines have
    limits that cannot be set, and every GPU has a range: `herd tune` queries the host for that before it stops
    anything.
    """,
    example="""
    instances:
      helper: {tune: {power: {max: 120W}}}
    """,
    after="`helper` is on no GPU.",
    fix="take `power` out of `tune`, or name limits that its GPUs take.",
)

NO_POWER = "take `power` out of `tune`, or name limits that its GPUs take"
NO_POWER_OPTION = "leave out `--power`, or name limits that its GPUs take"
OTHER_AIM = "choose another objective: `turn`, `decode` or `throughput` need no energy"


def check_energy_objective(subject: RigContext) -> Iterator[Finding]:
    """Report instances on no GPU whose objective is efficiency."""
    for name, instance in subject.rig.instances.items():
        if instance.tune and instance.tune.for_ == "efficiency" and not instance.on:
            place = subject.document.value(("instances", name, "tune", "for"))
            yield NO_ENERGY.at(place, f"instance `{name}` is on no GPU, whose energy could be counted", OTHER_AIM)


def check_power_limit_trials(subject: RigContext) -> Iterator[Finding]:
    """Report instances that try power limits and have no GPU to limit."""
    for name, instance in subject.rig.instances.items():
        if instance.tried_limits and (why := why_unlimited(subject.rig, name)):
            place = subject.document.value(("instances", name, "tune", "power"))
            yield NO_LIMITS.at(place, f"no power limit can be tried: {why}", NO_POWER)


def why_unlimited(rig: Rig, name: str) -> str:
    """Return why GPUs of an instance cannot be limited in power; empty if the inventory does not prevent it."""
    if not rig.instances[name].on:
        return f"instance `{name}` is on no GPU"
    return "under WSL, Windows sets power limits" if rig.host.wsl else ""


_COARSEST = ("q4_0", "iq4_nl")
"""Types of a cache that are the coarsest that a search tries."""

NOTHING_JUDGED = Rule(
    "LH081",
    "Quality is declared and cannot be judged.",
    why="""
    `quality` of `tune` lets a search try coarser types of the cache, and `kld` of `gate` limits how far a change may
    alter the outputs of a server. Both are judged by a program that is built with the engine and runs as a unit in the
    server's place. An image has no such program, and a server in a container is neither tuned nor gated. A text is read
    in pieces of 512 tokens at least, which a request must have room for. Where K and V have two types, or flash
    attention is off, or the cache is as coarse as it gets, a search tries no other type: that is a warning.
    """,
    example="""
    instances:
      boxed:
        {engine: main, model: small, context: 8192, port: 8003, backend: compose, tune: {quality: {kld: 0.005}}}
    """,
    fix="take `quality` out of `tune` or `kld` out of `gate`, or serve it as a unit, by an engine that is built.",
    sometimes=("warning",),
)


def check_quality(subject: RigContext) -> Iterator[Finding]:
    """Report instances whose quality cannot be judged, or for which no other cache is tried."""
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
    """Report a gate's `kld` of a unit that cannot be judged.

    A container's gate measures nothing at all, which LH330 reports.
    """
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if engine is None or instance.gate is None or instance.gate.kld is None or instance.backend == "compose":
            continue
        place = subject.document.value(("instances", name, "gate", "kld"))
        message = f"the gate of instance `{name}` cannot judge its outputs: "
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
