"""The memory that an instance uses on each GPU and in RAM, estimated by arithmetic."""

from __future__ import annotations

from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Rig
from llamaherd.memory.estimate import Memory, Use
from llamaherd.memory.instances import InstanceMemory, capacity
from llamaherd.memory.overhead import mapped_between, repacked_bytes
from llamaherd.memory.placement import Placement
from llamaherd.plan import RAM, Estimate, Grows, Holds


def estimate_memory(rig: Rig, known: InstanceMemory) -> Estimate:
    """Return the memory of an instance by arithmetic."""
    return Estimate(
        source="arithmetic",
        holds=memory_held(rig, known, known.memory),
        doubts=known.memory.doubts,
        grows=Grows(prompts=known.growth.prompts, checkpoints=known.growth.checkpoints),
        resident=resident_bytes(known.memory.host, known.header, known.placement, locked=known.instance.mlock),
    )


def resident_bytes(use: Use, header: Header, placed: Placement, *, locked: bool) -> int:
    """Return the bytes of RAM that only swap can free: no page of a mapped file, unless the server locks it."""
    layouts = repacked_bytes(header, placed)
    own = use.context + use.compute + use.draft.kv + use.draft.compute + layouts.copies
    if placed.mmap and not locked:
        return own
    return own + use.weights + use.draft.weights - layouts.originals


def memory_held(rig: Rig, known: InstanceMemory, memory: Memory) -> tuple[Holds, ...]:
    """Return what each GPU of an instance and the RAM hold, with CUDA's part; `memory` is by arithmetic or engine."""
    gpus = known.instance.on
    sizes = [capacity(rig, gpu) or 0 for gpu in gpus]
    rooms = [*zip(gpus, sizes, memory.devices, strict=True), (RAM, rig.host.ram, memory.host)]
    cuda = (*known.cuda, known.server_ram + mapped_between(known.header, known.placement))
    return tuple(place_memory(*each, taken) for each, taken in zip(rooms, cuda, strict=True))


def place_memory(where: str, size: int, use: Use, cuda: int) -> Holds:
    """Return what one GPU, or the RAM, holds, with all that the draft adds in one figure."""
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
