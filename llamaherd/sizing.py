"""A rig's instances as placements, and what its cards and RAM hold with all of them running."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from llamaherd.cards import usable
from llamaherd.command_line import by_hand
from llamaherd.engines import SIZED, USUAL, flags_of, reads_gguf
from llamaherd.fleet import Instance, Rig
from llamaherd.gguf.header import Header
from llamaherd.memory.estimate import estimate
from llamaherd.memory.experts import layers_on_cpu, pattern
from llamaherd.memory.fit import Fit, Room, fit
from llamaherd.memory.growth import Growth, growth
from llamaherd.memory.overhead import in_ram, on_cards
from llamaherd.memory.placement import CACHE_RAM, CHECKPOINTS, Placement
from llamaherd.memory.use import Memory
from llamaherd.placed_by_hand import placed_by_hand
from llamaherd.sidecars import beside, drafting_header, together

MARGIN = 128 << 20
"""Bytes that are left free on each card: no plan was further below what a server took (docs/gpu.md)."""

SYSTEM_RAM = 1 << 30
"""Bytes of RAM that are left to the system and everything else on a host."""


@dataclass(frozen=True)
class Sized:
    """One instance: how it is placed and what that takes. `room` is what the others leave of its cards and the RAM;
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

    @property
    def growth(self) -> Growth:
        """The most that comes to its RAM while it works."""
        return growth(self.header, self.placement, self.drafting)

    @property
    def fit(self) -> Fit:
        """How it goes into what the others leave."""
        return fit(self.header, self.placement, self.room)


def sized(
    rig: Rig, headers: Mapping[str, Header], projectors: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Sized]:
    """Every instance that can be sized: its model's header is known, and so is the memory of its cards.

    `projectors` are bytes of vision projectors by name of model.
    """
    found: dict[str, tuple[Instance, Header, Placement, Memory]] = {}
    extra: dict[str, Memory] = {}
    for name, instance in rig.instances.items():
        header, engine = headers.get(instance.model), rig.engines.get(instance.engine)
        if header is None or not reads_gguf(engine):
            continue
        if any(capacity(rig, card) is None for card in instance.on):
            continue
        try:
            placed = placement(rig, instance, header)
            memory = estimate(header, placed)
            extra[name] = beside(instance, placed, headers, projectors)
            found[name] = (instance, header, placed, together(memory, extra[name]))
        except ValueError:
            continue  # what is wrong with it, a check says
    return {
        name: Sized(
            name,
            *each,
            room=_room(rig, each[:3], extra[name], (other for key, other in found.items() if key != name)),
            drafting=drafting_header(each[0], headers),
        )
        for name, each in found.items()
    }


def placement(rig: Rig, instance: Instance, header: Header) -> Placement:
    """How an instance is laid out, with what it is told word for word. Raises ValueError, with a sentence, where its
    experts cannot be told apart, or something else cannot be worked out."""
    line = by_hand(rig, instance)
    placed = _by_keys(rig, instance, header)
    return placed_by_hand(placed, line, header) if line else placed


def _by_keys(rig: Rig, instance: Instance, header: Header) -> Placement:
    moved = experts_on_cpu(instance, header)
    layers = instance.gpu_layers
    free = tuple(usable_bytes(rig, card) for card in instance.on)
    known = flags_of(rig.engines[instance.engine])
    return Placement(
        engine=kind if (kind := rig.engines[instance.engine].kind) in SIZED else USUAL,
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


def capacity(rig: Rig, card: str) -> int | None:
    """Memory of a card, in bytes, less what something else holds; None for one that is not declared or not known."""
    known = rig.gpus.cards.get(card) if rig.gpus else None
    if known is None or known.memory_bytes is None:
        return None
    return max(known.memory_bytes - (known.reserved or 0), 0)


def usable_bytes(rig: Rig, card: str) -> int:
    """What servers can get of a card, in bytes; 0 where that is not known."""
    known = rig.gpus.cards.get(card) if rig.gpus else None
    return max(usable(known.memory_bytes) - (known.reserved or 0), 0) if known and known.memory_bytes else 0


def cuda_bytes(rig: Rig, instance: Instance, header: Header, placed: Placement) -> tuple[int, ...]:
    """What CUDA takes for an instance on each of its cards, in bytes, besides what the engine allocates."""
    cards = rig.gpus.cards if rig.gpus else {}
    sizes = tuple(cards[name].multiprocessors for name in instance.on)
    return tuple(on_cards(sizes, header, placed, drafts=instance.draft is not None))


def _room(
    rig: Rig,
    own: tuple[Instance, Header, Placement],
    extra: Memory,
    others: Iterable[tuple[Instance, Header, Placement, Memory]],
) -> Room:
    """What is left for an instance's model when all others run and CUDA has its part for each of them.

    `extra` is what stands beside its model.
    """
    instance = own[0]
    left = {
        card: usable_bytes(rig, card) - cuda - use.total
        for card, cuda, use in zip(instance.on, cuda_bytes(rig, *own), extra.devices, strict=True)
    }
    ram = rig.host.ram - SYSTEM_RAM - extra.host.total - in_ram(*own[1:])
    for other, header, placed, memory in others:
        ram -= memory.host.total + in_ram(header, placed)
        for card, use, cuda in zip(other.on, memory.devices, cuda_bytes(rig, other, header, placed), strict=True):
            if card in left:
                left[card] -= use.total + cuda
    return Room(cards=tuple(left.values()), ram=ram, reserve=MARGIN)


def without_ram(each: Sized) -> Sized:
    """The same with as much RAM as it takes: for questions about cards alone."""
    return replace(each, room=replace(each.room, ram=None))
