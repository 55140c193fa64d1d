"""A search for less energy, where nothing tells what energy is taken."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule

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

OTHER_AIM = "choose another aim: `turn`, `decode` or `throughput` need no energy"


def efficiency(subject: RigContext) -> Iterator[Finding]:
    """Instances on no GPU whose aim is efficiency."""
    for name, instance in subject.rig.instances.items():
        if instance.tune and instance.tune.for_ == "efficiency" and not instance.on:
            place = subject.document.value(("instances", name, "tune", "for"))
            yield NO_ENERGY.at(place, f"instance `{name}` is on no GPU, whose energy could be counted", OTHER_AIM)
