"""What is expected of an instance and can never be missed."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule

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


def expecting(subject: RigContext) -> Iterator[Finding]:
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
