"""Whether cards and RAM hold what the instances want of them. Models that are not locked yet are passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Severity
from llamaherd.engines import SIZED
from llamaherd.memory.instances import SYSTEM_RAM, Sized, sized, usable_bytes, without_ram
from llamaherd.memory.making_room import growth_that_fits, ways_out
from llamaherd.memory.placement import HOST
from llamaherd.text.units import show_mib

MOST_WAYS = 4
"""Ways out that one finding names."""


def slots(subject: RigContext) -> Iterator[Finding]:
    """More slots than the engine starts with (LH161)."""
    for name, each in subject.rig.instances.items():
        engine = subject.rig.engines.get(each.engine)
        does = SIZED.get(engine.kind) if engine else None
        most = does.most_slots if does else None
        if engine and most and each.parallel > most:
            place = subject.document.value(("instances", name, "parallel"))
            message = f"{engine.kind} ends with more than {most} slots, and `{name}` would have {each.parallel}"
            yield Finding("LH161", place, message, f"write `parallel: {most}` or less")


def memory(subject: RigContext) -> Iterator[Finding]:
    """Cards that are too full (LH150), and RAM that is (LH151)."""
    rig, document = subject.rig, subject.document
    instances = sized(rig, subject.headers, subject.projectors)
    for name, each in instances.items():
        short = [(card, lacking) for card, lacking in without_ram(each).fit.short if card != HOST]
        if short:
            card = each.instance.on[short[0][0]]
            yield Finding("LH150", document.value(("instances", name, "on")), *_full(subject, each, card, short[0][1]))
    ram = sum(each.ram for each in instances.values())
    lacking = ram - (rig.host.ram - SYSTEM_RAM)
    severity: Severity = "error" if ram > rig.host.ram else "warning"
    if lacking <= 0:
        yield from _growing(subject, instances)
    elif instances:
        most = max(instances.values(), key=lambda each: each.ram)
        yield Finding(
            "LH151",
            document.value(("host", "ram")),
            f"the instances together want {show_mib(ram)} of RAM, {show_mib(lacking)} more than the host can give",
            f"`{most.name}` wants {show_mib(most.ram)} of it: make it smaller, or leave one out",
            severity,
        )


def _growing(subject: RigContext, instances: Mapping[str, Sized]) -> Iterator[Finding]:
    """What servers save while they work (LH240): a day later, the system ends one of them."""
    there = subject.rig.host.ram
    held = sum(each.ram for each in instances.values())
    more = [each.growth.total for each in instances.values()]
    grown = held + sum(each or 0 for each in more)
    if None not in more and grown <= there:
        return
    what = "without a limit" if None in more else f"to {show_mib(grown)} of RAM, and the host has {show_mib(there)}"
    message = f"servers save prompts and checkpoints while they work: all together may grow {what}"
    limits = growth_that_fits(tuple(instances.values()), there - SYSTEM_RAM - held)
    names = " and ".join(f"`{name}`" for name in limits.names)
    help_ = f"add `{limits}` to `extra_args` of {names}, or change what says so there"
    yield Finding("LH240", subject.document.value(("host", "ram")), message, help_, "warning")


def _full(subject: RigContext, each: Sized, card: str, lacking: int) -> tuple[str, str]:
    there = show_mib(usable_bytes(subject.rig, card))
    shared = [name for name, other in subject.rig.instances.items() if card in other.on and name != each.name]
    beside = f" beside {', '.join(f'`{name}`' for name in shared)}" if shared else ""
    message = f"`{each.name}` wants {show_mib(lacking)} more of card `{card}` ({there}){beside} than there is"
    ways = ways_out(subject.rig, without_ram(each))[:MOST_WAYS]
    if not ways:
        return message, "no single change makes it fit: take a smaller quant, or more cards"
    return message, f"any one of these makes it fit: {'; '.join(f'`{way}`' for way in ways)}"
