"""What was found beside what is declared, at the full depth of their context: one start of each. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from llamaherd.bench.courses.ladder import TIMES, TOKENS
from llamaherd.bench.statistics.intervals import Ratio, Sample, unpaired_ratio
from llamaherd.bench.statistics.verdict import Judgement, judge
from llamaherd.text.units import show_seconds
from llamaherd.tune.aim import Aim, Figures
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.journal import Search
from llamaherd.tune.lines import Deep, candidate_of
from llamaherd.tune.outcome import MARGIN
from llamaherd.tune.phrases import changes, ratio_text
from llamaherd.tune.probe import Sizes

_SPARE = 16
"""Tokens of a context that are left."""
_LONGER = 1.5
"""How many times as long all takes at depth as it does at the beginning, about."""
_LEAST = 2048
"""Tokens of a depth: what is read for every candidate is as deep."""


def depth_of(context: int) -> int:
    """How deep the context of a request is, with room for what is written there."""
    return context - TIMES * TOKENS - _SPARE


def seconds_for(depth: int, sizes: Sizes | None, figures: Figures, load: float) -> float | None:
    """About how long it takes with both; None where nobody knows how fast they read or write."""
    if sizes is None or not sizes.prefill or not figures.decode:
        return None
    writing = TIMES * TOKENS / min(figures.decode.values())
    return 2 * (load + _LONGER * (depth / sizes.prefill + writing))


def left_out(depth: int, seconds: float | None, left: float) -> str:
    """Why it is not measured; empty where it is."""
    if depth < _LEAST:
        return "a request has no more context than what is read anyway"
    if seconds is None:
        return "it is not known how fast a prompt is read"
    if seconds > left:
        return (
            f"reading {depth:,} tokens with both takes about {show_seconds(seconds)}, "
            f"and {show_seconds(max(0.0, left))} of the budget are left for it"
        )
    return ""


@dataclass(frozen=True)
class Deeper:
    """Both at the same depth. What is compared is decode alone, or with how fast all of the prompt was read."""

    aim: Aim
    before: Deep
    after: Deep

    @property
    def ratio(self) -> Ratio | None:
        """How fast what was found is there beside what is declared; None where one of them gave no figures."""
        return unpaired_ratio([_samples(self.aim, self.before)], [_samples(self.aim, self.after)])

    @property
    def judgement(self) -> Judgement | None:
        """Whether it is faster there."""
        return judge(self.ratio, MARGIN) if self.ratio else None

    @property
    def doubt(self) -> str:
        """What speaks against what was found; empty where nothing does."""
        where = f"at a depth of {self.after.depth:,} tokens"
        if self.after.says and not self.before.says:
            return f"{where} it gave no figures: {self.after.says}"
        slower = self.judgement is not None and self.judgement.verdict == "slower"
        return f"{where} it is slower than what is declared: {ratio_text(self.ratio)}" if slower else ""


def deeper_of(search: Search, declared: Candidate, found: Candidate | None) -> Deeper | None:
    """Both at depth, where both were measured there."""
    if found is None or found == declared:
        return None
    before, after = search.deep.get(declared), search.deep.get(found)
    return Deeper(search.head.aim, before, after) if before and after else None


DEPTH_HEADINGS = ("", "decode there, t/s", "prefill of all of it, t/s", "beside what is declared", "verdict")


def depth_rows(deeper: Deeper, declared: Candidate) -> tuple[tuple[str, ...], ...]:
    """A row for each: figures, or why there are none; the ratio with its interval stands beside what was found."""
    verdict = str(deeper.judgement) if deeper.judgement else ""
    return (
        (*_row(deeper.before, declared), "", ""),
        (*_row(deeper.after, declared), ratio_text(deeper.ratio), verdict),
    )


def _row(deep: Deep, declared: Candidate) -> tuple[str, str, str]:
    decode = f"{fmean(deep.decode):.1f}" if deep.decode else deep.says or "-"
    prefill = f"{deep.prefill:,.0f}" if deep.prefill else "-"
    return changes(candidate_of(deep.keys), declared), decode, prefill


def _samples(aim: Aim, deep: Deep) -> list[Sample]:
    speed = Aim(purpose="turn" if aim.reads else "decode")
    scores = [
        speed.score(Figures(decode=dict.fromkeys(aim.kinds, decode), prefill=deep.prefill)) for decode in deep.decode
    ]
    return [Sample(score, 1.0) for score in scores if score]
