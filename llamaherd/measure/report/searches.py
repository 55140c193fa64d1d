"""The finished searches of a report: tables, and a chart of all trials. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from llamaherd.measure.report.charts import (
    NONE,
    Axis,
    Chart,
    Level,
    Pane,
    Point,
    Series,
    Table,
    optional,
    rounded,
    without_empty,
)
from llamaherd.measure.tune.candidate import Candidate, Objective, Why
from llamaherd.measure.tune.final_measurements import (
    DEPTH_HEADINGS,
    POWER_HEADINGS,
    changes,
    depth_rows,
    keys_text,
    percent,
    power_rows,
    ratio_text,
    score_text,
    value_text,
    verdict_text,
)
from llamaherd.measure.tune.journal import Head, TriedCandidate, candidate_of
from llamaherd.measure.tune.result import FAILED, MEASURES, SearchResult

MOST_TRIALS = 500
"""The most trials of a search that are drawn: the first ones."""
_MOST_FAILED, _LETTERS = 30, 160
_DECODE, _PREFILL = MEASURES[0], MEASURES[1]


@dataclass(frozen=True)
class FinishedSearch:
    """A finished search, and the name of its file."""

    head: Head
    ended: str
    file: str
    end: SearchResult
    trials: tuple[TriedCandidate, ...]

    @property
    def label(self) -> str:
        """Return the name of the search."""
        return f"{self.head.rig}/{self.head.instance}: {self.end.aim}"

    @cached_property
    def scored(self) -> tuple[tuple[int, TriedCandidate, float | None], ...]:
        """Return trials with their numbers, and scores relative to the declared settings or the first trial."""
        scores = [None if each.why else self.head.aim.score(each.figures) for each in self.trials]
        base = next((score for score in scores if score), 1.0)
        return tuple(
            (at, each, score / base if score else None)
            for at, (each, score) in enumerate(zip(self.trials, scores, strict=True), start=1)
        )


def search_tables(each: FinishedSearch) -> Iterator[Table]:
    """Return the tables of a search: before and after, steps, importance, Pareto front, failures."""
    end = each.end
    if end.standings:
        yield _standings(end)
    if end.deeper:
        caption = f"At the full depth of a request, {end.deeper.after.depth:,} tokens, in one start of each"
        rows = tuple(tuple(_short(part) or NONE for part in row) for row in depth_rows(end.deeper, end.declared))
        yield Table(caption, ("what", *DEPTH_HEADINGS[1:]), rows)
    if end.power:
        rows = tuple(tuple(part or NONE for part in row) for row in power_rows(end.power))
        yield Table(f"The best settings under power limits, relative to {end.power.base} W", POWER_HEADINGS, rows)
    if end.steps:
        rows = tuple(
            (_short(keys_text(step.keys)), str(step.number), percent(step.gain), end.aim.shown(step.score))
            for step in end.steps
        )
        headings = ("change", "trial", "relative to the best so far", _unit(end.aim))
        yield Table("Steps: what took the place of the best one, as it was read then", headings, rows)
    if end.importances:
        yield _importance(end)
    if end.front.candidates:
        yield _front(end)
    if end.failed:
        yield _failed(end)


def search_chart(each: FinishedSearch) -> Chart:
    """Return a chart of all trials in order, and one of decode against prefill if both are known."""
    panes = [_in_order(each), *_decode_and_prefill(each)]
    left = len(each.trials) - MOST_TRIALS
    beyond = f" {left:,} later ones are not drawn." if left > 0 else ""
    caption = "Scores are relative to the declared settings: single measurements, until the best ones are restarted"
    rows = tuple(_trial_row(each, *one) for one in each.scored[:MOST_TRIALS])
    headings = ("change", "trial", _unit(each.end.aim), "relative", "decode, t/s", "prefill, t/s", "round")
    table = without_empty(Table("All that was tried", headings, rows))
    return Chart("All that was tried", f"{caption} again.{beyond}", tuple(panes), table=table)


def _in_order(each: FinishedSearch) -> Pane:
    drawn = each.scored[:MOST_TRIALS]
    tried = tuple(_point(each, *one) for one in drawn if one[1].round is None and one[2])
    again = tuple(_point(each, *one) for one in drawn if one[1].round is not None and one[2])
    failed = tuple(Point(at, 0.0, about=_about(each, at, trial, None)) for at, trial, score in drawn if not score)
    best = tuple(_best_by_now(tried, len(drawn)))
    series = [
        Series("best by then", best, marks=False),
        Series("tried", tried, line=False),
        Series("again", again, line=False),
        Series("failed", failed, line=False),
    ]
    most = max((point.y for point in tried), default=0.0)
    about = f"{len(tried)} candidates, the best one with {rounded(most)}; {len(failed)} failed, which are at nothing"
    kept = tuple(one for one in series if one.points)
    return Pane("Score", about, Axis("trial", whole=True), Axis("as declared is 1", zero=True), kept, (Level(1.0),))


def _best_by_now(tried: Sequence[Point], last: int) -> Iterator[Point]:
    """Return the points of a line of steps."""
    best: Point | None = None
    for each in tried:
        if best is None or each.y > best.y:
            if best:
                yield Point(each.x, best.y)
            yield each
            best = each
    if best:
        yield Point(float(last), best.y)


def _decode_and_prefill(each: FinishedSearch) -> Iterator[Pane]:
    every = [one for one in each.scored[:MOST_TRIALS] if one[2] and one[1].round is None]
    points = [
        (trial, Point(decode, prefill, about=_about(each, at, trial, score)))
        for at, trial, score in every
        if (decode := _DECODE.of(trial)) and (prefill := _PREFILL.of(trial))
    ]
    if len(points) < 2:
        return
    front = {one.candidate for one in each.end.front.candidates}
    on = tuple(point for trial, point in points if candidate_of(trial.keys) in front)
    off = tuple(point for trial, point in points if candidate_of(trial.keys) not in front)
    series = tuple(one for one in (Series("others", off, line=False), Series("front", on, line=False)) if one.points)
    about = "each candidate by decode and prefill; on the front, no other candidate is better in every measure"
    yield Pane("Prefill", about, Axis("decode, t/s", zero=True), Axis("t/s", zero=True), series)


def _point(each: FinishedSearch, at: int, trial: TriedCandidate, score: float | None) -> Point:
    return Point(at, score or 0.0, about=_about(each, at, trial, score))


def _about(each: FinishedSearch, at: int, trial: TriedCandidate, score: float | None) -> str:
    label = rounded(score) if score else _why(trial.why)
    return f"{at}: {_short(changes(candidate_of(trial.keys), each.end.declared))}: {label}"


def _trial_row(each: FinishedSearch, at: int, trial: TriedCandidate, score: float | None) -> tuple[str, ...]:
    aim = each.end.aim
    own = None if trial.why else aim.score(trial.figures)
    return (
        _short(changes(candidate_of(trial.keys), each.end.declared)),
        str(at),
        aim.shown(own) if own else _why(trial.why),
        optional(score),
        optional(_DECODE.of(trial)),
        optional(trial.figures.prefill),
        NONE if trial.round is None else str(trial.round + 1),
    )


def _why(why: Why | None) -> str:
    return FAILED[why or "answer"]


def _standings(end: SearchResult) -> Table:
    first = [each for each in (end.before, end.after) if each]
    rows = [
        (
            _named(each.candidate, end),
            score_text(end.aim, each),
            optional(each.code),
            optional(each.prefill),
            ratio_text(each.ratio) or NONE,
            verdict_text(end.aim, each.judgement) if each.judgement else NONE,
            str(len(each.trials)),
        )
        for each in [*first, *(one for one in end.standings if one not in first)]
    ]
    headings = ("settings", _unit(end.aim), "code, t/s", "prefill, t/s", "relative to declared", "verdict", "starts")
    caption = "Before and after: the best candidates and the declared settings, interleaved, with 95 % intervals"
    return without_empty(Table(caption, headings, tuple(rows)))


def _importance(end: SearchResult) -> Table:
    rows = tuple(
        (
            each.key,
            value_text(each.key, each.value),
            NONE if each.share is None else f"{100 * each.share:.0f} %",
            NONE if each.alone is None else percent(each.alone),
            f"{end.aim.shown(each.best_without)} with {value_text(each.key, each.other)}",
            percent(each.gain),
        )
        for each in end.importances
    )
    headings = ("key", "found", "share", "alone, at most", "best with another value", "relative")
    caption = "Importance: share by PED-ANOVA, the best tenth against the rest; alone, with no other key changed"
    return without_empty(Table(caption, headings, rows))


def _front(end: SearchResult) -> Table:
    front = end.front
    headings = ("what", *(f"{each.name}, {each.unit}" for each in front.measures))
    rows = tuple(
        (_named(each.candidate, end), *(rounded(each.figures[one.name]) for one in front.measures))
        for each in front.candidates
    )
    return Table("The front: none of these is better than another one in everything", headings, rows)


def _failed(end: SearchResult) -> Table:
    rows = tuple(
        (_named(each.candidate, end), str(each.number), FAILED[each.why], _short(each.says) or NONE)
        for each in end.failed[:_MOST_FAILED]
    )
    beyond = len(end.failed) - len(rows)
    more = f", and {beyond} more" if beyond else ""
    return Table(f"Failed candidates{more}", ("change", "trial", "reason", "output"), rows)


def _named(candidate: Candidate, end: SearchResult) -> str:
    return _short(changes(candidate, end.declared))


def _unit(aim: Objective) -> str:
    return {"turn": "a turn", "efficiency": "energy"}.get(aim.purpose, "score")


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]} …"
