"""A rig's instances as placements, with their projectors and draft models, and the memory that all of them hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType

from llamaherd.engines import SIZED, USUAL, flags_of, reads_gguf
from llamaherd.engines.command_line import CommandLine, IdentityKey, overridden_command_line
from llamaherd.engines.flags.definitions import Catalogue
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.memory.estimate import DraftUse, Memory, Use, add_memory, estimate
from llamaherd.memory.explicit_flags import with_explicit_flags
from llamaherd.memory.fit import Fit, Room, fit_in
from llamaherd.memory.layout import expert_layers_on_cpu, experts_pattern
from llamaherd.memory.overhead import Growth, cuda_on_gpus, in_ram, layouts_of, ram_growth
from llamaherd.memory.placement import CACHE_RAM, CHECKPOINTS, Layout, Placement
from llamaherd.reference.cards import usable_memory


def sidecar_memory(
    instance: Instance, placed: Placement, headers: Mapping[str, Header], projectors: Mapping[str, int]
) -> Memory:
    """What is held for an instance besides its model. `projectors` are bytes by name of model."""
    held = _nothing(placed)
    if size := projectors.get(instance.model, 0):
        doubt = "what the vision projector takes while it reads an image is not counted"
        held = summed_memory(held, _on_first(placed, Use(weights=size), doubt, in_ram=placed.projector_in_ram))
    if instance.draft and instance.draft.model:
        name = instance.draft.model
        held = summed_memory(held, _drafting(name, headers.get(name), placed, head=instance.draft.mtp is not None))
    return held


def drafting_header(instance: Instance, headers: Mapping[str, Header]) -> Header | None:
    """The header of the model that drafts for an instance, as far as it is known."""
    return headers.get(instance.draft.model) if instance.draft and instance.draft.model else None


def summed_memory(one: Memory, other: Memory) -> Memory:
    """What both hold, GPU by GPU."""
    devices = tuple(add_memory(*each) for each in zip(one.devices, other.devices, strict=True))
    return Memory(devices, add_memory(one.host, other.host), (*one.doubts, *other.doubts))


def _nothing(placed: Placement) -> Memory:
    return Memory((Use(),) * placed.devices, Use())


def _on_first(placed: Placement, use: Use, doubt: str, *, in_ram: bool = False) -> Memory:
    """Held by the first GPU, and by the RAM where there is none or it is to be there."""
    if in_ram:
        return replace(_nothing(placed), host=use, doubts=(doubt,))
    devices = tuple(use if device == 0 else Use() for device in range(placed.devices))
    return Memory(devices, Use() if devices else use, (doubt,))


def _drafting(name: str, header: Header | None, placed: Placement, *, head: bool) -> Memory:
    if header is None:
        return replace(_nothing(placed), doubts=(f"what `{name}` takes to draft is not known: it is not in the lock",))
    if head:
        weights = Use(draft=DraftUse(weights=sum(tensor.bytes for tensor in header.each)))
        return _on_first(placed, weights, f"of the prediction head `{name}`, cache and buffers are not counted")
    try:
        memory = estimate(header, draft_placement(placed))
    except ValueError as error:
        return replace(_nothing(placed), doubts=(f"what `{name}` takes to draft is not known: {error}",))
    doubts = tuple(f"`{name}`, which drafts: {doubt}" for doubt in memory.doubts)
    return Memory(tuple(map(_as_draft, memory.devices)), _as_draft(memory.host), doubts)


def draft_placement(placed: Placement) -> Placement:
    """How an engine lays out a model that drafts for the one that is placed so: all of it on the same GPUs.

    llama.cpp gives it a cache of f16 (common/speculative.cpp:2527-2563 of b11434), ik_llama.cpp one of the same types
    and for one slot (examples/server/server-context.cpp:117-139 of 67268c8fd).
    """
    whole = replace(placed, gpu_layers=placed.draft_gpu_layers, overrides=placed.draft_overrides, mtp=0)
    if placed.does.drafts_for_one_slot:
        return replace(whole, context=placed.context // placed.parallel, parallel=1, no_kv_offload=False)
    return replace(whole, type_k=placed.draft_type_k, type_v=placed.draft_type_v)


def _as_draft(use: Use) -> Use:
    """All that a model holds, as what drafting adds."""
    return Use(draft=DraftUse(weights=use.weights, kv=use.kv, state=use.state, compute=use.compute))


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
        return ram_growth(self.header, self.placement, self.drafting)


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
        return ram_growth(self.header, self.placement, self.drafting)

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
    return _held(IdentityKey(instance), header, drafting_header(instance, headers), IdentityKey(placed), size, sizes)


@lru_cache(maxsize=1024)
def _held(
    of: IdentityKey[Instance],
    header: Header,
    drafting: Header | None,
    at: IdentityKey[Placement],
    projector: int,
    multiprocessors: tuple[int, ...],
) -> InstanceMemory:
    instance, placed = of.value, at.value
    drafts = {instance.draft.model: drafting} if drafting and instance.draft and instance.draft.model else {}
    memory = estimate(header, placed)
    extra = sidecar_memory(instance, placed, drafts, {instance.model: projector})
    cuda = tuple(cuda_on_gpus(multiprocessors, header, placed, drafts=instance.draft is not None))
    return InstanceMemory(instance, header, placed, summed_memory(memory, extra), extra, cuda, drafting)


def placement(rig: Rig, instance: Instance, header: Header) -> Placement:
    """How an instance is laid out, with what it is told word for word. Raises ValueError, with a sentence, where its
    experts cannot be told apart, or something else cannot be worked out."""
    engine = rig.engines[instance.engine]
    free = tuple(usable_bytes(rig, gpu) for gpu in instance.on)
    layouts = layouts_of(engine, rig.host.cpu)
    said = IdentityKey(overridden_command_line(rig, instance))
    return _placement(IdentityKey(instance), header, engine.kind, IdentityKey(flags_of(engine)), said, free, layouts)


@lru_cache(maxsize=1024)
def _placement(
    of: IdentityKey[Instance],
    header: Header,
    kind: str,
    flags: IdentityKey[Catalogue | None],
    said: IdentityKey[CommandLine | None],
    free: tuple[int, ...],
    layouts: tuple[Layout, ...],
) -> Placement:
    placed = replace(_by_keys(of.value, header, kind, flags.value, free), layouts=layouts)
    return with_explicit_flags(placed, said.value, header) if said.value else placed


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
    layers = expert_layers_on_cpu(header, str(instance.experts_on_cpu)) if instance.moves_experts else ()
    return experts_pattern(header, layers) if layers else None


def capacity(rig: Rig, gpu: str) -> int | None:
    """Memory of a GPU, in bytes, less what something else holds; None for one that is not declared or not known."""
    known = rig.gpus.cards.get(gpu) if rig.gpus else None
    if known is None or known.memory_bytes is None:
        return None
    return max(known.memory_bytes - (known.reserved or 0), 0)


def usable_bytes(rig: Rig, gpu: str) -> int:
    """What servers can get of a GPU, in bytes; 0 where that is not known."""
    known = rig.gpus.cards.get(gpu) if rig.gpus else None
    return max(usable_memory(known.memory_bytes) - (known.reserved or 0), 0) if known and known.memory_bytes else 0


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
