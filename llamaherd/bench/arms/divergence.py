"""How far two ways to compute a model are from each other: figures of the engine's own tool, with their errors. Pure.

The errors are those of the mean over tokens, as if one token said nothing of the next.
"""

from __future__ import annotations

import math
import re

from llamaherd.bench.results.provenance import Count, NotNegative, Recorded

_MOST_TEXT = 1 << 20
"""Characters of the tool that are looked through."""
_NUMBER = r"(-?(?:[0-9]{1,40}(?:\.[0-9]{1,12})?|nan|inf))"
_ERROR = re.compile(r"^[\d.]+ E (.+)$", re.MULTILINE)
"""The first error that it logged, which is the cause of those after it. It ends with 0 all the same."""
_OTHER_WORDS = re.compile(r"inconsistent vocabulary \((\d{1,9}) vs (\d{1,9})\)")
"""It says so, and goes on."""
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


class Compared(Recorded):
    """What came of having a text read in both ways. Without `quality`, `says` is why there are no figures."""

    context: Count = 0
    chunks: Count = 0
    quality: Quality | None = None
    says: str = ""
    seconds: NotNegative = 0.0

    @property
    def figures(self) -> str:
        """Mean divergence and share of the same likeliest tokens, for people; empty where there are none."""
        if self.quality is None:
            return ""
        kld, same = self.quality.kld, self.quality.same_top
        return (
            f"mean KLD {kld.value:.5f} ± {kld.error:.5f}, same top {same.value:.2f} ± {same.error:.2f} %, "
            f"{self.chunks} x {self.context:,} tokens"
        )


class NoFiguresError(ValueError):
    """The tool told no figures, or none that can be."""


def quality_of(text: str) -> Quality:
    """The figures that the tool printed at its end. Raises NoFiguresError."""
    text = text[-_MOST_TEXT:]
    if other := _OTHER_WORDS.search(text):
        raise NoFiguresError(f"both have other tokens, {int(other[1]):,} and {int(other[2]):,} of them")
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
