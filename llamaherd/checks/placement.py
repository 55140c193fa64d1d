"""The placement of models: cache types and split modes of the engine, and the memory of GPUs and RAM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from llamaherd.checks.command_line import server_command
from llamaherd.checks.context import RigContext
from llamaherd.checks.sources import ENGINE_OF_IMAGE, untagged
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.engines import SIZED, TRAITS, is_on, reads_gguf
from llamaherd.engines.flags.advice import NO_SPLIT_BUFFERS
from llamaherd.engines.flags.cmake import is_pair
from llamaherd.engines.flags.conflicts import NO_ATTENTION
from llamaherd.engines.flags.effective import Option
from llamaherd.engines.flags.placement import NO_SPLIT
from llamaherd.inventory.schema import Engine, Instance
from llamaherd.memory.compute import output_bytes
from llamaherd.memory.facts import InstanceFacts, Sized
from llamaherd.memory.instances import SYSTEM_RAM, UncountedError, uncounted_option, usable_bytes
from llamaherd.memory.placement import HOST, places_of
from llamaherd.memory.suggestions import growth_that_fits, suggest_changes
from llamaherd.text.numbers import show_mib

FOREIGN_CACHE = Rule(
    "LH055",
    "A cache type is ik_llama.cpp's, and the engine is llama.cpp.",
    example="""
    instances:
      coder: {kv: q6_0}
    """,
    fix="write `q5_1`, which is a little smaller, or `q8_0`.",
)


def check_cache_types(subject: RigContext) -> Iterator[Finding]:
    """Report cache types that the engine lacks, that need flash attention, or whose kernels are not in the build."""
    for name, instance, engine in subject.servers:
        if not reads_gguf(engine):
            continue
        if foreign := sorted({instance.kv.k, instance.kv.v} & TRAITS[engine.kind].cache_types_not):
            message = f"`{foreign[0]}` is a cache type of ik_llama.cpp, which {engine.kind} does not support"
            place = subject.document.value(("instances", name, "kv"))
            yield FOREIGN_CACHE.at(place, message, "write `q5_1` or `q8_0`")
        elif instance.flash_attention == "off":
            yield from _without_flash_attention(subject, name, instance)
        elif ending := _ending_on_cpu(subject, name, TRAITS[engine.kind].cache_types_not_on_cpu):
            yield from _ends_on_cpu(subject, name, min(ending), engine)
        elif instance.on:
            yield from _without_kernel(subject, name, instance, engine)


def _without_flash_attention(subject: RigContext, name: str, instance: Instance) -> Iterator[Finding]:
    """Report a quantised V cache without flash attention.

    K may be quantised without it (b11434, src/llama-context.cpp:3843; ik 67268c8fd, src/llama.cpp:5369).
    """
    if not instance.kv.v.endswith(("f16", "f32")):
        place = subject.document.value(("instances", name, "flash_attention"))
        message = f"a V cache of type `{instance.kv.v}` needs flash attention, which is switched off"
        yield NO_ATTENTION.at(
            place, message, f"leave out `flash_attention: off`, or write `kv: {{k: {instance.kv.k}}}`"
        )


ENDS_ON_CPU = Rule(
    "LH076",
    "ik_llama.cpp has no attention on the CPU for a cache of this type.",
    why="""
    It stops at the first token where a layer's attention is computed on the CPU: without a GPU, with fewer
    `gpu_layers` than the model has, or with its cache in RAM.
    """,
    example="""
    engines:
      main: {kind: ik_llama.cpp, ref: main, flags: 8337e4cd3}
    instances:
      coder: {kv: q5_1, gpu_layers: 0}
    """,
    fix="write `kv: q6_0`, which is a little larger, or `q8_0` or `q4_1`.",
)


def _ending_on_cpu(subject: RigContext, name: str, without: frozenset[str]) -> frozenset[str]:
    """Return the types of an instance's caches that attention on the CPU reads and does not support.

    Explicit options count. If the header is unknown, only a model without a layer on a GPU has too few of them.
    """
    facts = subject.facts.instances[name]
    placed = facts.placement
    if not without or placed is None:
        return frozenset()
    few = placed.gpu_layers is not None and placed.gpu_layers < max(facts.header.layers if facts.header else 0, 1)
    on_cpu = few or placed.no_kv_offload or not placed.devices
    return without & {placed.type_k, placed.type_v} if on_cpu and placed.flash_attention else frozenset()


def _ends_on_cpu(subject: RigContext, name: str, kind: str, engine: Engine) -> Iterator[Finding]:
    place = subject.document.value(("instances", name, "kv"))
    message = f"{engine.kind} has no attention on the CPU for a cache of type `{kind}`, and stops at the first token"
    yield ENDS_ON_CPU.at(place, message, "write `kv: q6_0` or `kv: q8_0`")


NO_KERNEL = Rule(
    "LH056",
    "The build has no flash attention for this pair of K and V types.",
    why="""
    llama.cpp then converts the whole cache at each step, and ik_llama.cpp stops at the first token. llamaherd builds
    all pairs, unless `options` disable them. The official images and releases have the four with equal types.
    llama.cpp's CUDA code has nothing for `iq4_nl`.
    """,
    example="""
    instances:
      coder: {kv: iq4_nl}
    """,
    fix="write `kv: q8_0` or `kv: q4_0`. Or build the engine from a `ref`, with all pairs.",
    severity="warning",
)


def _without_kernel(subject: RigContext, name: str, instance: Instance, engine: Engine) -> Iterator[Finding]:
    place = subject.document.value(("instances", name, "kv"))
    kinds = (instance.kv.k, instance.kv.v)
    if none := next((kind for kind in kinds if kind in TRAITS[engine.kind].cache_types_slow), None):
        message = f"{engine.kind} has no CUDA kernel for a cache of type `{none}`: attention is computed on the CPU"
        yield NO_KERNEL.at(place, message, "write `kv: q4_0`, which is as small")
        return
    compiled = _compiled(engine)
    # A cache of f32 is computed like one of f16.
    pair = "-".join("f16" if kind == "f32" else kind for kind in kinds)
    if compiled is None or pair in compiled:
        return
    if TRAITS[engine.kind].chooses_pairs:
        message = f"the build has no flash attention for K-V types `{pair}`, and would convert all to f16 at each step"
        option = "GGML_CUDA_FA_QUANTS"
        value = f'"{";".join(sorted(compiled | {pair}))}"'
    elif {"bf16", "f32"} & set(kinds):
        return
    else:
        message = f"the build has no flash attention for K-V types `{pair}`, and stops at the first token"
        option, value = "GGML_CUDA_FA_ALL_QUANTS", "true"
    if engine.release:
        how = f"write `ref: {engine.release}` in place of `release`, which builds all pairs on the host"
    elif engine.source:
        how = f"write `options: {{{option}: {value}}}` for engine `{instance.engine}`"
    else:
        how = f"build `{instance.engine}` from a source, which compiles all pairs"
    yield NO_KERNEL.at(place, message, f"{how}, or `kv: q8_0`")


def _compiled(engine: Engine) -> frozenset[str] | None:
    """Return the K-V pairs that have kernels; None for all of them, or if they are unknown."""
    traits = TRAITS[engine.kind]
    if engine.release:
        return traits.pairs
    if engine.source is None:
        official = ENGINE_OF_IMAGE.get(untagged(str(engine.image)))
        return traits.pairs if official == engine.kind else None
    every = engine.options.get("GGML_CUDA_FA_ALL_QUANTS")
    if not traits.chooses_pairs:
        return traits.pairs if every is not None and not is_on(every) else None
    chosen = str(engine.options.get("GGML_CUDA_FA_QUANTS", "all")).strip().lower()
    if chosen == "all" or (every is not None and is_on(every)):
        return None
    # Another finding reports an invalid pair of the option, and it would be bad advice.
    return frozenset(part for part in map(str.strip, re.split("[;,]", chosen)) if is_pair(part)) | {"f16-f16"}


def check_split_modes(subject: RigContext) -> Iterator[Finding]:
    """Report split modes that the engine or the number of GPUs does not support."""
    for name, instance, engine in subject.servers:
        if not reads_gguf(engine):
            continue
        place = subject.document.value(("instances", name, "split"))
        if refused := _refused(instance, engine):
            yield NO_SPLIT.at(place, *refused)
        else:
            yield from _without_effect(subject, name, instance)


CUT_BY_FREE_MEMORY = Rule(
    "LH242",
    "A model is split by the free memory of its GPUs, which other servers share.",
    why="""
    Without `tensor_split`, llama.cpp and ik_llama.cpp give each of several GPUs its part by its free memory when the
    server starts. Other servers on some of these GPUs may run by then or not: layers move, and a GPU can be too full.
    """,
    example="""
    gpus:
      cards:
        second: {model: RTX 3090, uuid: GPU-0b1f2e7a-5c1d-4c0e-9a55-3f1f0a7c2b11}
    instances:
      coder: {on: [big, second], draft: null}
      third: {engine: main, model: 35b, on: [second], gpu_layers: 4, context: 4096, port: 8003}
    """,
    fix="write `tensor_split`, with the parts of the help line.",
    severity="warning",
)


def check_shared_gpus(subject: RigContext) -> Iterator[Finding]:
    """Report models split by free memory on GPUs that other servers share (LH242)."""
    rig, document = subject.rig, subject.document
    for name, instance, engine in subject.servers:
        facts = subject.facts.instances[name]
        if not reads_gguf(engine) or len(instance.on) < 2 or _is_cut_by_hand(facts):
            continue
        others = [
            key
            for key, other in rig.instances.items()
            if rig.server_of(key) != rig.server_of(name) and set(other.on) & set(instance.on)
        ]
        # Equal amounts on each GPU change nothing.
        if not others or all(set(instance.on) <= set(rig.instances[key].on) for key in others):
            continue
        beside = " and ".join(f"`{other}`" for other in others)
        message = f"{engine.kind} splits the model by each GPU's free memory when `{name}` starts, and {beside} "
        message += "may run by then or not"
        parts = ", ".join(_parts(facts))
        help_ = f"write `tensor_split: [{parts}]`, or other parts that leave room for {beside}"
        yield CUT_BY_FREE_MEMORY.at(document.value(("instances", name, "on")), message, help_)


def _is_cut_by_hand(facts: InstanceFacts) -> bool:
    """Return whether the parts of the GPUs are declared, or the model is not cut."""
    instance, line = facts.instance, facts.explicit
    split = line.effective.text("--split-mode") if line else instance.split
    return bool(instance.tensor_split or split == "none" or (line and line.own("--tensor-split")))


def _parts(facts: InstanceFacts) -> list[str]:
    """Return how many layers each GPU is planned to hold; equal parts if the model is unknown."""
    gpus = len(facts.instance.on)
    if facts.header is None or facts.placement is None:
        return ["1"] * gpus
    places = places_of(facts.header, facts.placement)
    return [str(places.count(card)) for card in range(gpus)]


def _refused(instance: Instance, engine: Engine) -> tuple[str, str] | None:
    """Return why the server would not start with this split mode, and the fix."""
    number = engine.source.build_number if engine.source else None
    split, kind = instance.split, engine.kind
    if split is None:
        return None
    if split not in TRAITS[kind].splits:
        return _of_another(split, kind)
    match split:
        case "row" if number is None or number >= NO_SPLIT_BUFFERS:
            message = f"{kind} does not load a model with `split: row` on CUDA: its devices have no split buffers now"
            return message, "write `split: layer`, or `split: tensor`"
        case "graph" if len(instance.on) < 2:
            return f"{kind} does not start with `split: graph` and one GPU", "leave out `split`"
        case "tensor" if instance.flash_attention == "off":
            message = f"{kind} does not start with `split: tensor` and without flash attention"
            return message, "leave out `flash_attention: off`, or write `split: layer`"
    return None


_NEAREST = {"tensor": "graph", "graph": "tensor"}
"""Split modes of two engines that both split every layer."""


def _of_another(split: str, kind: str) -> tuple[str, str]:
    """Return the message and the fix for a split mode of another engine."""
    if split not in _NEAREST:
        own = " or ".join(f"`split: {each}`" for each in _NEAREST if each in TRAITS[kind].splits)
        return f"{kind} has no split mode `{split}`", f"write `split: layer`, or {own}"
    theirs = next(name for name, traits in TRAITS.items() if split in traits.splits)
    message = f"`{split}` is a split mode of {theirs}, not of {kind}"
    return message, f"write `split: {_NEAREST[split]}`, or `split: layer`"


IDLE_SPLIT = Rule(
    "LH053",
    "A setting about sharing a model between GPUs does nothing.",
    why="`split` or `tensor_split` with one GPU, or `split: none` with several, of which only the first is used.",
    example="""
    instances:
      coder: {tensor_split: [1]}
    """,
    fix="leave it out, or name more GPUs in `on`.",
    severity="warning",
)


def _without_effect(subject: RigContext, name: str, instance: Instance) -> Iterator[Finding]:
    where = ("instances", name)
    if instance.split == "none" and len(instance.on) > 1:
        message = f"with `split: none` only the first of the {len(instance.on)} GPUs of instance `{name}` is used"
        help_ = f"write `split: layer`, or `on: [{instance.on[0]}]`"
        yield IDLE_SPLIT.at(subject.document.value((*where, "split")), message, help_)
    if len(instance.on) == 1:
        for key in ("split", "tensor_split"):
            if getattr(instance, key) not in (None, (), "none"):
                message = f"`{key}` does nothing: instance `{name}` is on one GPU"
                yield IDLE_SPLIT.at(
                    subject.document.key((*where, key)),
                    message,
                    f"leave out `{key}`, or name more GPUs in `on`",
                )


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
    for name, each, engine in subject.servers:
        does = SIZED.get(engine.kind)
        most = does.most_slots if does else None
        if most and each.parallel > most:
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
        if line is None or not TRAITS[line.effective.catalogue.kind].reads_gguf:
            continue
        known = {line.effective.catalogue.find(spelling) for spelling in SAID_ANYWAY}
        for option in uncounted_option(line):
            if option.flag not in known:
                message = f"the memory of {option} is not counted: its size is unknown"
                help_ = _instead(option, gpus=subject.rig.gpus is not None)
                yield UNCOUNTED.at(server_command(subject, name, line).place(option), message, help_)
        if facts.header and isinstance(facts.fault, UncountedError):
            message = f"the memory of `{name}` is not calculated: {facts.fault}"
            help_ = f"check {'`nvidia-smi` and ' if subject.rig.gpus else ''}`free -m` once it runs"
            yield UNCOUNTED.at(server_command(subject, name, line).place(facts.fault.option), message, help_, "note")


def _instead(option: Option, *, gpus: bool) -> str:
    spellings = set(option.flag.spellings)
    if "--mmproj" in spellings:
        memory = "the first GPU" if gpus else "the RAM"
        return f"keep as much of {memory} free as its file has bytes; `mmproj` of a model with `hf` is counted"
    if "--rpc" in spellings:
        return "the memory on the other host is not subtracted here: the figures are too large"
    return f"keep as much of the {'GPUs' if gpus else 'RAM'} free as its file has bytes"
