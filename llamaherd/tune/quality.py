"""What a coarser cache costs: figures of the engine's own tool with errors, and the limits that they are held to. Pure.

The errors are those of the mean over tokens, as if one token said nothing of the next.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from llamaherd.bench.results.provenance import Count, NotNegative, Recorded
from llamaherd.tune.candidate import Candidate

KV = "kv"
PRECISE = ("f32", "f16", "bf16", "q8_0", "q6_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""Types of a cache, those that lose least first."""

_MOST_TEXT = 1 << 20
"""Characters of the tool that are looked through."""
_NUMBER = r"(-?(?:[0-9]{1,40}(?:\.[0-9]{1,12})?|nan|inf))"
_ERROR = re.compile(r"^[\d.]+ E (.+)$", re.MULTILINE)
"""The first error that it logged, which is the cause of those after it. It ends with 0 all the same."""
_LETTERS = 200
_FLOOR = -0.01
"""The least that a mean divergence may be: it is none below nothing, but logits are kept in 16 bits."""


class Figure(Recorded):
    """A mean, and its standard error."""

    value: float
    error: NotNegative


class Quality(Recorded):
    """What the tool told. Percent are of all tokens; `ppl_ratio` is the logarithm of one, on the same text.

    Only the first two are judged by. Of two that are nearly the same, the tool may tell no error of the others.
    """

    kld: Figure
    same_top: Figure
    ppl: Figure | None = None
    ppl_base: Figure | None = None
    ppl_ratio: Figure | None = None
    p_change: Figure | None = None


class Limits(Recorded):
    """What a coarser cache may cost: the most mean divergence, and the least percent of the same likeliest tokens."""

    kld: Annotated[float, Field(gt=0)]
    same_top: Annotated[float, Field(ge=0, le=100)]

    def hold(self, quality: Quality) -> bool:
        """Whether figures keep to them, by their means."""
        return quality.kld.value <= self.kld and quality.same_top.value >= self.same_top

    def __str__(self) -> str:
        return f"mean KLD up to {self.kld:g}, same top from {self.same_top:g} %"


class Judged(Recorded):
    """What came of judging a type of the cache, as a line of the journal. Without `quality`, `says` is why not."""

    line: Literal["judged"] = "judged"
    kv: str
    context: Count = 0
    chunks: Count = 0
    quality: Quality | None = None
    says: str = ""
    seconds: NotNegative = 0.0

    def passes(self, limits: Limits) -> bool:
        """Whether it may be proposed."""
        return self.quality is not None and limits.hold(self.quality)

    def __str__(self) -> str:
        if self.quality is None:
            return f"kv={self.kv} could not be judged: {self.says}"
        kld, same = self.quality.kld, self.quality.same_top
        return (
            f"kv={self.kv} beside f16: mean KLD {kld.value:.5f} ± {kld.error:.5f}, same top {same.value:.2f} ± "
            f"{same.error:.2f} %, {self.chunks} x {self.context:,} tokens"
        )


@dataclass(frozen=True)
class Cost:
    """Of a candidate whose cache is coarser than what is declared: what was judged of it, if it was by now."""

    kv: str
    judged: Judged | None

    def __str__(self) -> str:
        return str(self.judged) if self.judged else f"kv={self.kv} is not judged"


class NoFiguresError(ValueError):
    """The tool told no figures, or none that can be."""


def quality_of(text: str) -> Quality:
    """The figures that the tool printed at its end. Raises NoFiguresError."""
    text = text[-_MOST_TEXT:]
    quality = Quality(
        kld=_required(text, "mean divergence", r"Mean +KLD: +"),
        same_top=_required(text, "share of same likeliest tokens", r"Same top p: +"),
        ppl=_figure(text, r"Mean PPL\(Q\) +: +"),
        ppl_base=_figure(text, r"Mean PPL\(base\) +: +"),
        ppl_ratio=_figure(text, r"Mean ln\(PPL\(Q\)/PPL\(base\)\) +: +"),
        p_change=_figure(text, r"Mean +Δp: +"),
    )
    kld, same = quality.kld.value, quality.same_top.value
    if kld < _FLOOR or not 0 <= same <= 100:
        raise NoFiguresError(f"its figures cannot be: mean KLD {kld:g}, same top {same:g} %")
    return quality


def coarser(candidate: Candidate, declared: Candidate) -> str | None:
    """The type of its cache where that is coarser than what is declared."""
    kv, usual = candidate[KV], declared[KV]
    if kv not in PRECISE or usual not in PRECISE:
        return None
    return str(kv) if PRECISE.index(str(kv)) > PRECISE.index(str(usual)) else None


def _required(text: str, what: str, line: str) -> Figure:
    found = _figure(text, line)
    if found is None:
        wrong = _ERROR.search(text)
        raise NoFiguresError(f"it tells no {what}{f': {wrong[1][:_LETTERS]}' if wrong else ''}")
    return found


def _figure(text: str, line: str) -> Figure | None:
    """That of the last line that begins so; None where there is none, or it is no number."""
    found = re.findall(rf"^{line}{_NUMBER} ± +{_NUMBER}", text, re.MULTILINE)
    value, error = map(float, found[-1]) if found else (math.nan, math.nan)
    return Figure(value=value, error=error) if math.isfinite(value) and math.isfinite(error) and error >= 0 else None
