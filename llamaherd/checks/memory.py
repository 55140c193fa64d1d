"""Instances that need more memory than their GPUs and RAM have, and options whose memory is not counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.engines import SIZED, TRAITS, CommandLine
from llamaherd.engines.flags.effective import Option
from llamaherd.memory.compute import output_bytes
from llamaherd.memory.explicit_flags import UncountedError, uncounted_option
from llamaherd.memory.facts import Sized
from llamaherd.memory.instances import SYSTEM_RAM, usable_bytes
from llamaherd.memory.placement import HOST
from llamaherd.memory.suggestions import growth_that_fits, suggest_changes
from llamaherd.text.numbers import show_mib

SMALLER_BATCHES = (4096, 2048, 1024, 512, 256, 128)
"""Tokens of a batch that are suggested if all outputs of one do not fit into the RAM."""
MOST_WAYS = 4
"""The most suggestions that one finding names."""


TOO_MANY_SLOTS = Rule(
    "LH161",
    "An instance has more slots than llama.cpp starts with.",
    why="It ends with more than 256 (`LLAMA_MAX_SEQ`). Each slot gets its part of the context.",
    example="""
    instances:
      helper: {engine: main, model: small, context: 8192, parallel: 512, port: 8002}
    """,
    fix="write 256 or less; few machines serve more than 16 at once.",
)


def check_slots(subject: RigContext) -> Iterator[Finding]:
    """Report more slots than the engine starts with (LH161)."""
    for name, each in subject.rig.instances.items():
        engine = subject.rig.engines.get(each.engine)
        does = SIZED.get(engine.kind) if engine else None
        most = does.most_slots if does else None
        if engine and most and each.parallel > most:
            place = subject.document.value(("instances", name, "parallel"))
            message = f"{engine.kind} ends with more than {most} slots, and `{name}` would have {each.parallel}"
            yield TOO_MANY_SLOTS.at(place, message, f"write `parallel: {most}` or less")


def check_memory(subject: RigContext) -> Iterator[Finding]:
    """Report GPUs and RAM that are too full, and RAM that will be."""
    instances = subject.facts.sized
    yield from _gpus_full(subject, instances)
    loaded = at_once(subject, instances)
    full = tuple(_ram_full(subject, loaded))
    yield from full or _grows(subject, loaded)


def at_once(subject: RigContext, instances: Mapping[str, Sized]) -> dict[str, Sized]:
    """Return the instances that are in RAM at the same time: of a group the one that holds most, grown."""
    servers = subject.rig.servers.values()
    known = ([instances[name] for name in names if name in instances] for names in servers)
    most = (max(each, key=lambda one: one.ram + (one.growth.total or 0)) for each in known if each)
    return {each.name: each for each in most}


GPU_FULL = Rule(
    "LH150",
    "A GPU is too small for what must run on it.",
    why="""
    Weights, cache, recurrent state, prediction head and compute buffers of its instances are more than the GPU has
    left. The memory of the driver and of other programs (`reserved`) is subtracted, and a reserve. The headers in the
    lock contain the sizes.
    """,
    example="""
    instances:
      coder: {context: 1048576, kv: f16, parallel: 4}
    """,
    fix="""
    make one of the changes in the help line. Each was calculated as well, the cheapest first. [memory.md](../memory.md)
    describes what is counted.
    """,
)


def _gpus_full(subject: RigContext, instances: Mapping[str, Sized]) -> Iterator[Finding]:
    for name, each in instances.items():
        short = [(card, lacking) for card, lacking in each.fit.short if card != HOST]
        if short:
            place = subject.document.value(("instances", name, "on"))
            yield GPU_FULL.at(place, *_full(subject, each, each.instance.on[short[0][0]], short[0][1]))


def _full(subject: RigContext, each: Sized, card: str, lacking: int) -> tuple[str, str]:
    there = show_mib(usable_bytes(subject.rig, card))
    own = subject.rig.server_of(each.name)
    shared = [
        name for name, other in subject.rig.instances.items() if card in other.on and subject.rig.server_of(name) != own
    ]
    beside = f" beside {', '.join(f'`{name}`' for name in shared)}" if shared else ""
    message = f"`{each.name}` needs {show_mib(lacking)} more of GPU `{card}` ({there}){beside} than there is"
    ways = suggest_changes(subject.facts, each)[:MOST_WAYS]
    if not ways:
        return message, "no single change makes it fit: take a smaller quant, or more GPUs"
    return message, f"any one of these makes it fit: {'; '.join(f'`{way}`' for way in ways)}"


RAM_FULL = Rule(
    "LH151",
    "The instances together need more RAM than the host has.",
    why="""
    Everything outside of GPUs counts: models on the CPU, experts on the CPU, buffers. Some is left to the system. More
    than all the RAM cannot fit: an error. Less than 1 GiB for the system may be enough: a warning. A server for
    embeddings takes RAM for all outputs of a batch at its first request.
    """,
    example="""
    host: {ram: 1GB}
    """,
    fix="give the instance that the help line names a smaller context or quant, or leave one out.",
    sometimes=("warning",),
)


def _ram_full(subject: RigContext, instances: Mapping[str, Sized]) -> Iterator[Finding]:
    there = subject.rig.host.ram
    ram = sum(each.ram for each in instances.values())
    lacking = ram - (there - SYSTEM_RAM)
    if lacking > 0 and instances:
        most = max(instances.values(), key=lambda each: each.ram)
        message = f"the instances together need {show_mib(ram)} of RAM, "
        message += f"{show_mib(lacking)} more than the host can give"
        help_ = f"`{most.name}` needs {show_mib(most.ram)} of it: {_less(most, lacking)}, or leave one out"
        place = subject.document.value(("host", "ram"))
        yield RAM_FULL.at(place, message, help_, "error" if ram > there else "warning")


def _less(most: Sized, lacking: int) -> str:
    """Return how to make an instance smaller: for a server of embeddings, a batch with fewer outputs."""
    header, placed = most.header, most.placement
    outputs = output_bytes(header, placed)
    for ubatch in (size for size in SMALLER_BATCHES if size < placed.tokens):
        left = output_bytes(header, replace(placed, ubatch=ubatch))
        if lacking <= outputs - left:
            return f"{show_mib(outputs)} are for the outputs of a full batch. Write `ubatch: {ubatch}`"
    return "make it smaller"


GROWS = Rule(
    "LH240",
    "Servers may grow beyond the RAM of the host while they work.",
    why="""
    llama.cpp and ik_llama.cpp save prompts in RAM: up to 8,192 MiB for each server by default. Where a model has
    windows or recurrent states, they also save up to 32 checkpoints of each slot. All fits when the servers start. Some
    days later the system ends one of them. `--cache-ram -1` saves without a limit.
    """,
    example="""
    host: {ram: 12GB}
    instances:
      coder: {extra_args: --cache-ram 16384}
    """,
    fix="""
    add `--cache-ram` to `extra_args` with the number of the help line, and `--ctx-checkpoints` where that is not
    enough. Fewer saved prompts cost time only: the server reads a prompt again.
    """,
    severity="warning",
)


def _grows(subject: RigContext, instances: Mapping[str, Sized]) -> Iterator[Finding]:
    """Report what servers save while they work: a day later, the system ends one of them."""
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
    help_ = f"add `{limits}` to `extra_args` of {names}, or change their value there"
    yield GROWS.at(subject.document.value(("host", "ram")), message, help_)


SAID_ANYWAY = ("--model-draft", "--hf-repo-draft")
"""Options for which other checks suggest a key."""


UNCOUNTED = Rule(
    "LH243",
    "An argument or a variable affects memory, and its size is unknown.",
    why="""
    Files that only `extra_args` or `environment` name are not in the lock: a vision projector, an adapter, a control
    vector. The figures do not include them. With `-ngl auto`, `--fit`, or a buffer of another host, the engine itself
    decides the placement: there is no figure then, and it is a note.
    """,
    example="""
    instances:
      coder: {extra_args: [--lora, /srv/adapters/code.gguf]}
    """,
    fix="""
    keep as much of the GPUs, or of the RAM without a GPU, free as the file has bytes. A projector that `mmproj` of a
    model names is counted.
    """,
    severity="warning",
    sometimes=("note",),
)


def check_uncounted_memory(subject: RigContext) -> Iterator[Finding]:
    """Report arguments and variables whose memory is not counted, or after which none is (LH243)."""
    for name, facts in subject.facts.instances.items():
        line = facts.explicit
        if line is None or not TRAITS[line.meant.catalogue.kind].reads_gguf:
            continue
        known = {line.meant.catalogue.find(spelling) for spelling in SAID_ANYWAY}
        for option in uncounted_option(line):
            if option.flag not in known:
                message = f"the memory of {option} is not counted: its size is unknown"
                help_ = _instead(option, gpus=subject.rig.gpus is not None)
                yield UNCOUNTED.at(_place(subject, name, line, option), message, help_)
        if facts.header and isinstance(facts.fault, UncountedError):
            message = f"the memory of `{name}` is not calculated: {facts.fault}"
            help_ = f"check {'`nvidia-smi` and ' if subject.rig.gpus else ''}`free -m` once it runs"
            yield UNCOUNTED.at(_place(subject, name, line, facts.fault.option), message, help_, "note")


def _place(subject: RigContext, name: str, line: CommandLine, option: Option) -> Place:
    """Return where an option is written."""
    where, instance = ("instances", name), subject.rig.instances[name]
    if option.origin == "environment":
        return subject.document.key((*where, "environment", option.words[0].partition("=")[0]))
    return subject.document.word((*where, "extra_args"), instance.extra_args, option.index - line.keys)


def _instead(option: Option, *, gpus: bool) -> str:
    spellings = set(option.flag.spellings)
    if "--mmproj" in spellings:
        memory = "the first GPU" if gpus else "the RAM"
        return f"keep as much of {memory} free as its file has bytes; `mmproj` of a model with `hf` is counted"
    if "--rpc" in spellings:
        return "the memory on the other host is not subtracted here: the figures are too large"
    return f"keep as much of the {'GPUs' if gpus else 'RAM'} free as its file has bytes"
