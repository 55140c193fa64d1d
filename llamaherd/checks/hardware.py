"""RAM, clocks and processor cores: impossible amounts, and threads that do not fit the cores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.engines.flags.conflicts import TOO_MANY_THREADS
from llamaherd.engines.threads import SMALL, THREAD_FOR_EACH, best_threads
from llamaherd.text.numbers import show_mib

LEAST_RAM, MOST_RAM = 1 << 30, 16 << 40
"""Bytes: the least that a system needs, and the most that a board in a home takes."""
MOST_CLOCK = 4000
"""MHz, above any GPU's (NVIDIA's specifications: 3,105 on an RTX 5090 at most)."""


IMPOSSIBLE = Rule(
    "LH284",
    "No such machine has this amount.",
    why="""
    It is less than 1 GiB of RAM, or more than 16 TiB, or a clock above 4,000 MHz. Or more of a GPU is reserved than it
    has: this leaves servers nothing, and is an error. Mostly a unit is wrong.
    """,
    example="""
    gpus:
      cards:
        big: {clocks: {max: 18000MHz}}
    """,
    fix="write the amount with its unit.",
    sometimes=("warning",),
)


def check_amounts(subject: RigContext) -> Iterator[Finding]:
    """Report impossible amounts of RAM, clocks and reserved memory."""
    ram = subject.rig.host.ram
    if not LEAST_RAM <= ram <= MOST_RAM:
        place = subject.document.value(("host", "ram"))
        message = f"{show_mib(ram)} of RAM are {'less than a system needs' if ram < LEAST_RAM else 'no home has'}"
        yield IMPOSSIBLE.at(place, message, "write what `free -g` shows, as in `ram: 64GB`", "warning")
    for name, card in (subject.rig.gpus.cards if subject.rig.gpus else {}).items():
        where = ("gpus", "cards", name)
        if card.reserved and card.memory_bytes and card.reserved >= card.memory_bytes:
            message = f"of GPU `{name}`, {show_mib(card.reserved)} are reserved of {show_mib(card.memory_bytes)}"
            help_ = "write the memory that other programs hold of it, as `nvidia-smi` shows without servers"
            yield IMPOSSIBLE.at(subject.document.value((*where, "reserved")), message, help_)
        if card.clocks and card.clocks.max > MOST_CLOCK:
            message = f"GPU `{name}` does not run at {card.clocks.max} MHz"
            help_ = "write a clock that it has, as in `clocks: {max: 1800MHz}`"
            yield IMPOSSIBLE.at(subject.document.value((*where, "clocks", "max")), message, help_, "warning")


THREADS_PER_CORE = 2
"""Logical processors that a core of an x86 machine has at most."""

_FAR = 10**9


PERFORMANCE_CORES = Rule(
    "LH063",
    "There are more performance cores than cores.",
    example="""
    host:
      cpu: {cores: 8, performance: 16}
    """,
    fix="""
    correct one of the two: `cores` counts all physical cores, `performance` those of the fast kind among them.
    """,
)


def check_performance_cores(subject: RigContext) -> Iterator[Finding]:
    """Report more performance cores than cores in all."""
    cpu = subject.rig.host.cpu
    if cpu.performance and cpu.performance > cpu.cores:
        message = f"{cpu.performance} performance cores are declared, and there are {cpu.cores} cores in all"
        help_ = f"write `performance: {cpu.cores}` at most; `cores` counts all physical cores"
        yield PERFORMANCE_CORES.at(subject.document.value(("host", "cpu", "performance")), message, help_)


def check_threads(subject: RigContext) -> Iterator[Finding]:
    """Report instances with more threads than cores, or as many."""
    cpu = subject.rig.host.cpu
    best = best_threads(cpu)
    for name, instance in subject.rig.instances.items():
        place = subject.document.value(("instances", name, "threads"))
        if instance.threads and instance.threads > cpu.cores:
            message = (
                f"instance `{name}` would have {instance.threads} threads, and there are {cpu.cores} physical cores"
            )
            help_ = f"write `threads: {best}`: more only wait for each other, and SMT siblings are no cores"
            yield TOO_MANY_THREADS.at(place, message, help_)
        elif instance.threads == cpu.cores > SMALL and not cpu.performance:
            message = f"instance `{name}` has a thread for each of the {cpu.cores} cores, and none is left for the rest"
            help_ = f"write `threads: {best}`, or leave it out: one thread that waits for a processor stops all others"
            yield THREAD_FOR_EACH.at(place, message, help_)


SHARED_CORES = Rule(
    "LH061",
    "Instances that compute on the CPU have more threads together than there are cores.",
    why="""
    One of them alone is fast. When two work, both all but stop. Two servers with 48 threads each on 64 cores wrote half
    a token a second; with 32 each, 49. Instances that do not declare `threads` share the remaining cores.
    """,
    example="""
    instances:
      second: {engine: main, model: small, context: 8192, threads: 10, port: 8003}
    """,
    fix="share the cores out by `threads`. Add `cpus` where instances must not disturb each other.",
    severity="warning",
)


def check_shared_cores(subject: RigContext) -> Iterator[Finding]:
    """Report more threads than cores in all instances that compute on the CPU."""
    rig, cores = subject.rig, subject.rig.host.cpu.cores
    budgets = {name: each.threads for name, each in subject.facts.instances.items() if each.on_cpu}
    most: dict[str, str] = {}  # a group runs one instance: the one with most threads stands for it
    for name in sorted(budgets, key=budgets.__getitem__, reverse=True):
        most.setdefault(rig.server_of(name), name)
    budgets = {name: each for name, each in budgets.items() if name in most.values()}
    if len(budgets) > 1 and sum(budgets.values()) > cores and all(each <= cores for each in budgets.values()):
        shown = ", ".join(f"`{name}` ({each})" for name, each in budgets.items())
        message = f"{shown} compute on the CPU with {sum(budgets.values())} threads together on {cores} cores"
        help_ = f"write `threads: {max(1, cores // len(budgets))}` for each, or other numbers up to {cores} in all"
        place = subject.document.value(("instances", list(budgets)[-1], "threads"))
        yield SHARED_CORES.at(place, message, help_)


WRONG_CPUS = Rule(
    "LH062",
    "An instance's `cpus` do not fit the host or each other.",
    why="""
    They do not exist or run backwards: errors. They are fewer than its threads, or another instance has them too:
    warnings.
    """,
    example="""
    instances:
      helper: {cpus: 20-40}
    """,
    fix="`lscpu --extended` shows logical processors and their cores. Give each instance its own.",
    sometimes=("warning",),
)


def check_affinity(subject: RigContext) -> Iterator[Finding]:
    """Report `cpus` that do not exist, that are too few, or that two instances share."""
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
            yield WRONG_CPUS.at(place, message, "write the smaller number first, as in `0-5`")
            continue
        if (last := max(part[-1] for part in parts)) >= there:
            message = f"instance `{name}` uses logical processor {last}, and there are at most {there}, from 0"
            help_ = f"write numbers up to {there - 1}; `lscpu --extended` shows them with their cores"
            yield WRONG_CPUS.at(place, message, help_)
            continue
        if instance.threads and instance.threads > (many := _count(parts)):
            message = f"instance `{name}` has {instance.threads} threads for {many} logical processors"
            help_ = f"write `threads: {many}` at most, or name more in `cpus`"
            yield WRONG_CPUS.at(place, message, help_, "warning")
        if subject.facts.instances[name].on_cpu:
            sets[name] = parts
    for (one, first), (other, second) in combinations(sets.items(), 2):
        if rig.server_of(one) != rig.server_of(other) and (shared := _shared(first, second)):
            message = f"instances `{one}` and `{other}` both compute on logical processor {shared[0]}"
            help_ = "give each its own `cpus`, with both siblings of a core in the same set"
            yield WRONG_CPUS.at(document.value(("instances", other, "cpus")), message, help_, "warning")


def _ranges(cpus: str) -> list[range]:
    """Return the parts of `0-5,12`; one that runs backwards is empty. Numbers of absurd length count as one too far."""
    parts = []
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        parts.append(range(_number(first), _number(last or first) + 1))
    return parts


def _count(parts: list[range]) -> int:
    """Count the numbers in the parts, which may overlap."""
    total, after = 0, 0
    for part in sorted(parts, key=lambda part: part.start):
        total += max(0, part.stop - max(part.start, after))
        after = max(after, part.stop)
    return total


def _shared(one: list[range], other: list[range]) -> range:
    """Return the first numbers that are in both."""
    both = [range(max(a.start, b.start), min(a.stop, b.stop)) for a, b in product(one, other)]
    return min((part for part in both if part), key=lambda part: part.start, default=range(0))


def _number(text: str) -> int:
    return int(text) if len(text) < 10 else _FAR
