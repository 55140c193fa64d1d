"""Cache types and split modes that the engine, its build or the number of GPUs does not support."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.checks.sources import ENGINE_OF_IMAGE, untagged
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.engines import TRAITS, is_on, reads_gguf
from llamaherd.engines.flags.cmake import is_pair
from llamaherd.engines.flags.conflicts import NO_ATTENTION
from llamaherd.engines.flags.placement import NO_SPLIT
from llamaherd.inventory.schema import Engine, Instance
from llamaherd.memory.facts import InstanceFacts
from llamaherd.memory.layout import places_of

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
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if engine is None or not reads_gguf(engine):
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


NO_SPLIT_BUFFERS = 9890
"""The first build of llama.cpp whose CUDA devices have none, so that `row` fails: ggml-org/llama.cpp#25884 names it,
#27465 shows CUDA's error, and b10108 has none in ggml-cuda.cu."""


def check_split_modes(subject: RigContext) -> Iterator[Finding]:
    """Report split modes that the engine or the number of GPUs does not support."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if engine is None or not reads_gguf(engine):
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
    for name, instance in rig.instances.items():
        engine = rig.engines.get(instance.engine)
        facts = subject.facts.instances[name]
        if engine is None or not reads_gguf(engine) or len(instance.on) < 2 or _is_cut_by_hand(facts):
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
    split = line.meant.text("--split-mode") if line else instance.split
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
