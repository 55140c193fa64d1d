"""As much of a candidate on its GPUs as arithmetic says they hold: the edge is worked out, not searched for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llamaherd.engines.command_line import by_hand
from llamaherd.gguf.header import Header
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.memory.experts import moe_layers
from llamaherd.memory.fit import Fit
from llamaherd.memory.instances import sized
from llamaherd.memory.placed_by_hand import MOVING
from llamaherd.tune.candidate import Candidate, Value
from llamaherd.tune.keys import with_keys

EXPERTS, LAYERS, BATCH = "experts_on_cpu", "gpu_layers", "batch"


@dataclass(frozen=True)
class Packing:
    """The edge of memory of an instance, beside all others of its rig. `queued`: tokens of a batch by default."""

    rig: Rig
    name: str
    headers: Mapping[str, Header]
    projectors: Mapping[str, int]
    queued: int

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that it sets."""
        edges = {EXPERTS: (EXPERTS, LAYERS), LAYERS: (LAYERS,), None: ()}
        return (*edges[self._edge], BATCH)

    @property
    def _edge(self) -> str | None:
        """The key that moves the edge: experts of a mixture, layers of any other model; none without a GPU, or where
        its owner has placed them by hand."""
        instance, header = self.rig.instances[self.name], self.headers.get(self.rig.instances[self.name].model)
        if not instance.on or header is None or self._by_hand(instance):
            return None
        return EXPERTS if moe_layers(header) else LAYERS

    def _by_hand(self, instance: Instance) -> bool:
        line = by_hand(self.rig, instance)
        return line is not None and line.own(*MOVING, "--gpu-layers", "--n-gpu-layers") is not None

    def pack(self, candidate: Candidate) -> Candidate | None:
        """The candidate with the least on the CPU that fits; None where nothing does."""
        candidate = self._queued(candidate)
        if self._edge == EXPERTS:
            candidate = candidate.with_keys({LAYERS: None})
        if self._edge is None:
            return candidate if self.fits(candidate) else None
        # The less lies on the CPU, the less RAM it takes: of those that the GPUs hold, the first one needs least.
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
        """The same with a step less on the GPUs; None where there is none."""
        if self._edge is None:
            return None
        steps = self._steps()
        place = steps.index(candidate[self._edge])
        return candidate.with_keys({self._edge: steps[place + 1]}) if place + 1 < len(steps) else None

    def fits(self, candidate: Candidate) -> bool:
        """Whether GPUs and RAM hold it beside the others; also where nobody can tell."""
        return self._is(candidate, lambda fit: fit.fits)

    def _gpus_hold(self, candidate: Candidate) -> bool:
        return self._is(candidate, lambda fit: all(left >= 0 for left in fit.spare))

    def _is(self, candidate: Candidate, so: Callable[[Fit], bool]) -> bool:
        try:
            instance = with_keys(self.rig.instances[self.name], candidate)
        except ValueError:
            return False
        rig = self.rig.model_copy(update={"instances": {**self.rig.instances, self.name: instance}})
        found = sized(rig, self.headers, self.projectors).get(self.name)
        return found is None or so(found.fit)

    def _steps(self) -> tuple[Value, ...]:
        """Values of the edge, the most on GPUs first."""
        header = self.headers[self.rig.instances[self.name].model]
        if self._edge == EXPERTS:
            return tuple(range(len(moe_layers(header)) + 1))
        return (None, *range(header.layers, -1, -1))

    def _queued(self, candidate: Candidate) -> Candidate:
        """What is computed at once is queued at once."""
        ubatch, declared = candidate["ubatch"], self.rig.instances[self.name].batch
        more = isinstance(ubatch, int) and ubatch > (declared or self.queued)
        return candidate.with_keys({BATCH: ubatch if more else declared})
