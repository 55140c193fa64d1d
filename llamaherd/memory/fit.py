"""Whether a placement fits its GPUs and RAM, which changes make it fit, and the best placement for given GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from llamaherd.gguf.header import Header
from llamaherd.memory.estimate import Memory, Use, estimate
from llamaherd.memory.placement import HOST, Placement, experts_pattern, places_of

MIB = 1024**2

RESERVE = 512 * MIB
"""Bytes of each GPU that are kept for what no estimate counts: the driver's context (180 MiB on a 3070, from
meta-llama/codellama#82; more on larger GPUs), loaded kernels, the pool that CUDA kernels take scratch from, and holes.
An engine that sizes itself leaves 1024 MiB (--fit-target, common/arg.cpp)."""

_STEP = 1024
"""Contexts are offered in whole multiples of this."""

_SMALLEST = 4096
"""No smaller context is offered (--fit-ctx has the same floor)."""


@dataclass(frozen=True)
class Room:
    """The bytes that are available to a server: of each GPU, and of RAM; None for unknown RAM.

    `of` returns the room of another placement: what a server holds in addition to its model depends on the placement.
    """

    cards: tuple[int, ...]
    ram: int | None = None
    reserve: int = RESERVE
    of: Callable[[Placement], Room] | None = None


@dataclass(frozen=True)
class Fit:
    """How a placement goes into its room. `spare` is what each GPU has left, below 0 what it lacks, in bytes."""

    memory: Memory
    spare: tuple[int, ...]
    spare_ram: int | None

    @property
    def fits(self) -> bool:
        """Return whether nothing is short."""
        return all(left >= 0 for left in self.spare) and (self.spare_ram is None or self.spare_ram >= 0)

    @property
    def short(self) -> tuple[tuple[int, int], ...]:
        """The GPUs that are short, and by how many bytes; the RAM has the number -1."""
        gpus = tuple((gpu, -left) for gpu, left in enumerate(self.spare) if left < 0)
        return gpus + (((HOST, -self.spare_ram),) if self.spare_ram is not None and self.spare_ram < 0 else ())


@dataclass(frozen=True)
class Change:
    """One change that makes a placement fit: what it is, in words, and what is held then."""

    kind: str
    text: str
    placement: Placement
    fit: Fit


def fit_in(header: Header, placement: Placement, room: Room) -> Fit:
    """Return how the placement goes into the room. Raises ValueError as `estimate` does, or if the GPUs differ."""
    if len(room.cards) != placement.devices:
        raise ValueError(f"{placement.devices} GPUs are placed on, and the sizes of {len(room.cards)} are known")
    memory = estimate(header, placement if placement.free else replace(placement, free=room.cards))
    return fit_memory(memory, room.of(placement) if room.of else room)


def fit_memory(memory: Memory, room: Room) -> Fit:
    """Return how this memory goes into the room, which has as many GPUs."""
    spare = tuple(
        size - room.reserve - use.total if use.total else size
        for size, use in zip(room.cards, memory.devices, strict=True)
    )
    return Fit(memory, spare, None if room.ram is None else room.ram - memory.host.total)


def changes(header: Header, placement: Placement, room: Room) -> tuple[Change, ...]:
    """Return every single change that makes it fit, the cheapest in speed or quality first.

    Another split, a smaller batch, fewer drafted tokens or their cache in 8 bits, fewer slots, a cache of 8 bits,
    experts on the CPU, layers on the CPU, a cache of 4 bits, a smaller context. Raises ValueError as `fit` does.
    """
    ways: tuple[Callable[[Header, Placement, Room], Iterator[Change]], ...] = (
        another_split,
        _smaller_batch,
        _fewer_drafted,
        _smaller_draft_cache,
        _fewer_slots,
        _cache_of_8_bits,
        fewest_experts_on_cpu,
        fewer_layers,
        _cache_of_4_bits,
        _smaller_context,
    )
    if fit_in(header, placement, room).fits:
        return ()
    return tuple(change for way in ways for change in way(header, placement, room))


def _tried_change(header: Header, room: Room, kind: str, text: str, placement: Placement) -> Change:
    return Change(kind, text, placement, fit_in(header, placement, room))


def _first(tried: Iterator[Change]) -> Iterator[Change]:
    """Yield the first change that fits, if any does."""
    for change in tried:
        if change.fit.fits:
            yield change
            return


def another_split(header: Header, placement: Placement, room: Room) -> Iterator[Change]:
    """Yield the first split over the GPUs that fits, if any does."""
    if placement.devices < 2 or placement.split != "layer":
        return
    yield from _first(_splits(header, placement, room))


def _splits(header: Header, placement: Placement, room: Room) -> Iterator[Change]:
    """Yield splits to try: less on the first or the last GPU, then layer by layer from the fullest to the emptiest."""
    count = placement.devices
    for less in (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5):
        for shares in ((less,) + (1.0,) * (count - 1), (1.0,) * (count - 1) + (less,)):
            yield _with_split(header, placement, room, shares)
    places = places_of(header, replace(placement, free=placement.free or room.cards))
    counts = [places.count(gpu) for gpu in range(count)]
    best = _with_split(header, placement, room, tuple(map(float, counts)))
    while True:
        yield best
        emptiest_first = sorted(range(count), key=lambda gpu: best.fit.spare[gpu])
        moved = _with_one_moved(counts, emptiest_first[0], emptiest_first[-1])
        candidate = _with_split(header, placement, room, tuple(map(float, moved)))
        if min(candidate.fit.spare) <= min(best.fit.spare):
            return
        counts, best = moved, candidate


def _with_one_moved(counts: list[int], fullest: int, emptiest: int) -> list[int]:
    return [count - (gpu == fullest) + (gpu == emptiest) for gpu, count in enumerate(counts)]


def _with_split(header: Header, placement: Placement, room: Room, shares: tuple[float, ...]) -> Change:
    text = "tensor split " + ",".join(f"{share:g}" for share in shares)
    return _tried_change(header, room, "tensor_split", text, replace(placement, tensor_split=shares))


def _smaller_batch(header: Header, placement: Placement, room: Room) -> Iterator[Change]:
    sizes = [size for size in (1024, 512, 256, 128, 64) if size < placement.ubatch]
    yield from _first(
        _tried_change(header, room, "ubatch", f"ubatch {size}", replace(placement, ubatch=size)) for size in sizes
    )


def _fewer_drafted(header: Header, placement: Placement, room: Room) -> Iterator[Change]:
    yield from _first(
        _tried_change(
            header, room, "mtp", f"{count} drafted tokens" if count else "no draft", replace(placement, mtp=count)
        )
        for count in range(placement.mtp - 1, -1, -1)
    )


def _smaller_draft_cache(header: Header, placement: Placement, room: Room) -> Iterator[Change]:
    if placement.mtp and placement.flash_attention and "f16" in (placement.draft_type_k, placement.draft_type_v):
        smaller = replace(placement, draft_type_k="q8_0", draft_type_v="q8_0")
        yield from _first(iter([_tried_change(header, room, "draft_kv", "the draft's KV in q8_0", smaller)]))


def _fewer_slots(header: Header, placement: Placement, room: Room) -> Iterator[Change]:
    """Yield the most slots that fit, by bisection: more slots take more, but for the padding of their cells."""
    low, high, best = 1, placement.parallel - 1, None
    while low <= high:
        count = (low + high) // 2
        tried = _tried_change(header, room, "parallel", f"{count} parallel", replace(placement, parallel=count))
        if tried.fit.fits:
            best, low = tried, count + 1
        else:
            high = count - 1
    if best:
        yield best


def _cache_of_8_bits(header: Header, placement: Placement, room: Room) -> Iterator[Change]:
    yield from _cache(header, placement, room, "q8_0", ("f32", "f16", "bf16"))


def _cache_of_4_bits(header: Header, placement: Placement, room: Room) -> Iterator[Change]:
    yield from _cache(header, placement, room, "q4_0", ("f32", "f16", "bf16", "q8_0", "q6_0", "q5_1", "q5_0"))


def _cache(header: Header, placement: Placement, room: Room, type_: str, wider: tuple[str, ...]) -> Iterator[Change]:
    if placement.flash_attention and {placement.type_k, placement.type_v} & set(wider):
        smaller = replace(placement, type_k=type_, type_v=type_)
        yield from _first(iter([_tried_change(header, room, "kv", f"KV in {type_}", smaller)]))


def fewest_experts_on_cpu(header: Header, placement: Placement, room: Room) -> Iterator[Change]:
    """Yield the fewest layers of experts to move to RAM, from the GPUs that lack most, first layers first."""
    if not placement.devices:
        return
    places = places_of(header, replace(placement, free=placement.free or room.cards))
    left = [
        layer for layer in header.expert_layers if places[layer] != HOST and not _is_moved(header, placement, layer)
    ]
    gone: list[int] = []
    tried = fit_in(header, placement, room)
    while tried.short and tried.short[0][0] != HOST:
        if gone and tried.short[-1][0] == HOST:
            return  # more experts would be more in RAM
        gpu = max((each for each in tried.short if each[0] != HOST), key=lambda each: each[1])[0]
        here = [layer for layer in left if places[layer] == gpu]
        if not here:
            return
        left.remove(here[0])
        gone.append(here[0])
        more = (experts_pattern(header, gone), "CPU")
        change = replace(placement, overrides=(more, *placement.overrides))
        tried = fit_in(header, change, room)
        if tried.fits:
            more_than = "more " if placement.overrides else ""
            text = f"experts of {len(gone)} {more_than}layer{'s' if len(gone) > 1 else ''} on the CPU"
            yield Change("experts", text, change, tried)


def _is_moved(header: Header, placement: Placement, layer: int) -> bool:
    names = (tensor.name for tensor in header.each if tensor.layer == layer and tensor.is_expert)
    return any(placement.override(name) == HOST for name in names)


def fewer_layers(header: Header, placement: Placement, room: Room) -> Iterator[Change]:
    """Yield the most layers on the GPUs that fit, possibly none."""
    slots = header.layers + 1
    now = slots if placement.gpu_layers is None else min(placement.gpu_layers, slots)
    for count in range(now - 1 if placement.devices else -1, -1, -1):
        text = f"{count} layers on GPUs" if count else "all layers in RAM"
        change = _tried_change(header, room, "gpu_layers", text, replace(placement, gpu_layers=count))
        if change.fit.fits:
            yield change
        if change.fit.fits or (change.fit.spare_ram or 0) < 0:
            return  # fewer on GPUs are more in RAM


def _smaller_context(header: Header, placement: Placement, room: Room) -> Iterator[Change]:
    """Yield the largest context that fits, and gives no slot more than the model was trained for."""
    trained = header.number("context_length") * placement.parallel or placement.context
    size = largest_context(header, placement, room, min(placement.context - 1, trained))
    if size:
        yield _tried_change(header, room, "context", f"context {size}", replace(placement, context=size))


def largest_context(header: Header, placement: Placement, room: Room, most: int) -> int:
    """Return the largest context up to `most` that fits, in whole steps of 1024, 4096 at least; 0 if none does.

    More cells never take less, so that the interval can be halved.
    """
    low, high, found = _SMALLEST // _STEP, most // _STEP, 0
    while low <= high:
        middle = (low + high) // 2
        if fit_in(header, replace(placement, context=middle * _STEP), room).fits:
            found, low = middle * _STEP, middle + 1
        else:
            high = middle - 1
    return found


USUAL_CONTEXT = 32_768
"""The default context, if the model was trained for as much."""


@dataclass(frozen=True)
class FitRow:
    """One row of a result: what a GPU or the RAM holds, what it has, and what is left, in bytes; None if unknown."""

    name: str
    use: Use
    room: int | None
    spare: int | None


@dataclass(frozen=True)
class FitResult:
    """A placement, in words and as arguments, and how it goes into the room.

    `largest_context` is the most that the same placement has room for; 0 if it does not even fit as it is.
    """

    how: str
    placement: Placement
    fit: Fit
    rows: tuple[FitRow, ...]
    largest_context: int


def best_fit(header: Header, room: Room, wanted: Placement | None = None, *, by_hand: bool = False) -> FitResult:
    """Return the best placement that fits, or that with the smallest lack if none does.

    `wanted` sets context, slots, cache, batch and draft; with `by_hand` also where the model goes. Raises ValueError as
    `fit_in` does.
    """
    base = replace(wanted or _usual_placement(header), devices=len(room.cards))
    as_placed = Change("by_hand", "as it is placed", base, fit_in(header, base, room))
    tried = [as_placed] if by_hand else list(_candidates(header, base, room))
    best = next((change for change in tried if change.fit.fits), None)
    best = best or min(tried, key=lambda change: sum(missing for _, missing in change.fit.short))
    placement = best.placement
    most = largest_context(header, placement, room, header.number("context_length") or placement.context)
    return FitResult(best.text, placement, best.fit, _fit_rows(best.fit, room), most if best.fit.fits else 0)


def _usual_placement(header: Header) -> Placement:
    return Placement(context=min(header.number("context_length") or USUAL_CONTEXT, USUAL_CONTEXT))


def _candidates(header: Header, base: Placement, room: Room) -> Iterator[Change]:
    """Yield placements from the fastest to the slowest, each computed only if the faster ones do not fit."""
    if not room.cards:
        yield Change("cpu", "all in RAM", base, fit_in(header, base, room))
        return
    yield Change("cards", "all on the GPUs", base, fit_in(header, base, room))
    yield from another_split(header, base, room)
    yield from fewest_experts_on_cpu(header, base, room)
    yield from fewer_layers(header, base, room)
    alone = replace(base, gpu_layers=0)
    yield Change("gpu_layers", "all layers in RAM", alone, fit_in(header, alone, room))


def _fit_rows(found: Fit, room: Room) -> tuple[FitRow, ...]:
    gpus = tuple(
        FitRow(f"GPU {index}", use, room.cards[index], found.spare[index])
        for index, use in enumerate(found.memory.devices)
    )
    return (*gpus, FitRow("RAM", found.memory.host, room.ram, found.spare_ram))
