"""The memory that an instance uses on each GPU and in RAM, estimated by arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.memory.estimate import Memory, Use
from llamaherd.memory.instances import capacity, cuda_bytes, instance_memory
from llamaherd.memory.overhead import in_ram, mapped_between, repacked_bytes
from llamaherd.memory.placement import Placement
from llamaherd.plan import RAM, Estimate, Grows, Holds


def estimate_memory(
    rig: Rig, declared: Instance, headers: Mapping[str, Header], projectors: Mapping[str, int]
) -> Estimate | None:
    """What the instance takes by arithmetic; None where a GPU's memory is not known, or the model's shape."""
    try:
        known = instance_memory(rig, declared, headers, projectors)
    except ValueError:
        return None
    if known is None:
        return None
    return Estimate(
        source="arithmetic",
        holds=memory_held(rig, declared, known.header, known.placement, known.memory),
        doubts=known.memory.doubts,
        grows=Grows(prompts=known.growth.prompts, checkpoints=known.growth.checkpoints),
        resident=resident_bytes(known.memory.host, known.header, known.placement, locked=declared.mlock),
    )


def resident_bytes(use: Use, header: Header, placed: Placement, *, locked: bool) -> int:
    """Bytes of RAM that nothing can take back but swap: no page of a mapped file, unless the server locks it."""
    layouts = repacked_bytes(header, placed)
    own = use.context + use.compute + use.draft.kv + use.draft.compute + layouts.copies
    if placed.mmap and not locked:
        return own
    return own + use.weights + use.draft.weights - layouts.originals


def memory_held(rig: Rig, declared: Instance, header: Header, placed: Placement, memory: Memory) -> tuple[Holds, ...]:
    """What each of an instance's GPUs and the RAM hold, CUDA's own part included."""
    sizes = [capacity(rig, gpu) or 0 for gpu in declared.on]
    rooms = [*zip(declared.on, sizes, memory.devices, strict=True), (RAM, rig.host.ram, memory.host)]
    own = in_ram(header, placed) + mapped_between(header, placed)
    cuda = (*cuda_bytes(rig, declared, header, placed), own)
    return tuple(place_memory(*each, taken) for each, taken in zip(rooms, cuda, strict=True))


def place_memory(where: str, size: int, use: Use, cuda: int) -> Holds:
    """What one GPU, or the RAM, holds, with all that the draft adds in one figure."""
    return Holds(
        where=where,
        size=size,
        weights=use.weights,
        kv=use.kv,
        state=use.state,
        compute=use.compute,
        draft=use.draft.total,
        cuda=cuda,
    )
