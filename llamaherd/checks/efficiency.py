"""A search for less energy or under power limits, where there is no GPU that tells or takes any."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.inventory.schema import Rig

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


def efficiency(subject: RigContext) -> Iterator[Finding]:
    """Instances on no GPU whose aim is efficiency."""
    for name, instance in subject.rig.instances.items():
        if instance.tune and instance.tune.for_ == "efficiency" and not instance.on:
            place = subject.document.value(("instances", name, "tune", "for"))
            yield NO_ENERGY.at(place, f"instance `{name}` is on no GPU, whose energy could be counted", OTHER_AIM)


def tried_limits(subject: RigContext) -> Iterator[Finding]:
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
