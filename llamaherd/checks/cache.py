"""Types of the K and the V cache: whether the engine has them, and its build the kernels for the pair."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.checks.images import ENGINE_OF_IMAGE, untagged
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import TRAITS, is_on, reads_gguf
from llamaherd.engines.flags.cmake import is_pair
from llamaherd.engines.flags.together import NO_ATTENTION
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Engine, Instance
from llamaherd.memory.instances import placement

FOREIGN_CACHE = Rule(
    "LH055",
    "A cache type is ik_llama.cpp's, and the engine is llama.cpp.",
    example="""
    instances:
      coder: {kv: q6_0}
    """,
    way_out="write `q5_1`, which is a little smaller, or `q8_0`.",
)


def cache_types(subject: RigContext) -> Iterator[Finding]:
    """Cache types that the engine lacks, that need flash attention, or whose kernels are not in the build."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if engine is None or not reads_gguf(engine):
            continue
        if foreign := sorted({instance.kv.k, instance.kv.v} & TRAITS[engine.kind].cache_types_not):
            message = f"`{foreign[0]}` is a cache type of ik_llama.cpp, which {engine.kind} does not take"
            place = subject.document.value(("instances", name, "kv"))
            yield FOREIGN_CACHE.at(place, message, "write `q5_1` or `q8_0`")
        elif instance.flash_attention == "off":
            yield from _without_flash_attention(subject, name, instance)
        elif ending := _ending_on_cpu(subject, instance, TRAITS[engine.kind].cache_types_not_on_cpu):
            yield from _ends_on_cpu(subject, name, min(ending), engine)
        elif instance.on:
            yield from _without_kernel(subject, name, instance, engine)


def _without_flash_attention(subject: RigContext, name: str, instance: Instance) -> Iterator[Finding]:
    """K may be quantised without it (b11434, src/llama-context.cpp:3843; ik 67268c8fd, src/llama.cpp:5369)."""
    if not instance.kv.v.endswith(("f16", "f32")):
        place = subject.document.value(("instances", name, "flash_attention"))
        message = f"a V cache of type `{instance.kv.v}` needs flash attention, and it is switched off"
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
    way_out="write `kv: q6_0`, which is a little larger, or `q8_0` or `q4_1`.",
)


def _ending_on_cpu(subject: RigContext, instance: Instance, without: frozenset[str]) -> frozenset[str]:
    """Types of the caches that attention on the CPU reads, of those for which there is none.

    What is told word for word counts. Without a header, no layer on a GPU is all that is known to be too few.
    """
    if not without:
        return frozenset()
    header = subject.headers.get(instance.model) or Header(architecture="")
    try:
        placed = placement(subject.rig, instance, header)
    except ValueError:
        return frozenset()  # said by what sizes it
    few = placed.gpu_layers is not None and placed.gpu_layers < max(header.layers, 1)
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
    llama.cpp then converts the whole cache at each step, and ik_llama.cpp stops at the first token. llamaherd
    builds all pairs, unless `options` say otherwise. The official images have the four with equal types.
    llama.cpp's CUDA code has nothing for `iq4_nl`.
    """,
    example="""
    instances:
      coder: {kv: iq4_nl}
    """,
    way_out="write `kv: q8_0` or `kv: q4_0`. Or build the engine from a `ref`, with all pairs.",
    severity="warning",
)


def _without_kernel(subject: RigContext, name: str, instance: Instance, engine: Engine) -> Iterator[Finding]:
    place = subject.document.value(("instances", name, "kv"))
    kinds = (instance.kv.k, instance.kv.v)
    if none := next((kind for kind in kinds if kind in TRAITS[engine.kind].cache_types_slow), None):
        message = f"{engine.kind} has no CUDA kernel for a cache of type `{none}`, so that attention is left to the CPU"
        yield NO_KERNEL.at(place, message, "write `kv: q4_0`, which is as small")
        return
    compiled = _compiled(engine)
    # A cache of f32 is computed as f16 is.
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
    if engine.source:
        how = f"write `options: {{{option}: {value}}}` for engine `{instance.engine}`"
    else:
        how = f"build `{instance.engine}` from a source, which compiles all pairs"
    yield NO_KERNEL.at(place, message, f"{how}, or `kv: q8_0`")


def _compiled(engine: Engine) -> frozenset[str] | None:
    """The K-V pairs that have kernels; None for all of them, or where that is not known."""
    traits = TRAITS[engine.kind]
    if engine.source is None:
        official = ENGINE_OF_IMAGE.get(untagged(str(engine.image)))
        return traits.pairs if official == engine.kind else None
    every = engine.options.get("GGML_CUDA_FA_ALL_QUANTS")
    if not traits.chooses_pairs:
        return traits.pairs if every is not None and not is_on(every) else None
    chosen = str(engine.options.get("GGML_CUDA_FA_QUANTS", "all")).strip().lower()
    if chosen == "all" or (every is not None and is_on(every)):
        return None
    # What is no pair is said of the option itself, and would be no advice.
    return frozenset(part for part in map(str.strip, re.split("[;,]", chosen)) if is_pair(part)) | {"f16-f16"}
