"""What a coarser cache costs: figures of the engine's own tool, and the limits that they are held to. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from llamaherd.bench.arms.divergence import Compared, Quality
from llamaherd.bench.results.provenance import Recorded
from llamaherd.tune.candidate import Candidate

KV = "kv"
PRECISE = ("f32", "f16", "bf16", "q8_0", "q6_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""Types of a cache, those that lose least first."""


class Limits(Recorded):
    """What a coarser cache may cost: the most mean divergence, and the least percent of the same likeliest tokens."""

    kld: Annotated[float, Field(gt=0)]
    same_top: Annotated[float, Field(ge=0, le=100)]

    def hold(self, quality: Quality) -> bool:
        """Whether figures keep to them, by their means."""
        return quality.kld.value <= self.kld and quality.same_top.value >= self.same_top

    def __str__(self) -> str:
        return f"mean KLD up to {self.kld:g}, same top from {self.same_top:g} %"


class Judged(Compared):
    """What came of judging a type of the cache beside f16, as a line of the journal."""

    line: Literal["judged"] = "judged"
    kv: str

    def passes(self, limits: Limits) -> bool:
        """Whether it may be proposed."""
        return self.quality is not None and limits.hold(self.quality)

    def __str__(self) -> str:
        if self.quality is None:
            return f"kv={self.kv} could not be judged: {self.says}"
        return f"kv={self.kv} beside f16: {self.figures}"


@dataclass(frozen=True)
class Cost:
    """Of a candidate whose cache is coarser than what is declared: what was judged of it, if it was by now."""

    kv: str
    judged: Judged | None

    def __str__(self) -> str:
        return str(self.judged) if self.judged else f"kv={self.kv} is not judged"


def coarser(candidate: Candidate, declared: Candidate) -> str | None:
    """The type of its cache where that is coarser than what is declared."""
    kv, usual = candidate[KV], declared[KV]
    if kv not in PRECISE or usual not in PRECISE:
        return None
    return str(kv) if PRECISE.index(str(kv)) > PRECISE.index(str(usual)) else None
