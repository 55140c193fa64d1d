"""A rig's instances as placements, and what its GPUs and RAM hold with all of them running."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType

from llamaherd.engines import SIZED, USUAL, flags_of, reads_gguf
from llamaherd.engines.command_line import CommandLine, by_hand
from llamaherd.engines.flags.model import Catalogue
from llamaherd.engines.same import Same
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.memory.estimate import estimate
from llamaherd.memory.experts import layers_on_cpu, pattern
from llamaherd.memory.fit import Fit, Room, fit_in
from llamaherd.memory.growth import Growth, growth
from llamaherd.memory.overhead import cuda_on_gpus, in_ram
from llamaherd.memory.placed_by_hand import placed_by_hand
from llamaherd.memory.placement import CACHE_RAM, CHECKPOINTS, Layout, Placement
from llamaherd.memory.repacked import layouts_of
from llamaherd.memory.sidecars import beside, drafting_header, summed
from llamaherd.memory.use import Memory
from llamaherd.reference.cards import usable

MARGIN = 128 << 20
"""Bytes that are left free on each GPU: no plan was further below what a server took (docs/gpus.md)."""

SYSTEM_RAM = 1 << 30
"""Bytes of RAM that are left to the system and everything else on a host."""


@dataclass(frozen=True)
class InstanceMemory:
    """What one instance holds, whatever runs beside it: all of it, and what of that is beside its model.

    `cuda` are bytes that CUDA takes of each of its GPUs besides what the engine allocates.
    """

    instance: Instance
    header: Header
    placement: Placement
    memory: Memory
    extra: Memory
    cuda: tuple[int, ...]
    drafting: Header | None

    @property
    def ram(self) -> int:
        """Bytes of RAM that it cannot do without."""
        return self.memory.host.total + in_ram(self.header, self.placement)

    @property
    def on_gpus(self) -> dict[str, int]:
        """Bytes of each of its GPUs, with what CUDA takes."""
        parts = zip(self.instance.on, self.memory.devices, self.cuda, strict=True)
        return {gpu: use.total + cuda for gpu, use, cuda in parts}

    @cached_property
    def growth(self) -> Growth:
        """The most that comes to its RAM while it works."""
        return growth(self.header, self.placement, self.drafting)


@dataclass(frozen=True)
class Sized:
    """One instance: how it is placed and what that takes. `room` is what the others leave of its GPUs and the RAM;
    `drafting` is the header of a model that drafts for it."""

    name: str
    instance: Instance
    header: Header
    placement: Placement
    memory: Memory
    room: Room
    drafting: Header | None = None

    @property
    def ram(self) -> int:
        """Bytes of RAM that it cannot do without."""
        return self.memory.host.total + in_ram(self.header, self.placement)

    @cached_property
    def growth(self) -> Growth:
        """The most that comes to its RAM while it works."""
        return growth(self.header, self.placement, self.drafting)

    @cached_property
    def fit(self) -> Fit:
        """How it goes into what the others leave."""
        return fit_in(self.header, self.placement, self.room)


def sized(
    rig: Rig, headers: Mapping[str, Header], projectors: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Sized]:
    """Every instance that can be sized: its model's header is known, and so is the memory of its GPUs.

    `projectors` are bytes of vision projectors by name of model.
    """
    found = {}
    for name, instance in rig.instances.items():
        with suppress(ValueError):  # what is wrong with it, a check says
            if known := instance_memory(rig, instance, headers, projectors):
                found[name] = known
    return {
        name: Sized(
            name,
            each.instance,
            each.header,
            each.placement,
            each.memory,
            _room(rig, each, _others(rig, name, found)),
            each.drafting,
        )
        for name, each in found.items()
    }


def instance_memory(
    rig: Rig, instance: Instance, headers: Mapping[str, Header], projectors: Mapping[str, int]
) -> InstanceMemory | None:
    """What an instance holds, worked out once for all who ask; None where its model's header or the memory of its GPUs
    is not known, or its engine fills them by design.

    Raises ValueError, with a sentence, where it cannot be worked out.
    """
    header = headers.get(instance.model)
    if header is None or not reads_gguf(rig.engines.get(instance.engine)):
        return None
    if any(capacity(rig, gpu) is None for gpu in instance.on):
        return None
    placed = placement(rig, instance, header)
    gpus = rig.gpus.cards if rig.gpus else {}
    sizes = tuple(gpus[name].multiprocessors for name in instance.on)
    size = projectors.get(instance.model, 0)
    return _held(Same(instance), header, drafting_header(instance, headers), Same(placed), size, sizes)


@lru_cache(maxsize=1024)
def _held(
    of: Same[Instance],
    header: Header,
    drafting: Header | None,
    at: Same[Placement],
    projector: int,
    multiprocessors: tuple[int, ...],
) -> InstanceMemory:
    instance, placed = of.value, at.value
    drafts = {instance.draft.model: drafting} if drafting and instance.draft and instance.draft.model else {}
    memory = estimate(header, placed)
    extra = beside(instance, placed, drafts, {instance.model: projector})
    cuda = tuple(cuda_on_gpus(multiprocessors, header, placed, drafts=instance.draft is not None))
    return InstanceMemory(instance, header, placed, summed(memory, extra), extra, cuda, drafting)


def placement(rig: Rig, instance: Instance, header: Header) -> Placement:
    """How an instance is laid out, with what it is told word for word. Raises ValueError, with a sentence, where its
    experts cannot be told apart, or something else cannot be worked out."""
    engine = rig.engines[instance.engine]
    free = tuple(usable_bytes(rig, gpu) for gpu in instance.on)
    layouts = layouts_of(engine, rig.host.cpu)
    said = Same(by_hand(rig, instance))
    return _placement(Same(instance), header, engine.kind, Same(flags_of(engine)), said, free, layouts)


@lru_cache(maxsize=1024)
def _placement(
    of: Same[Instance],
    header: Header,
    kind: str,
    flags: Same[Catalogue | None],
    said: Same[CommandLine | None],
    free: tuple[int, ...],
    layouts: tuple[Layout, ...],
) -> Placement:
    placed = replace(_by_keys(of.value, header, kind, flags.value, free), layouts=layouts)
    return placed_by_hand(placed, said.value, header) if said.value else placed


def _by_keys(
    instance: Instance, header: Header, kind: str, known: Catalogue | None, free: tuple[int, ...]
) -> Placement:
    moved = experts_on_cpu(instance, header)
    layers = instance.gpu_layers
    return Placement(
        engine=kind if kind in SIZED else USUAL,
        context=instance.context,
        parallel=instance.parallel,
        type_k=instance.kv.k,
        type_v=instance.kv.v,
        batch=instance.batch or Placement.batch,
        ubatch=instance.ubatch or Placement.ubatch,
        flash_attention=instance.flash_attention != "off",
        gpu_layers=layers if isinstance(layers, int) else None,
        devices=len(instance.on),
        free=free,
        tensor_split=instance.tensor_split or None,
        split=instance.split or "layer",
        overrides=((moved, "CPU"),) if moved else (),
        mtp=instance.draft.mtp or 0 if instance.draft and not instance.draft.model else 0,
        mmap=instance.mmap is not False,
        cache_ram=CACHE_RAM if known is None or known.knows("--cache-ram") else 0,
        checkpoints=CHECKPOINTS if known is None or known.knows("--ctx-checkpoints") else 0,
    )


def experts_on_cpu(instance: Instance, header: Header) -> str | None:
    """What matches the names of the experts that the CPU computes; None for none, as 1 % of 40 layers are.

    Raises ValueError, with a sentence.
    """
    layers = layers_on_cpu(header, str(instance.experts_on_cpu)) if instance.moves_experts else ()
    return pattern(header, layers) if layers else None


def capacity(rig: Rig, gpu: str) -> int | None:
    """Memory of a GPU, in bytes, less what something else holds; None for one that is not declared or not known."""
    known = rig.gpus.cards.get(gpu) if rig.gpus else None
    if known is None or known.memory_bytes is None:
        return None
    return max(known.memory_bytes - (known.reserved or 0), 0)


def usable_bytes(rig: Rig, gpu: str) -> int:
    """What servers can get of a GPU, in bytes; 0 where that is not known."""
    known = rig.gpus.cards.get(gpu) if rig.gpus else None
    return max(usable(known.memory_bytes) - (known.reserved or 0), 0) if known and known.memory_bytes else 0


def cuda_bytes(rig: Rig, instance: Instance, header: Header, placed: Placement) -> tuple[int, ...]:
    """What CUDA takes for an instance on each of its GPUs, in bytes, besides what the engine allocates."""
    gpus = rig.gpus.cards if rig.gpus else {}
    sizes = tuple(gpus[name].multiprocessors for name in instance.on)
    return tuple(cuda_on_gpus(sizes, header, placed, drafts=instance.draft is not None))


def _others(rig: Rig, name: str, known: Mapping[str, InstanceMemory]) -> Iterator[list[InstanceMemory]]:
    """What runs beside an instance: of each other server those of which one is loaded at a time."""
    own = rig.server_of(name)
    for server, names in rig.servers.items():
        if server != own and (each := [known[name] for name in names if name in known]):
            yield each


def _room(rig: Rig, own: InstanceMemory, others: Iterable[Sequence[InstanceMemory]]) -> Room:
    """What is left for an instance's model when all others run, with what CUDA takes and what is beside its model."""
    left = {
        gpu: usable_bytes(rig, gpu) - cuda - use.total
        for gpu, cuda, use in zip(own.instance.on, own.cuda, own.extra.devices, strict=True)
    }
    ram = rig.host.ram - SYSTEM_RAM - own.extra.host.total - in_ram(own.header, own.placement)
    for swapping in others:
        ram -= max(other.ram for other in swapping)
        held = [other.on_gpus for other in swapping]
        for gpu in left:
            left[gpu] -= max(each.get(gpu, 0) for each in held)
    return Room(cards=tuple(left.values()), ram=ram, reserve=MARGIN)


def without_ram(each: Sized) -> Sized:
    """The same with as much RAM as it takes: for questions about GPUs alone."""
    return replace(each, room=replace(each.room, ram=None))
