"""Where a new instance fits next to the declared ones, and with how much context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import CacheTypes, Instance
from llamaherd.memory.facts import RigFacts, Sized
from llamaherd.memory.fit import USUAL_CONTEXT
from llamaherd.memory.instances import usable_bytes
from llamaherd.memory.placement import HOST

CONTEXTS = (131072, 98304, 65536, 49152, 32768, 24576, 16384, 12288, 8192, 6144, 4096)
"""The contexts that are proposed for one slot, the largest first."""

ENOUGH = 16384
"""A placement with this context is taken before a slower placement with more."""

SMALL_CACHE = "q8_0"
"""The type of the cache where f16 leaves too little context."""


@dataclass(frozen=True)
class Layout:
    """A placement to try: the keys of the instance, as YAML has them, and the placement in words."""

    keys: Mapping[str, Any]
    how: str

    def applied(self, instance: Instance, context: int) -> Instance:
        """Return an instance with these keys and a context."""
        keys = {**self.keys, "on": tuple(self.keys["on"]), "context": context}
        if kind := self.keys.get("kv"):
            keys["kv"] = CacheTypes(k=kind, v=kind)
        return instance.model_copy(update=keys)


@dataclass(frozen=True)
class PlacementProposal:
    """A placement that fits: its layout, its context, and the memory of the instance."""

    layout: Layout
    context: int
    sized: Sized

    @property
    def keys(self) -> dict[str, Any]:
        """Return the keys that place the instance, as YAML has them."""
        placed = {key: value for key, value in self.layout.keys.items() if key != "on" or value}
        return {**placed, "context": self.context}


def propose_placement(
    facts: RigFacts, name: str, *, context: int | None = None, on: tuple[str, ...] | None = None
) -> PlacementProposal | None:
    """Return the fastest placement of an instance that fits next to the others; None if none fits.

    The rig declares the instance with any placement. `context` and `on` are given, or None to be found; an empty `on`
    is the CPU, which is proposed by itself only for a rig without GPUs.
    """
    declared = facts.instances[name]
    if declared.header is None:
        return None
    search = _PlacementSearch(facts, name, declared.instance, declared.header, context, on)
    enough = min(context or ENOUGH * declared.instance.parallel, search.contexts[0])
    best: PlacementProposal | None = None
    for layout in search.layouts():
        found = search.largest(layout)
        if found and found.context >= enough:
            return found
        if found and (best is None or found.context > best.context):
            best = found
    return best


def largest_context(facts: RigFacts, name: str) -> int | None:
    """Return the largest context with which an instance fits as it is declared; None if none does, or is known to."""
    declared = facts.instances[name]
    if declared.header is None:
        return None
    search = _PlacementSearch(facts, name, declared.instance, declared.header, None, None)
    found = search.largest(Layout({"on": [*declared.instance.on]}, ""))
    return found.context if found else None


@dataclass(frozen=True)
class _PlacementSearch:
    """The search for one instance. `context` and `on` limit it, if they are given."""

    facts: RigFacts
    name: str
    instance: Instance
    header: Header
    context: int | None
    on: tuple[str, ...] | None

    @property
    def contexts(self) -> tuple[int, ...]:
        """The contexts to try, the largest first: no slot gets more than the model was trained for."""
        if self.context:
            return (self.context,)
        trained = self.header.number("context_length") or USUAL_CONTEXT
        sizes = sorted({size for size in (*CONTEXTS, trained) if size <= min(trained, CONTEXTS[0])}, reverse=True)
        return tuple(size * self.instance.parallel for size in sizes)

    def largest(self, layout: Layout) -> PlacementProposal | None:
        """Return a layout with the largest context that fits; None if none does."""
        for context in self.contexts:
            sized = self.facts.sized_as(self.name, layout.applied(self.instance, context))
            if sized and sized.fit.fits:
                return PlacementProposal(layout, context, sized)
        return None

    def layouts(self) -> Iterator[Layout]:
        """Yield the placements to try, the fastest first."""
        sets = self._sets_of_gpus()
        for gpus in sets:
            yield Layout({"on": [*gpus]}, _on(gpus))
            if not self.instance.kv.quantised:
                yield Layout({"on": [*gpus], "kv": SMALL_CACHE}, f"{_on(gpus)}, with a cache of {SMALL_CACHE}")
        if self.header.expert_layers:
            yield from filter(None, map(self._with_experts_on_cpu, sets))
        if self.on == () or (self.on is None and not self._gpus):
            yield Layout({"on": []}, "on the CPU")

    @property
    def _gpus(self) -> tuple[str, ...]:
        return tuple(self.facts.rig.gpus.cards) if self.facts.rig.gpus else ()

    def _sets_of_gpus(self) -> list[tuple[str, ...]]:
        """Return each GPU, the emptiest first, and then all of them; only those whose memory is known."""
        if self.on is not None:
            return [self.on] if self.on else []
        known = tuple(gpu for gpu in self._gpus if usable_bytes(self.facts.rig, gpu))
        emptiest = sorted(known, key=self._left, reverse=True)
        return [*((gpu,) for gpu in emptiest), *([known] if len(known) > 1 else [])]

    def _left(self, gpu: str) -> int:
        """Return the bytes that the other instances leave of a GPU."""
        sized = self.facts.sized_as(self.name, self.instance.model_copy(update={"on": (gpu,)}))
        return sized.room.cards[0] if sized else 0

    def _with_experts_on_cpu(self, gpus: tuple[str, ...]) -> Layout | None:
        """Return the placement with the fewest layers of experts on the CPU that fits with a usual context."""
        usual = USUAL_CONTEXT * self.instance.parallel
        context = next((each for each in self.contexts if each <= usual), self.contexts[-1])
        low, high, found = 1, self.header.trunk, 0
        while low <= high:
            count = (low + high) // 2
            moved = {"on": gpus, "experts_on_cpu": count, "context": context}
            sized = self.facts.sized_as(self.name, self.instance.model_copy(update=moved))
            if sized and sized.fit.fits:
                found, high = count, count - 1
            elif sized and any(device == HOST for device, _ in sized.fit.short):
                high = count - 1  # more experts would be more in RAM
            else:
                low = count + 1
        if not found:
            return None
        layers = f"{found} layer{'s' if found > 1 else ''}"
        keys = {"on": [*gpus], "experts_on_cpu": found}
        return Layout(keys, f"{_on(gpus)}, with the experts of {layers} on the CPU")


def _on(gpus: tuple[str, ...]) -> str:
    return f"on {' and '.join(f'`{gpu}`' for gpu in gpus)}"
