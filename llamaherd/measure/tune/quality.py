"""What a coarser cache or other weights cost in quality: measured figures, and their limits. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from llamaherd.measure.results.result import Recorded
from llamaherd.measure.trials.divergence import Compared, Quality
from llamaherd.measure.tune.candidate import Candidate

KV, MODEL = "kv", "model"
PRECISE = ("f32", "f16", "bf16", "q8_0", "q6_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""Types of a cache, those that lose least first."""
_Named = Annotated[str, Field(max_length=200)]


class Limits(Recorded):
    """What a candidate may cost: the most mean divergence, and the least percent of the same likeliest tokens."""

    kld: Annotated[float, Field(gt=0)]
    same_top: Annotated[float, Field(ge=0, le=100)]

    def hold(self, quality: Quality) -> bool:
        """Whether figures keep to them, by their means."""
        return quality.kld.value <= self.kld and quality.same_top.value >= self.same_top

    def __str__(self) -> str:
        return f"mean KLD up to {self.kld:g}, same top from {self.same_top:g} %"


@dataclass(frozen=True)
class Precision:
    """How exactly a candidate computes, where that is to be judged: its cache, and its weights if they are others.

    `kv` is empty where its cache is as it is declared, and of two types. `model` is empty for the declared weights,
    which are judged beside themselves; `beside` names those that others are judged beside.
    """

    kv: str
    model: str = ""
    beside: str = ""

    @property
    def exact(self) -> str:
        """What it is judged beside."""
        return f"model={self.beside} with kv=f16" if self.model else "f16"

    def __str__(self) -> str:
        words = [f"model={self.model}"] * bool(self.model) + [f"kv={self.kv}"] * bool(self.kv)
        return ", ".join(words)


class Judged(Compared):
    """What came of judging how exactly a candidate computes, as a line of the journal."""

    line: Literal["judged"] = "judged"
    kv: str
    model: _Named = ""
    beside: _Named = ""

    @property
    def precision(self) -> Precision:
        """What was judged."""
        return Precision(self.kv, self.model, self.beside)

    def passes(self, limits: Limits) -> bool:
        """Whether it may be proposed."""
        return self.quality is not None and limits.hold(self.quality)

    def __str__(self) -> str:
        if self.quality is None:
            return f"{self.precision} could not be judged: {self.says}"
        return f"{self.precision} beside {self.precision.exact}: {self.figures}"


@dataclass(frozen=True)
class Cost:
    """Of a candidate that may say other things than what is declared: what was judged of it, if it was by now."""

    precision: Precision
    judged: Judged | None

    def __str__(self) -> str:
        return str(self.judged) if self.judged else f"{self.precision} is not judged"


def precision_of(candidate: Candidate, declared: Candidate, finest: str) -> Precision | None:
    """How exactly it computes, where that is to be judged: a coarser cache than the declared one, or other weights.

    `finest` names the weights that lose least: with those, and a cache that is no coarser, there is nothing to judge.
    """
    model, kv = candidate[MODEL], _coarser(candidate, declared)
    if model == declared[MODEL]:
        return Precision(kv) if kv else None
    if model == finest and kv is None:
        return None
    return Precision(str(candidate[KV] or ""), str(model), finest)


def _coarser(candidate: Candidate, declared: Candidate) -> str | None:
    """The type of its cache where that is coarser than what is declared."""
    kv, usual = candidate[KV], declared[KV]
    if kv not in PRECISE or usual not in PRECISE:
        return None
    return str(kv) if PRECISE.index(str(kv)) > PRECISE.index(str(usual)) else None
