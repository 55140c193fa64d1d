"""The processor: threads that there are no cores for, and instances that compute on the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.engines.threads import SMALL, best_threads, shared_threads
from llamaherd.engines.threads import computes_on_cpu as on_cpu
from llamaherd.inventory.schema import Instance

THREADS_PER_CORE = 2
"""Logical processors that a core of an x86 machine has at most."""

_FAR = 10**9


def threads(subject: RigContext) -> Iterator[Finding]:
    """More threads than cores: of one instance, or of all that compute on the CPU together."""
    rig, document = subject.rig, subject.document
    cpu = rig.host.cpu
    best = best_threads(cpu)
    if cpu.performance and cpu.performance > cpu.cores:
        message = f"{cpu.performance} of the cores are said to be performance cores, and there are {cpu.cores} in all"
        help_ = f"write `performance: {cpu.cores}` at most; `cores` counts all physical cores"
        yield Finding("LH063", document.value(("host", "cpu", "performance")), message, help_)
    for name, instance in rig.instances.items():
        if instance.threads and instance.threads > cpu.cores:
            message = (
                f"instance `{name}` would have {instance.threads} threads, and there are {cpu.cores} physical cores"
            )
            help_ = f"write `threads: {best}`: more only wait for each other, and SMT siblings are no cores"
            yield Finding("LH060", document.value(("instances", name, "threads")), message, help_)
        elif instance.threads == cpu.cores > SMALL and not cpu.performance:
            message = f"instance `{name}` has a thread for each of the {cpu.cores} cores, and none is left for the rest"
            help_ = f"write `threads: {best}`, or leave it out: one thread that waits for a processor stops all others"
            yield Finding("LH160", document.value(("instances", name, "threads")), message, help_, "warning")
    counts = shared_threads(rig, subject.headers)
    budgets = {name: counts[name] for name, each in rig.instances.items() if computes_on_cpu(subject, each)}
    if len(budgets) > 1 and sum(budgets.values()) > cpu.cores and all(each <= cpu.cores for each in budgets.values()):
        shown = ", ".join(f"`{name}` ({each})" for name, each in budgets.items())
        message = f"{shown} compute on the CPU with {sum(budgets.values())} threads together on {cpu.cores} cores"
        help_ = (
            f"write `threads: {max(1, cpu.cores // len(budgets))}` for each, or other numbers up to {cpu.cores} in all"
        )
        place = document.value(("instances", list(budgets)[-1], "threads"))
        yield Finding("LH061", place, message, help_, "warning")


def affinity(subject: RigContext) -> Iterator[Finding]:
    """`cpus` that there are not, that are too few, or that two instances share."""
    rig, document = subject.rig, subject.document
    there = rig.host.cpu.cores * THREADS_PER_CORE
    if rig.host.wsl and rig.host.wsl.processors:
        there = min(there, rig.host.wsl.processors)
    sets: dict[str, list[range]] = {}
    for name, instance in rig.instances.items():
        if instance.cpus is None:
            continue
        place = document.value(("instances", name, "cpus"))
        parts = _ranges(instance.cpus)
        if not all(parts):
            message = f"`{instance.cpus}` has a part that runs backwards"
            yield Finding("LH062", place, message, "write the smaller number first, as in `0-5`")
            continue
        if (last := max(part[-1] for part in parts)) >= there:
            message = f"instance `{name}` wants logical processor {last}, and there are at most {there}, from 0"
            help_ = f"write numbers up to {there - 1}; `lscpu --extended` shows them with their cores"
            yield Finding("LH062", place, message, help_)
            continue
        if instance.threads and instance.threads > (many := _count(parts)):
            message = f"instance `{name}` has {instance.threads} threads for {many} logical processors"
            help_ = f"write `threads: {many}` at most, or name more in `cpus`"
            yield Finding("LH062", place, message, help_, "warning")
        if computes_on_cpu(subject, instance):
            sets[name] = parts
    for (one, first), (other, second) in combinations(sets.items(), 2):
        if shared := _shared(first, second):
            message = f"instances `{one}` and `{other}` both compute on logical processor {shared[0]}"
            help_ = "give each its own `cpus`, with both siblings of a core in the same set"
            yield Finding("LH062", document.value(("instances", other, "cpus")), message, help_, "warning")


def computes_on_cpu(subject: RigContext, instance: Instance) -> bool:
    """Whether an instance uses the CPU for more than feeding its cards."""
    return on_cpu(subject.rig, instance, subject.headers.get(instance.model))


def _ranges(cpus: str) -> list[range]:
    """The parts of `0-5,12`; one that runs backwards is empty. Numbers of absurd length count as one too far."""
    parts = []
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        parts.append(range(_number(first), _number(last or first) + 1))
    return parts


def _count(parts: list[range]) -> int:
    """How many numbers the parts hold, which may overlap."""
    total, after = 0, 0
    for part in sorted(parts, key=lambda part: part.start):
        total += max(0, part.stop - max(part.start, after))
        after = max(after, part.stop)
    return total


def _shared(one: list[range], other: list[range]) -> range:
    """The first numbers that are in both."""
    both = [range(max(a.start, b.start), min(a.stop, b.stop)) for a, b in product(one, other)]
    return min((part for part in both if part), key=lambda part: part.start, default=range(0))


def _number(text: str) -> int:
    return int(text) if len(text) < 10 else _FAR
