"""The search space of an instance within the memory of its GPUs, and the walk through it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from llamaherd.engines import TRAITS
from llamaherd.gguf.header import Header, spread
from llamaherd.inventory.schema import CacheTypes, Instance, Rig
from llamaherd.measure.tune.candidate import KV, MODEL, PRECISE, Candidate, Outcome, Outcomes, Value, with_keys
from llamaherd.memory.facts import RigFacts, rig_facts
from llamaherd.memory.fit import Fit
from llamaherd.memory.instances import MOVING
from llamaherd.memory.placement import expert_layers_on_cpu

AxisStrategy = Literal["climb", "each"]
"""Step by step from its present value, as long as it gets better; or every value."""


@dataclass(frozen=True)
class Axis:
    """A key and its values, in order if it is climbed. `needs` is a key without which it has no effect.

    `leaps` are combinations of keys that are worth a try while it is off: one step alone may gain nothing where two do.
    """

    key: str
    values: tuple[Value, ...]
    how: AxisStrategy = "climb"
    needs: str | None = None
    leaps: tuple[Mapping[str, Value], ...] = ()
    down_first: bool = False

    def among(self, candidate: Candidate) -> bool:
        """Check whether it has an effect for this candidate."""
        return self.needs is None or candidate[self.needs] is not None

    def near(self, value: Value) -> int:
        """Return the number of a value, or of the nearest one."""
        if value in self.values:
            return self.values.index(value)
        numbers = [
            (abs(each - value), place)
            for place, each in enumerate(self.values)
            if isinstance(each, int | float) and isinstance(value, int | float)
        ]
        return min(numbers)[1] if numbers else 0


@dataclass(frozen=True)
class Space:
    """All axes, in the order of their dependence, and the limits of memory.

    `pack` puts as much of a candidate on its GPUs as they hold by the estimate; None if it does not fit at all. It sets
    only the keys of `packed`.
    """

    axes: tuple[Axis, ...]
    pack: Callable[[Candidate], Candidate | None]
    packed: tuple[str, ...] = ()
    unpack: Callable[[Candidate], Candidate | None] = lambda _: None
    """Returns the candidate with one step less on its GPUs, if the estimate was slightly wrong; None at the end."""

    def axis(self, key: str) -> Axis:
        """Return the axis of a key. Raise KeyError."""
        found = next((each for each in self.axes if each.key == key), None)
        if found is None:
            raise KeyError(key)
        return found

    def tidy(self, candidate: Candidate) -> Candidate:
        """Remove keys without an effect: two candidates that serve alike become one."""
        idle = [axis.key for axis in self.axes if not axis.among(candidate)]
        return candidate.with_keys(dict.fromkeys(idle)) if idle else candidate


EXPERTS, LAYERS, BATCH = "experts_on_cpu", "gpu_layers", "batch"


@dataclass(frozen=True)
class Packing:
    """The edge of memory of an instance, together with the others of its rig.

    `queued`: tokens of a batch by default.
    """

    facts: RigFacts
    name: str
    queued: int

    @property
    def instance(self) -> Instance:
        """The declared instance."""
        return self.facts.rig.instances[self.name]

    @property
    def header(self) -> Header | None:
        """The header of its model."""
        return self.facts.instances[self.name].header

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it sets."""
        edges = {EXPERTS: (EXPERTS, LAYERS), LAYERS: (LAYERS,), None: ()}
        return (*edges[self._edge], BATCH)

    @property
    def _edge(self) -> str | None:
        """The key that moves the edge: experts of a mixture, layers of any other model.

        None without a GPU, or if the user has placed them by hand.
        """
        if not self.instance.on or self.header is None or self._by_hand():
            return None
        return EXPERTS if self.header.expert_layers else LAYERS

    def _by_hand(self) -> bool:
        line = self.facts.instances[self.name].explicit
        return line is not None and line.own(*MOVING, "--gpu-layers", "--n-gpu-layers") is not None

    def pack(self, candidate: Candidate) -> Candidate | None:
        """Return the candidate with the least on the CPU that fits; None if nothing does."""
        candidate = self._queued(candidate)
        if self._edge == EXPERTS:
            candidate = candidate.with_keys({LAYERS: None})
        if self._edge is None:
            return candidate if self.fits(candidate) else None
        # Less on the CPU takes less RAM: of the steps that fit on the GPUs, the first one takes least.
        steps = self._steps()
        low, high = 0, len(steps) - 1
        while low < high:
            middle = (low + high) // 2
            if self._gpus_hold(candidate.with_keys({self._edge: steps[middle]})):
                high = middle
            else:
                low = middle + 1
        packed = candidate.with_keys({self._edge: steps[low]})
        return packed if self.fits(packed) else None

    def unpack(self, candidate: Candidate) -> Candidate | None:
        """Return the candidate with one step less on the GPUs; None if there is none."""
        if self._edge is None:
            return None
        steps = self._steps()
        place = steps.index(candidate[self._edge])
        return candidate.with_keys({self._edge: steps[place + 1]}) if place + 1 < len(steps) else None

    def fits(self, candidate: Candidate) -> bool:
        """Check whether GPUs and RAM hold it together with the others; True if that is unknown."""
        return self._is(candidate, lambda fit: fit.fits)

    def _gpus_hold(self, candidate: Candidate) -> bool:
        return self._is(candidate, lambda fit: all(left >= 0 for left in fit.spare))

    def _is(self, candidate: Candidate, so: Callable[[Fit], bool]) -> bool:
        try:
            instance = with_keys(self.instance, candidate)
        except ValueError:
            return False
        found = self.facts.sized_as(self.name, instance)
        return found is None or so(found.fit)

    def _steps(self) -> tuple[Value, ...]:
        """Return the values of the edge, the most on GPUs first."""
        assert self.header is not None
        if self._edge == EXPERTS:
            return tuple(range(len(self.header.expert_layers) + 1))
        return (None, *range(self.header.layers, -1, -1))

    def _queued(self, candidate: Candidate) -> Candidate:
        """Set a batch that is as large as the micro-batch, if that is larger."""
        ubatch, declared = candidate["ubatch"], self.instance.batch
        more = isinstance(ubatch, int) and ubatch > (declared or self.queued)
        return candidate.with_keys({BATCH: ubatch if more else declared})


UBATCH, THREADS, SPLIT, SHARES = "ubatch", "threads", "split", "tensor_split"
HEAD, DRAFTER, DRAFTED, SURE = "draft.mtp", "draft.model", "draft.max", "draft.p_min"

UBATCHES = (64, 128, 256, 512, 1024, 2048, 4096)
QUEUED = 2048
"""The default of `--batch-size`."""

_CACHES = ("f16", "q8_0", "q4_0")
"""Types of a cache that are tried: pairs of the same type, for which each build has kernels."""
_MORE = (1.25, 1.5, 2.0)
"""Factors by which one of several GPUs may have more of a model than its share of memory."""
_THREADS = (0.25, 0.5, 0.75, 1.0)
_HEADS = (None, 1, 2, 3, 4)
_DRAFTS = (2, 4, 8, 16)
_SURE = (None, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class SearchedInstance:
    """A rig with its instance, the headers of its models, and bytes of vision projectors."""

    rig: Rig
    name: str
    headers: Mapping[str, Header]
    projectors: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def facts(self) -> RigFacts:
        """The facts of the rig."""
        return rig_facts(self.rig, self.headers, self.projectors)

    @property
    def instance(self) -> Instance:
        """The declared instance."""
        return self.rig.instances[self.name]

    @property
    def header(self) -> Header | None:
        """The header of its model."""
        return self.headers.get(self.instance.model)

    @property
    def finest(self) -> str:
        """The weights with most bytes of all that may be tried; empty if there are no others."""
        tried = self.instance.tried_models
        return max((self.instance.model, *tried), key=self._bytes) if tried else ""

    def _bytes(self, model: str) -> int:
        """Return the bytes of its weights; 0 if its header, or a type in it, is unknown."""
        header = self.headers.get(model)
        try:
            return sum(each.bytes for each in header.each) if header else 0
        except KeyError:
            return 0


def space_of(known: SearchedInstance, *, judged: bool) -> tuple[Space, Candidate]:
    """Return what may be changed, and the declared keys.

    `judged`: settings that lose some quality may be tried, as they are judged afterwards. Otherwise only lossless ones
    are.
    """
    axes = tuple(_axes(known, judged))
    packing = Packing(known.facts, known.name, QUEUED)
    keys = [*(axis.key for axis in axes), *packing.keys]
    declared = Candidate.of({key: _declared(known, key) for key in keys})
    space = Space(axes, packing.pack, packing.keys, packing.unpack)
    return space, space.tidy(declared)


def _axes(known: SearchedInstance, judged: bool) -> Iterator[Axis]:
    """Yield the axes in the order of their dependence.

    Threads first: one too many makes everything up to 28 times slower (docs/serve.md). Then keys that take memory from
    layers, and drafting last.
    """
    instance = known.instance
    if known.facts.instances[known.name].on_cpu:
        yield Axis(THREADS, _threads(known), down_first=True)
    if judged and instance.tried_models:
        yield Axis(MODEL, (instance.model, *instance.tried_models), "each")
    yield Axis(UBATCH, tuple(size for size in UBATCHES if size <= instance.context))
    if caches := _caches(instance, judged):
        yield Axis(KV, caches)
    if splits := _splits(known):
        yield Axis(SPLIT, splits, "each")
    if shares := _shares(known):
        yield Axis(SHARES, shares, "each")
    yield from _drafting(known)


def _drafting(known: SearchedInstance) -> Iterator[Axis]:
    draft = known.instance.draft
    if draft and draft.model:
        drafts = _DRAFTS if draft.mtp is None else _HEADS[1:]
        yield Axis(DRAFTER, (draft.model, None), "each")
        yield Axis(DRAFTED if draft.mtp is None else HEAD, drafts, needs=DRAFTER)
        yield Axis(SURE, _SURE, needs=DRAFTER)
    elif known.header and known.header.heads and _heads_load(known):
        yield Axis(HEAD, _HEADS, leaps=({HEAD: 1}, {HEAD: 2, SURE: 0.75}, {HEAD: 3}))
        yield Axis(SURE, _SURE, needs=HEAD)


def _heads_load(known: SearchedInstance) -> bool:
    """Check whether its engine drafts by a head for as many slots as it has."""
    traits = TRAITS[known.rig.engines[known.instance.engine].kind]
    return not traits.mtp_for_one_slot or known.instance.parallel == 1


def _caches(instance: Instance, judged: bool) -> tuple[Value, ...]:
    """Return types of both caches: all, or those that lose nothing compared with the declared one; or none."""
    kv = instance.kv
    if kv.k != kv.v or instance.flash_attention == "off":
        return ()
    least = PRECISE.index(kv.k)
    found = tuple(each for each in _CACHES if judged or PRECISE.index(each) <= least)
    return found if kv.k in found or not found else (*found, kv.k)


def _splits(known: SearchedInstance) -> tuple[Value, ...]:
    """Return how several GPUs may share a model."""
    if len(known.instance.on) < 2 or known.instance.split == "none":
        return ()
    takes = TRAITS[known.rig.engines[known.instance.engine].kind].splits - {"none", "layer"}
    return (None, *sorted(takes))


def _shares(known: SearchedInstance) -> tuple[Value, ...]:
    """Return the percentages of a model that several GPUs may have: by their memory, and with more for one of them.

    None if they are alike: then it does not matter which of them computes a layer.
    """
    instance, cards = known.instance, known.rig.gpus.cards if known.rig.gpus else {}
    own = [cards[name] for name in instance.on]
    sizes = [card.memory_bytes or 0 for card in own]
    if len(own) < 2 or instance.split == "none" or not all(sizes) or len({card.model for card in own}) == 1:
        return ()
    parts = [
        [size * (by if at == place else 1) for at, size in enumerate(sizes)]
        for place in range(len(own))
        for by in _MORE
    ]
    tried = [tuple(float(round(100 * part / sum(each))) for part in each) for each in parts]
    return tuple(dict.fromkeys([_split(instance), None, *tried]))


def _split(instance: Instance) -> Value:
    return tuple(map(float, instance.tensor_split)) or None


def _threads(known: SearchedInstance) -> tuple[int, ...]:
    """Return the number of cores and parts of it; without their siblings, which only slow each other down."""
    cpus = known.instance.cpus
    cores = min(known.rig.host.cpu.cores, len(spread(cpus))) if cpus else known.rig.host.cpu.cores
    shares = {max(1, round(cores * share)) for share in _THREADS}
    return tuple(sorted({*shares, max(1, cores - 1), known.facts.instances[known.name].threads}))


def _declared(known: SearchedInstance, key: str) -> Value:
    """Return the declared value of a key, or its default."""
    instance = known.instance
    draft = instance.draft
    values: dict[str, Value] = {
        UBATCH: instance.ubatch or 512,
        BATCH: instance.batch,
        KV: _both(instance.kv),
        MODEL: instance.model,
        SPLIT: instance.split,
        SHARES: _split(instance),
        THREADS: known.facts.instances[known.name].threads,
        HEAD: draft.mtp if draft else None,
        DRAFTER: draft.model if draft else None,
        DRAFTED: draft.max or 16 if draft and draft.model and not draft.mtp else None,
        SURE: draft.p_min if draft else None,
        EXPERTS: _experts(known),
        LAYERS: instance.gpu_layers if isinstance(instance.gpu_layers, int) else None,
    }
    return values[key]


def _both(kv: CacheTypes) -> Value:
    return kv.k if kv.k == kv.v else None


def _experts(known: SearchedInstance) -> Value:
    """Return of how many layers the experts are on the CPU."""
    if known.header is None or not known.instance.moves_experts:
        return 0 if known.header and known.header.expert_layers and known.instance.on else None
    return len(expert_layers_on_cpu(known.header, str(known.instance.experts_on_cpu)))


Walk = Generator[Candidate, Outcome, None]

BETTER = 1.003
"""A candidate replaces the best one if it is better by this factor: less is usually noise."""
_TIRED = 2
"""Steps without a gain after which an axis is left: one of them may be noise, or a dent."""
CLIFF = 0.25
"""A step to less than this share of the best score is a cliff, as with threads when no core is left.

Its value is not measured again with other keys.
"""
_UNPACKS = 3
"""Steps back from an edge of memory that the estimate did not predict."""


@dataclass
class Best:
    """The best candidate by now."""

    candidate: Candidate
    score: float | None
    cliffs: set[tuple[str, Value]] = field(default_factory=set)
    """Values that fell off a cliff when only their key was changed."""


def coordinate_search(space: Space, start: Candidate, hints: Sequence[Candidate] = ()) -> Walk:
    """Try the start as it is, then packed by the memory arithmetic, then `hints`, then one axis after another.

    Axes of which another one was changed since they were walked are walked once more.
    """
    best = Best(start, (yield start).score)
    for each in (start, *hints):
        packed = space.pack(space.tidy(each))
        if packed is not None:
            yield from _try(space, best, packed)
    before: Candidate | None = None
    while before != best.candidate:
        first, before = before is None, best.candidate
        for axis in space.axes:
            if axis.among(best.candidate) and (first or axis.how == "climb"):
                yield from _walk(space, best, axis, patient=first)


def _walk(space: Space, best: Best, axis: Axis, *, patient: bool) -> Walk:
    """Try values of one axis, with the other keys of the best candidate."""
    if axis.leaps:
        leaps = axis.leaps
        if best.candidate[axis.key] is not None:
            # Off is far from anything that is on, and a draft that pays with no number is soon known.
            off = patient and (yield from _try_keys(space, best, {axis.key: None}))
            leaps = axis.leaps[:1] if off else ()
        for leap in leaps:
            yield from _try_keys(space, best, leap)
        if best.candidate[axis.key] is None:
            return
    if axis.how == "each":
        here = best.candidate[axis.key]
        for value in axis.values:
            if value != here:
                yield from _try_keys(space, best, {axis.key: value})
        return
    place = axis.near(best.candidate[axis.key])
    ways = [range(place + 1, len(axis.values)), range(place - 1, -1, -1)]
    for way in reversed(ways) if axis.down_first else ways:
        if (yield from _climb(space, best, axis, way, patient=patient)):
            break


def _climb(
    space: Space, best: Best, axis: Axis, places: Iterable[int], *, patient: bool
) -> Generator[Candidate, Outcome, bool]:
    """Try values in one direction until the score stops rising. Return whether it rose."""
    tired, gained = 0, False
    for place in places:
        if (axis.key, axis.values[place]) in best.cliffs:
            break
        if (yield from _try_keys(space, best, {axis.key: axis.values[place]})):
            tired, gained = 0, True
        else:
            tired += 1
            if tired >= (_TIRED if patient and gained else 1):
                break
    return gained


def _try_keys(space: Space, best: Best, keys: Mapping[str, Value]) -> Generator[Candidate, Outcome, bool]:
    """Try the best candidate with these keys, packed anew. Return whether it is better."""
    changed = space.pack(space.tidy(best.candidate.with_keys(keys)))
    if changed is None:
        return False
    return (yield from _try(space, best, changed))


def _try(space: Space, best: Best, candidate: Candidate) -> Generator[Candidate, Outcome, bool]:
    """Try a candidate, with less on its GPUs if it runs out of memory. Return whether it is the best one now."""
    outcome = yield candidate
    for _ in range(_UNPACKS):
        if outcome.why != "memory":
            break
        smaller = space.unpack(candidate)
        if smaller is None:
            break
        candidate = smaller
        outcome = yield candidate
    if (fell := cliff(space, candidate, outcome.score, best.candidate, best.score)) is not None:
        best.cliffs.add(fell)
    if outcome.score is None or (best.score is not None and outcome.score < best.score * BETTER):
        return False
    best.candidate, best.score = candidate, outcome.score
    return True


def cliff(
    space: Space, candidate: Candidate, score: float | None, other: Candidate, others: float | None
) -> tuple[str, Value] | None:
    """Return the key and the value by which a candidate fell off a cliff compared with another one.

    None if more than one key differs, or if the key is a draft's, which may pay with other keys.
    """
    if score is None or others is None or score >= CLIFF * others:
        return None
    changed = [*candidate.besides(other).items()]
    climbed = {axis.key for axis in space.axes if axis.how == "climb" and not axis.needs and not axis.leaps}
    return changed[0] if len(changed) == 1 and changed[0][0] in climbed else None


def cliffs(space: Space, trials: Outcomes) -> set[tuple[str, Value]]:
    """Return all values that fell off a cliff compared with the best candidate with the same other keys."""
    known = [(candidate, outcome.score) for candidate, outcome in trials]
    found = (cliff(space, *one, *other) for one in known for other in known)
    return {each for each in found if each is not None}


Model = Callable[[Space, Outcomes], Walk]
"""Proposes candidates by all trials so far, without end."""

_MOST_KNOWN = 50
"""Successive proposals that are known already, after which the search ends."""


def search(
    space: Space,
    start: Candidate,
    trials: Outcomes,
    evaluate: Callable[[Candidate], Outcome],
    more: Callable[[], bool],
    model: Model | None = None,
    hints: Sequence[Candidate] = (),
) -> bool:
    """Try candidates as long as there is `more` budget, `hints` early. What is in `trials` is not tried again.

    Whether the pass over the axes came to its end.
    """
    through = _drive(coordinate_search(space, start, hints), trials, evaluate, more)
    if through and model:
        _drive(model(space, trials), trials, evaluate, more)
    return through


def _drive(walk: Walk, trials: Outcomes, evaluate: Callable[[Candidate], Outcome], more: Callable[[], bool]) -> bool:
    """Follow a walk to its end. Return whether budget is left."""
    known = 0
    try:
        candidate = next(walk)
        while True:
            known += 1
            if candidate not in trials.outcomes:
                if not more():
                    return False
                trials.add(candidate, evaluate(candidate))
                known = 0
            if known > _MOST_KNOWN:
                return True
            candidate = walk.send(trials.outcomes[candidate])
    except StopIteration:
        return True
