"""The hardware of a rig: impossible amounts, threads for the processor, and GPUs: identity, power, clocks and fans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, product

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.engines.flags.conflicts import TOO_MANY_THREADS
from llamaherd.inventory.schema import Card
from llamaherd.memory.facts import SMALL, THREAD_FOR_EACH, best_threads
from llamaherd.reference.cards import BOARD_WATTS, CARDS, OTHER_SIZES, pci_address
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


LEAST_WATTS = 100
"""Below this no large GPU does work worth its idle power: six 3090s fell from 62.6 t/s at 150 W to 12.1 at 100 W
(llmgarage.ai, February 2026). For a smaller GPU it is half of its board power; for one that is not in the table,
nothing.
"""

MOST_PART = 1.5
"""Of the board power of NVIDIA's own design: no partner's GPU exceeds it. The greediest 3090 takes 1.4 times."""

COLLAPSES_BELOW = {"RTX 3090": 200}
"""Measured, in watts: at 200 W it decodes 6 % slower and reads prompts 40 % slower than at 350 W, and below that it
collapses (llmgarage.ai, February 2026; jeanfbrito.github.io)."""

SAME_SIZE = 0.1
"""By how much a size may differ from the table's: 24GB is 7 % less than the 24576 MiB that such a GPU has."""

LEAST_FANS = 40
"""Percent, below which a fixed speed leaves a busy GPU to get hot and slow down: it does not rise under load."""


def _declared(subject: RigContext) -> Mapping[str, Card]:
    return subject.rig.gpus.cards if subject.rig.gpus else {}


SAME_GPU = Rule(
    "LH049",
    "GPUs cannot be identified or counted.",
    why="""
    Two have the same `uuid`, `pci` or `index`. Or an instance uses a GPU that is given by its `pci` address, and
    another GPU has none: CUDA takes no addresses, so all of them are needed to count a GPU's number. Or one of several
    GPUs has a `power_limit`, `clocks` or `fans` and none of the three. An `index` beyond the declared number of GPUs is
    a warning.
    """,
    example="""
    gpus:
      cards:
        twin: {model: RTX 3090, uuid: GPU-5c1d2e7a-0b1f-4c0e-9a55-3f1f0a7c2b10}
    """,
    fix="give each GPU its own. `nvidia-smi --query-gpu=index,pci.bus_id,uuid,name --format=csv` shows them all.",
    sometimes=("warning",),
)


def check_gpu_identities(subject: RigContext) -> Iterator[Finding]:
    """Report two GPUs with one identity, and GPUs that cannot be identified or numbered."""
    for find in (_twice, _beyond, _not_numbered, _unidentified):
        yield from find(subject)


def _twice(subject: RigContext) -> Iterator[Finding]:
    taken: dict[tuple[str, object], str] = {}
    for name, card in _declared(subject).items():
        for key, value in _identity(card):
            if other := taken.get((key, value)):
                message = f"GPUs `{other}` and `{name}` have the same `{key}`, so that they would be one"
                help_ = "give each its own: `nvidia-smi --query-gpu=index,pci.bus_id,uuid,name --format=csv` shows them"
                yield SAME_GPU.at(subject.document.value(("gpus", "cards", name, key)), message, help_)
            taken.setdefault((key, value), name)


def _beyond(subject: RigContext) -> Iterator[Finding]:
    """Report a number that needs more GPUs than the rig declares."""
    cards = _declared(subject)
    for name, card in cards.items():
        if card.index is not None and card.index >= len(cards):
            message = f"GPU `{name}` is the one with number {card.index}, and the rig declares {len(cards)} of them"
            help_ = f"numbers begin with 0; write one up to {len(cards) - 1}, or declare the other GPUs as well"
            yield SAME_GPU.at(subject.document.value(("gpus", "cards", name, "index")), message, help_, "warning")


def _not_numbered(subject: RigContext) -> Iterator[Finding]:
    """Report GPUs without addresses.

    CUDA takes no PCI address, so a GPU's number is counted, which needs all addresses.
    """
    cards = _declared(subject)
    without = [name for name, card in cards.items() if card.pci is None]
    used = {name for instance in subject.rig.instances.values() for name in instance.on}
    counted = [name for name, card in cards.items() if card.pci is not None and name in used]
    if without and counted:
        message = f"GPU `{counted[0]}` is given by its PCI address and `{without[0]}` is not, so that it has no number"
        help_ = "give all GPUs of the rig by `pci`, or each by its `uuid`, which `nvidia-smi -L` shows"
        yield SAME_GPU.at(subject.document.value(("gpus", "cards", counted[0], "pci")), message, help_)


def _unidentified(subject: RigContext) -> Iterator[Finding]:
    """Report limits for a GPU that cannot be identified."""
    cards = _declared(subject)
    for name, card in cards.items():
        if (card.power_limit or card.clocks or card.fans) and len(cards) > 1 and not list(_identity(card)):
            own = "limits" if card.power_limit or card.clocks else "a fan speed"
            message = f"GPU `{name}` has {own} of its own, and cannot be identified among the other GPUs"
            help_ = "add its `uuid`, which `nvidia-smi -L` shows"
            yield SAME_GPU.at(subject.document.key(("gpus", "cards", name)), message, help_)


def _identity(card: Card) -> Iterator[tuple[str, object]]:
    if card.uuid is not None:
        yield "uuid", card.uuid.lower()
    if card.pci is not None:
        yield "pci", pci_address(card.pci)
    if card.index is not None:
        yield "index", card.index


OTHER_MEMORY = Rule(
    "LH274",
    "A GPU is declared with memory that no GPU of its name has.",
    why="""
    llamaherd plans with the value of `memory`. With too much, the server does not start. With too little, layers go to
    the CPU that had room. The sizes are NVIDIA's own and those of GPUs that are sold with more soldered on. 10 % more
    or less are accepted, as `24GB` is 22,888 MiB.
    """,
    example="""
    gpus:
      cards:
        big: {model: RTX 3090, memory: 48GB}
    """,
    fix="""
    leave `memory` out, unless `nvidia-smi` shows that much. `reserved` is the memory that a desktop or another program
    holds of the GPU.
    """,
    severity="warning",
)


def check_gpu_memory(subject: RigContext) -> Iterator[Finding]:
    """Report memory that no GPU of the declared name has."""
    for name, card in _declared(subject).items():
        known = CARDS.get(card.model)
        if known is None or card.memory is None:
            continue
        made = [size << 20 for size in (known.memory_mib, *OTHER_SIZES.get(card.model, ()))]
        if not any(abs(card.memory - size) <= SAME_SIZE * size for size in made):
            shown = " or ".join(map(show_mib, made))
            message = f"GPU `{name}` is declared with {show_mib(card.memory)}, and an {card.model} has {shown}"
            help_ = "leave `memory` out, unless `nvidia-smi` shows that much; `reserved` is for other programs"
            place = subject.document.value(("gpus", "cards", name, "memory"))
            yield OTHER_MEMORY.at(place, message, help_)


CROSSED_CLOCKS = Rule(
    "LH051",
    "A GPU's lowest clock is above its highest.",
    example="""
    gpus:
      cards:
        big: {clocks: {min: 2400MHz, max: 1800MHz}}
    """,
    fix="swap them, or leave `min` out.",
)


def check_gpu_clocks(subject: RigContext) -> Iterator[Finding]:
    """Report a lowest clock above the highest."""
    for name, card in _declared(subject).items():
        if card.clocks and card.clocks.min > card.clocks.max:
            message = f"GPU `{name}` has a lowest clock of {card.clocks.min} MHz and a highest of {card.clocks.max}"
            help_ = f"write `clocks: {{min: {card.clocks.max}, max: {card.clocks.min}}}`, or leave `min` out"
            if "min" not in card.clocks.model_fields_set:
                help_ = "write a highest above that, as in `clocks: {max: 1800MHz}`"
            yield CROSSED_CLOCKS.at(subject.document.value(("gpus", "cards", name, "clocks")), message, help_)


INSIDE_WSL = Rule(
    "LH048",
    "A driver, a power limit, clocks or fans are declared inside WSL.",
    why="""
    There the GPU belongs to Windows. A Linux driver would conflict with the one that WSL shares: an error. Limits and
    fans cannot be set from inside: a warning.
    """,
    example="""
    host:
      wsl: {memory: 64GB}
    gpus:
      driver: {branch: 580}
    """,
    fix="""
    leave `driver` out, and install NVIDIA's driver for Windows there. For limits and clocks, `herd up` writes
    `gpu-power.ps1` into the Windows user's folder: an administrator runs it once ([WSL](../wsl.md)). By hand it
    is `nvidia-smi.exe -pl 450`. NVIDIA's command line sets no fans in Windows: leave `fans` out, and use the tool
    of the GPU's maker or the NVIDIA app.
    """,
    sometimes=("warning",),
)


def check_gpus_under_wsl(subject: RigContext) -> Iterator[Finding]:
    """Report limits, clocks and fan speeds that Linux cannot set under WSL."""
    for name, card in _declared(subject).items() if subject.rig.host.wsl is not None else ():
        yield from _under_wsl(subject, name, card)


def _under_wsl(subject: RigContext, name: str, card: Card) -> Iterator[Finding]:
    for key, given, command in (
        ("power_limit", card.power_limit, f"-pl {card.power_limit}"),
        ("clocks", card.clocks, f"-lgc {card.clocks.min},{card.clocks.max}" if card.clocks else ""),
    ):
        if given is not None:
            message = f"`{key}` of GPU `{name}` cannot be set inside WSL: the GPU belongs to Windows"
            help_ = f"run gpu-power.ps1, which `herd up` writes for Windows: it does `nvidia-smi.exe {command}` there"
            yield INSIDE_WSL.at(subject.document.key(("gpus", "cards", name, key)), message, help_, "warning")
    if card.fans is not None:
        message = f"`fans` of GPU `{name}` cannot be set inside WSL, nor by the script of `herd up` for Windows"
        help_ = "take it out, and set the fans in Windows with the tool of the GPU's maker or the NVIDIA app"
        yield INSIDE_WSL.at(subject.document.key(("gpus", "cards", name, "fans")), message, help_, "warning")


UNWISE_LIMIT = Rule(
    "LH050",
    "A power limit or a fan speed is unwise.",
    why="""
    The limit is more than one and a half times the GPU's board power, or so little that the GPU collapses rather than
    saves. By published measurements, a 3090 at 200 W decodes 6 % slower than at 350 W, and collapses below that. For a
    laptop's GPU it is a note: many refuse a limit.

    A fixed fan speed below 40 % stays there under load: the GPU gets hot and slows down. Fans of a laptop belong to its
    firmware.
    """,
    example="""
    gpus:
      cards:
        big: {power_limit: 120W}
    """,
    fix="""
    write the figure of the help line. For a laptop's GPU declare `clocks` as well as the limit. Without `fans`, a GPU
    controls them itself.
    """,
    severity="warning",
    sometimes=("note",),
)


def check_power_and_fans(subject: RigContext) -> Iterator[Finding]:
    """Report limits and fan speeds that a GPU refuses, or that do more harm than good."""
    for name, card in _declared(subject).items() if subject.rig.host.wsl is None else ():
        if card.power_limit is not None:
            place = subject.document.value(("gpus", "cards", name, "power_limit"))
            for message, help_ in _unwise_limit(name, card, card.power_limit):
                yield UNWISE_LIMIT.at(place, message, help_, "note" if _laptop(card) else "warning")
        if card.fans is not None:
            place = subject.document.value(("gpus", "cards", name, "fans"))
            for message, help_ in _unwise_fans(name, card, card.fans):
                yield UNWISE_LIMIT.at(place, message, help_)


def _unwise_limit(name: str, card: Card, limit: int) -> Iterator[tuple[str, str]]:
    """Yield each problem of a power limit in watts, with its fix."""
    board = BOARD_WATTS.get(card.model)
    least = COLLAPSES_BELOW.get(card.model, min(LEAST_WATTS, board // 2) if board else 0)
    if _laptop(card):
        if card.clocks is None:
            message = f"GPU `{name}` is a laptop's, and many of those refuse a power limit"
            yield message, "add `clocks: {max: 1800MHz}`, for example: they apply if the GPU refuses the limit"
    elif board and limit > MOST_PART * board:
        message = f"{limit} W is more than GPU `{name}` can take: {card.model} is made for {board} W"
        yield message, "`nvidia-smi -q -d POWER` shows the least and the most that yours takes"
    elif limit < least:
        message = f"{limit} W is so little that GPU `{name}` ({card.model}) collapses rather than saves"
        yield message, f"write `power_limit: {least}W` or more"


def _unwise_fans(name: str, card: Card, percent: int) -> Iterator[tuple[str, str]]:
    """Yield each problem of a fixed fan speed, with its fix."""
    if _laptop(card):
        yield f"GPU `{name}` is a laptop's, whose fans belong to the firmware", "take `fans` out"
    elif percent < LEAST_FANS:
        message = f"fans of GPU `{name}` at {percent} % stay so under load, and a GPU that gets hot slows down"
        yield message, f"write `fans: {LEAST_FANS}%` or more, or take `fans` out: the GPU then controls them itself"


def _laptop(card: Card) -> bool:
    known = CARDS.get(card.model)
    return known.laptop if known else "laptop" in card.model.lower()
