"""What makes an instance fit: changes of its keys or arguments, and a place next to the declared instances."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llamaherd.engines import CommandLine
from llamaherd.engines.flags.effective import Option
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import CacheTypes, Instance, Rig
from llamaherd.memory.facts import RigFacts, Sized
from llamaherd.memory.fit import USUAL_CONTEXT, Change, Room, changes, fit_in
from llamaherd.memory.instances import MOVING, SYSTEM_RAM, cuda_bytes, placement, sidecar_memory, usable_bytes
from llamaherd.memory.overhead import Growth, in_ram, ram_growth
from llamaherd.memory.placement import CHECKPOINTS, HOST, Placement

FLAGS: Mapping[str, tuple[str, ...]] = {
    "context": ("--ctx-size",),
    "kv": ("--cache-type-k", "--cache-type-v"),
    "ubatch": ("--ubatch-size",),
    "parallel": ("--parallel",),
    "gpu_layers": ("--gpu-layers", "--n-gpu-layers"),
    "mtp": ("--spec-type", "--spec-stage", "-mtp", "--spec-draft-n-max", "--draft-max"),
    "tensor_split": ("--tensor-split",),
    "draft_kv": ("--cache-type-k-draft", "--cache-type-v-draft"),
    "experts": MOVING,
}
"""The flags of each kind of change; if an instance sets one of them explicitly, a key would have no effect."""


def suggest_changes(facts: RigFacts, each: Sized) -> tuple[str, ...]:
    """Return the changes that make an instance fit into its room, as its YAML spells them, the cheapest first.

    The RAM counts as well, where it is known: what leaves a GPU must go somewhere.
    """
    rig = facts.rig
    each = replace(each, room=_with_ram_it_has(each))
    each = replace(each, room=replace(each.room, of=_room_of(rig, each)))
    line = facts.instances[each.name].explicit
    found: list[str] = []
    for change in changes(each.header, each.placement, each.room):
        own = [option for name in FLAGS[change.kind] if (option := line.own(name))] if line else []
        text = _word_for_word(rig, each, change, line, own) if line and own else _yaml(rig, each, change)
        found += [text] if text else []
    return tuple(dict.fromkeys(found))


def _with_ram_it_has(each: Sized) -> Room:
    """Return the room with the RAM that an instance may keep: RAM of the system that it already uses is no error."""
    room = each.room
    if room.ram is None:
        return room
    now = each.held.model.host.total
    return replace(room, ram=max(room.ram, min(now, room.ram + SYSTEM_RAM)))


def _room_of(rig: Rig, each: Sized) -> Callable[[Placement], Room]:
    """Return a function of the room by placement: the memory of CUDA and of a draft depends on context and split."""
    room = each.room
    cards, ram = _sidecar_bytes(rig, each, each.placement)

    def of(placed: Placement) -> Room:
        taken, taken_ram = _sidecar_bytes(rig, each, placed)
        left = tuple(size + own - new for size, own, new in zip(room.cards, cards, taken, strict=True))
        return replace(room, cards=left, ram=None if room.ram is None else room.ram + ram - taken_ram)

    return of


def _sidecar_bytes(rig: Rig, each: Sized, placed: Placement) -> tuple[tuple[int, ...], int]:
    """Return the bytes of each GPU and of the RAM besides the model; a projector takes the same anywhere."""
    instance, draft = each.instance, each.instance.draft
    drafting = each.held.drafting
    drafts = {draft.model: drafting} if draft and draft.model and drafting else {}
    held = sidecar_memory(instance, placed, drafts, {})
    cuda = cuda_bytes(rig, instance, each.header, placed)
    cards = tuple(use.total + own for use, own in zip(held.devices, cuda, strict=True))
    return cards, held.host.total + in_ram(each.header, placed)


def _word_for_word(rig: Rig, each: Sized, change: Change, line: CommandLine, own: list[Option]) -> str | None:
    """Return the same option with another number; None if one number does not express the change."""
    option = own[0]
    if len(set(own)) > 1:
        return None
    match change.kind:
        case "context" | "ubatch" | "parallel" | "gpu_layers":
            return _option_with(option, getattr(change.placement, change.kind))
        case "experts" if option.flag == line.effective.catalogue.find("--n-cpu-moe"):
            for count in range(1, each.header.layers + 1):
                if _fits(rig, each, _with(each.instance, line, option, count)):
                    return _option_with(option, count)
    return None


def _option_with(option: Option, number: int) -> str:
    """Return an option with another number, as it is written."""
    name = option.words[0].partition("=")[0]
    return f"{name}={number}" if option.origin == "environment" else f"{name} {number}"


def _with(instance: Instance, line: CommandLine, option: Option, number: int) -> Instance:
    """Return the instance with another number for an option that it sets explicitly."""
    if option.origin == "environment":
        name = option.words[0].partition("=")[0]
        return instance.model_copy(update={"environment": {**instance.environment, name: str(number)}})
    words, value = list(instance.extra_args), option.index - line.keys + 1
    words[value] = str(number)
    return instance.model_copy(update={"extra_args": tuple(words)})


def _fits(rig: Rig, each: Sized, declared: Instance) -> bool:
    """Return whether an instance fits as it is declared here. Raises ValueError as `placement` does."""
    return fit_in(each.header, placement(rig, declared, each.header), each.room).fits


def _yaml(rig: Rig, each: Sized, change: Change) -> str | None:
    """Return one change as a key of an inventory; None if no key expresses it."""
    changed = change.placement
    match change.kind:
        case "context":
            return f"context: {changed.context}"
        case "kv":
            return f"kv: {changed.type_k}"
        case "ubatch":
            return f"ubatch: {changed.ubatch}"
        case "parallel":
            return f"parallel: {changed.parallel}"
        case "gpu_layers":
            return f"gpu_layers: {changed.gpu_layers}"
        case "mtp":
            return f"draft: {{mtp: {changed.mtp}}}" if changed.mtp else "no draft"
        case "tensor_split":
            return f"tensor_split: [{', '.join(f'{share:g}' for share in changed.tensor_split or ())}]"
        case "experts":
            return _experts(rig, each)
        case _:
            return change.text


def _experts(rig: Rig, each: Sized) -> str | None:
    """Return the fewest layers of experts on the CPU that fit, counted from the first layer as in an inventory."""
    layers = each.header.trunk
    for count in range(1, layers + 1):
        try:
            fits = _fits(rig, each, each.instance.model_copy(update={"experts_on_cpu": count}))
        except ValueError:
            return None
        if fits:
            return f"experts_on_cpu: {count}"
    return None


CACHES = (8192, 6144, 4096, 3072, 2048, 1536, 1024, 512, 256, 0)
"""MiB of saved prompts that are advised, and below which fewer checkpoints are tried first."""
LEAST_CACHE = 1024
COUNTS = (CHECKPOINTS, 16, 8, 4, 2, 1, 0)


@dataclass(frozen=True)
class GrowthLimits:
    """What keeps instances from growing beyond their room: MiB of saved prompts, checkpoints of a slot, and whose."""

    cache: int
    checkpoints: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        fewer = f" --ctx-checkpoints {self.checkpoints}" if self.checkpoints < CHECKPOINTS else ""
        return f"--cache-ram {self.cache}{fewer}"


def growth_that_fits(instances: Sequence[Sized], room: int) -> GrowthLimits:
    """Return the largest limits with which the growth of instances fits into this many bytes."""
    pairs = [(cache, count) for count in COUNTS for cache in CACHES if cache >= LEAST_CACHE]
    pairs += [(cache, count) for count in COUNTS for cache in CACHES if cache < LEAST_CACHE]
    for cache, count in pairs:
        limited = [_limited_growth(each, cache, count) for each in instances]
        if sum(each.total or 0 for each in limited) <= room:
            break
    changed = tuple(old.name for old, new in zip(instances, limited, strict=True) if old.growth != new)
    return GrowthLimits(cache, count, changed)


def _limited_growth(each: Sized, cache: int, checkpoints: int) -> Growth:
    """Return the growth of an instance whose limits are not above these."""
    placed = each.placement
    own = cache << 20 if placed.cache_ram is None else min(placed.cache_ram, cache << 20)
    limited = replace(placed, cache_ram=own, checkpoints=min(placed.checkpoints, checkpoints))
    return ram_growth(each.header, limited, each.held.drafting)


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
