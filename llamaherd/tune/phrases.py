"""Parts of the end of a search in words, for a terminal, a report and a comment alike. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.bench.statistics.intervals import Ratio
from llamaherd.bench.statistics.verdict import Judgement
from llamaherd.tune.aim import Aim
from llamaherd.tune.candidate import Candidate, Value
from llamaherd.tune.keys import settings_of
from llamaherd.tune.outcome import Standing


def changes(candidate: Candidate, declared: Candidate) -> str:
    """What is otherwise about a candidate: `threads=5, draft=null`."""
    return ", ".join(map(str, settings_of(candidate, declared))) or "as declared"


def keys_text(keys: Sequence[tuple[str, Value]]) -> str:
    """Keys that a step has changed: `ubatch=1024, no draft.mtp`."""
    given = Candidate(tuple(each for each in keys if each[1] is not None))
    off = [f"no {key}" for key, value in keys if value is None]
    return ", ".join([*([str(given)] if given.keys else []), *off]) or "the same"


def value_text(key: str, value: Value) -> str:
    """A value as an inventory has it; `none` where its key is left out."""
    return "none" if value is None else str(Candidate(((key, value),))).partition("=")[2]


def score_text(aim: Aim, standing: Standing) -> str:
    """How good it was in the rounds of the end, with its 95 % interval: `0.331 J a token (0.325 to 0.338)`."""
    told = standing.estimate
    if told is None:
        return aim.shown(standing.score)
    if told.low is None or told.high is None:
        return f"{aim.shown(standing.score)}, {told.counted}"
    ends = sorted((told.low, told.high), key=lambda score: float(aim.figure(score)))
    return f"{aim.shown(standing.score)} ({' to '.join(map(aim.figure, ends))})"


def verdict_text(aim: Aim, judgement: Judgement) -> str:
    """A verdict in the words of the aim: who takes less energy may well be slower."""
    word = {"faster": "takes less", "slower": "takes more"}.get(judgement.verdict) if aim.of_energy else None
    return word or str(judgement)


def percent(share: float) -> str:
    """A gain: `+4.2 %`."""
    return f"{100 * share:+.1f} %"


def ratio_text(ratio: Ratio | None) -> str:
    """How much better one is, with its 95 % interval: `+83.0 % (+44.1 to +131.9)`."""
    if ratio is None:
        return ""
    said = percent(ratio.value - 1)
    if ratio.ends is None:
        return said
    low, high = ratio.ends
    return f"{said} ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f})"
