"""A rig that exists as a law alone: how fast it serves with which keys, and what memory they take.

A mixture of experts whose experts of some layers are in RAM, on one GPU that is too small for all. All of it follows
from a seed: memory, bandwidths, cores, how often drafts are accepted. What it has of real ones: an edge of memory, a
cliff of threads, a plateau of prefill, a draft that pays only where its tokens are not read from RAM one by one, and a
ubatch that makes prompts faster and takes memory from layers. `docs/measurements/tune.md` has its formulas.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import exp

from llamaherd.measure.tune.candidate import Candidate
from llamaherd.measure.tune.search import Axis, Space

LAYERS = 40
DEPTH, READ, WRITTEN = 8192, 2000, 500
"""A turn: tokens in the cache before it, new tokens of the prompt, tokens of the answer."""
CONTEXT = 65_536
EXPERTS, DRAFTED, SURE, KV, UBATCH, THREADS = "experts_on_cpu", "draft.mtp", "draft.p_min", "kv", "ubatch", "threads"
_KV_BYTES = {"f16": 2.0, "q8_0": 1.0625, "q4_0": 0.5625}
_KV_TIME = {"f16": 1.0, "q8_0": 1.06, "q4_0": 1.12}
UBATCHES = (64, 128, 256, 512, 1024, 2048, 4096)


@dataclass(frozen=True)
class LawRig:
    """A rig's figures. GB are 10**9 bytes; times are seconds."""

    card: float
    layer: float
    expert_share: float
    active: float
    gpu_speed: float
    ram_speed: float
    pcie: float
    cores: int
    siblings: int
    accepted: float
    kv_layer: float
    compute: float
    noise: float = 0.01

    @classmethod
    def drawn(cls, seed: int, noise: float = 0.01) -> LawRig:
        """One of many homes."""
        lot = random.Random(seed)
        cores = lot.choice((6, 8, 12, 16))
        return cls(
            card=lot.uniform(8, 22),
            layer=lot.uniform(0.4, 0.62),
            expert_share=lot.uniform(0.86, 0.93),
            active=lot.uniform(0.04, 0.09),
            gpu_speed=lot.uniform(350, 950),
            ram_speed=lot.uniform(38, 90),
            pcie=lot.uniform(6, 24),
            cores=cores,
            siblings=lot.choice((1, 2)),
            accepted=lot.uniform(0.25, 0.92),
            kv_layer=lot.uniform(0.02, 0.07),
            compute=lot.uniform(0.5, 1.6),
            noise=noise,
        )

    @property
    def logical(self) -> int:
        """Logical processors."""
        return self.cores * self.siblings

    def taken(self, candidate: Candidate) -> float:
        """GB of the GPU."""
        away = int(str(candidate[EXPERTS] or 0))
        weights = self.layer * (LAYERS - away * self.expert_share)
        cache = self.kv_layer * LAYERS * _KV_BYTES[str(candidate[KV] or "f16")] / 2
        drafting = self.layer + 0.1 * int(str(candidate[DRAFTED] or 0)) if candidate[DRAFTED] else 0.0
        return weights + cache + self.compute * int(str(candidate[UBATCH] or 512)) / 2048 + drafting + 0.8

    def fits(self, candidate: Candidate) -> bool:
        """Whether the GPU holds it."""
        return self.taken(candidate) <= self.card

    def turn(self, candidate: Candidate) -> float:
        """Seconds that a turn takes."""
        return READ / self.prefill(candidate) + WRITTEN / self.decode(candidate)

    def score(self, candidate: Candidate) -> float:
        """Turns an hour."""
        return 3600 / self.turn(candidate)

    def _threads(self, count: int) -> float:
        """Share of the RAM's speed that so many threads reach."""
        if count >= self.logical and self.cores > 6:
            return 0.12  # the cliff: every one waits for one that waits for a processor
        if count > self.cores:
            return 0.7
        return 1 - exp(-3.2 * count / self.cores)

    def decode(self, candidate: Candidate) -> float:
        """Tokens a second."""
        away = int(str(candidate[EXPERTS] or 0))
        drafted, sure = int(str(candidate[DRAFTED] or 0)), float(str(candidate[SURE] or 0.0))
        kv = _KV_TIME[str(candidate[KV] or "f16")]
        active = self.layer * self.expert_share * self.active
        dense = self.layer * (1 - self.expert_share)
        on_gpu = (LAYERS * dense + (LAYERS - away) * active) / self.gpu_speed
        on_gpu += self.kv_layer * LAYERS * DEPTH / CONTEXT * kv / self.gpu_speed + 0.0025
        on_cpu = away * active / (self.ram_speed * self._threads(int(str(candidate[THREADS] or self.cores))))
        # A surer draft is shorter, and more of it is accepted.
        accepted = self.accepted + (1 - self.accepted) * 0.55 * sure
        length = drafted * (1 - 0.6 * sure * (1 - self.accepted))
        gained = (1 - accepted ** (length + 1)) / (1 - accepted) if drafted else 1.0
        step = on_gpu * (1 + 0.11 * length) + on_cpu * (1 + 0.62 * length) + drafted * 0.0006
        return gained / step

    def prefill(self, candidate: Candidate) -> float:
        """Tokens of a prompt a second."""
        away, ubatch = int(str(candidate[EXPERTS] or 0)), int(str(candidate[UBATCH] or 512))
        computed = ubatch / (self.gpu_speed * 6 * ubatch / (ubatch + 380))
        # Experts in RAM are brought over once for each ubatch.
        brought = away * self.layer * self.expert_share / self.pcie
        return ubatch / (computed + brought + 0.004)

    def space(self, *, arithmetic: bool = True) -> Space:
        """All keys; without `arithmetic`, what fits is found out by trying."""
        shares = {round(self.cores * share) for share in (0.25, 0.5, 0.75, 1)}
        threads = tuple(sorted({*shares, self.cores - 1, self.logical}))
        leaps = ({DRAFTED: 1}, {DRAFTED: 2, SURE: 0.75}, {DRAFTED: 3})
        rest = (
            Axis(THREADS, threads, down_first=True),
            Axis(UBATCH, UBATCHES),
            Axis(KV, ("f16", "q8_0", "q4_0")),
            Axis(DRAFTED, (None, 1, 2, 3, 4), leaps=leaps),
            Axis(SURE, (None, 0.5, 0.75, 0.9), needs=DRAFTED),
        )
        experts = Axis(EXPERTS, tuple(range(LAYERS, -1, -1)))
        if not arithmetic:
            return Space((experts, *rest), lambda candidate: candidate)
        return Space(rest, self._packed, (EXPERTS,))

    def _packed(self, candidate: Candidate) -> Candidate | None:
        tried = (candidate.with_keys({EXPERTS: away}) for away in range(LAYERS + 1))
        return next((each for each in tried if self.fits(each)), None)

    def best(self) -> float:
        """The most that any candidate reaches, of all there are."""
        return max(map(self.score, self._all()))

    def _all(self) -> Iterator[Candidate]:
        axes = self.space().axes
        seen: set[Candidate] = set()
        for values in product(*(axis.values for axis in axes)):
            found = self.space().tidy(Candidate.of(dict(zip((axis.key for axis in axes), values, strict=True))))
            if found in seen:
                continue
            seen.add(found)
            if packed := self._packed(found):
                yield packed
