"""The end of a search as other programs read it, and as lines of the inventory. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml

from llamaherd.bench.statistics.intervals import Estimate
from llamaherd.tune.candidate import Candidate
from llamaherd.tune.ending import Ending
from llamaherd.tune.front import OnFront
from llamaherd.tune.importance import Importance
from llamaherd.tune.keys import settings_of
from llamaherd.tune.outcome import Standing
from llamaherd.tune.power import power_json

_AT_DEPTH = {"prefill", "decode", "says"}


def ending_json(end: Ending) -> dict[str, Any]:
    """All of it."""
    return {
        "for": end.aim.purpose,
        "tried": end.tried,
        "seconds": round(end.seconds, 1),
        "declared": dict(end.declared.keys),
        "found": dict(end.found.keys) if end.found else None,
        "changes": yaml_lines(end),
        "standings": [_standing(each) for each in end.standings],
        "depth": _depth(end),
        "power": power_json(end.power) if end.power else ({"left_out": end.unlimited} if end.unlimited else {}),
        "steps": [
            {"number": each.number, "keys": dict(each.keys), "gain": each.gain, "score": each.score}
            for each in end.steps
        ],
        "importance": [_importance(each) for each in end.importances],
        "front": [_on_front(each) for each in end.front.candidates],
        "failed": dict(Counter(each.why for each in end.failed)),
        "failures": [
            {"number": each.number, "keys": dict(each.candidate.keys), "why": each.why, "says": each.says}
            for each in end.failed
        ],
        **({"judged": [each.model_dump(exclude={"line"}) for each in end.judged]} if end.judged else {}),
    }


def yaml_lines(end: Ending) -> str:
    """What would be otherwise in the inventory, as its lines; empty where nothing would be."""
    return "" if end.found is None else yaml_of(end.found, end.declared)


def yaml_of(candidate: Candidate, declared: Candidate) -> str:
    """A candidate's keys that are not as declared, as lines of an instance."""
    data: dict[str, Any] = {}
    for each in settings_of(candidate, declared):
        at = data
        for key in each.path[:-1]:
            at = at.setdefault(key, {})
        at[each.path[-1]] = each.value
    return yaml.safe_dump(data, sort_keys=False) if data else ""


def _standing(each: Standing) -> dict[str, Any]:
    return {
        "keys": dict(each.candidate.keys),
        "score": each.score,
        "interval": _interval(each.estimate),
        "beside": [each.beside.value, each.beside.low, each.beside.high] if each.beside else None,
        "verdict": each.judgement.verdict if each.judgement else None,
    }


def _depth(end: Ending) -> dict[str, Any]:
    """What was found beside what is declared at the full depth; or why nothing is known of that."""
    deeper = end.deeper
    if deeper is None:
        return {"left_out": end.shallow} if end.shallow else {}
    ratio, judgement = deeper.ratio, deeper.judgement
    return {
        "tokens": deeper.after.depth,
        "declared": deeper.before.model_dump(mode="json", include=_AT_DEPTH),
        "found": deeper.after.model_dump(mode="json", include=_AT_DEPTH),
        "beside": [ratio.value, ratio.low, ratio.high] if ratio else None,
        "verdict": judgement.verdict if judgement else None,
    }


def _interval(told: Estimate | None) -> list[float] | None:
    """The least and the most that the score may be; None where its rounds do not tell."""
    return [told.low, told.high] if told and told.low is not None and told.high is not None else None


def _importance(each: Importance) -> dict[str, Any]:
    return {
        "key": each.key,
        "share": each.share,
        "value": each.value,
        "best_with": each.best_with,
        "other": each.other,
        "best_without": each.best_without,
        "alone": each.alone,
    }


def _on_front(each: OnFront) -> dict[str, Any]:
    return {"keys": dict(each.candidate.keys), "figures": dict(each.figures)}
