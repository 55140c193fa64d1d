"""The page of a report: read its results and searches, and put overview, charts and tables in their order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import get_args

from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.report.charts import (
    NONE,
    Axis,
    Bar,
    Bars,
    Chart,
    Pane,
    Point,
    Series,
    Table,
    cells_table,
    context_table,
    days,
    fewest,
    figure,
    memory_table,
    plus_minus,
    rounded,
    share,
    tokens,
    without_empty,
)
from llamaherd.measure.report.curves import result_charts
from llamaherd.measure.report.results import Figure, Measured, MeasuredCell, check_measured
from llamaherd.measure.report.searches import FinishedSearch, search_chart, search_tables
from llamaherd.measure.results.lookup import read_results
from llamaherd.measure.results.metrics import DECODE, FIRST_TOKEN, PREFILL, STEP, Metric
from llamaherd.measure.results.result import Condition, Kind
from llamaherd.measure.results.store import folders_in, read_result, result_files
from llamaherd.measure.tune.final_measurements import power_lines
from llamaherd.measure.tune.journal import SEARCH_NAME, read_search, searches
from llamaherd.measure.tune.result import Shares, search_result, yaml_lines

MOST = 2_000
"""The most results in a report, the newest of each instance first."""
MOST_SEARCHES = 20
"""The most searches in a report, the newest of each instance first."""
_MOST_READ, _MOST_TRIALS = 100, 5_000
"""The most files of searches, and trials of one: real searches have fewer."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


@dataclass(frozen=True)
class Gathered:
    """The results and finished searches of a report, and a message for each unreadable file.

    `beyond` names those of which there are more than the limit.
    """

    found: tuple[Measured, ...]
    left_out: tuple[str, ...]
    searches: tuple[FinishedSearch, ...] = ()
    beyond: str = ""


def gather_results(words: Sequence[str], results: Path, shares: Callable[[], Shares | None] = lambda: None) -> Gathered:
    """Return the named results, or all in `results/`. Raise UserError if a word names nothing.

    `shares` returns the function for the importance of keys. It is called only if there is a search.
    """
    found: dict[tuple[str, str, str], Measured] = {}
    left_out: list[str] = []
    files: dict[Path, None] = {}
    sought: dict[Path, None] = {}
    for word in words:
        if not Path(word).is_file():
            named, its = _named(word, results)
            files |= dict.fromkeys(named)
            sought |= dict.fromkeys(its)
        elif SEARCH_NAME.fullmatch(Path(word).name):
            sought[Path(word)] = None
        else:
            found |= {_key(each): each for each in _in_file(Path(word))}
    if not words:
        files |= dict.fromkeys(_all(results, result_files))
        sought |= dict.fromkeys(_all(results, searches))
    found |= _measured(list(files), left_out)
    ended = _ended(list(sought), shares, left_out)
    if not found and not ended:
        why = left_out[0] if left_out else f"there are no results in {results}"
        raise UserError(why, "name files with results; `herd explain report` lists the supported formats")
    every = sorted(found.values(), key=lambda each: (each.rig, each.instance, each.label, each.began, each.id))
    many = len(ended) == MOST_SEARCHES and len(sought) > MOST_SEARCHES
    beyond = f"of {len(sought)} searches {MOST_SEARCHES} are shown; a report of one rig has its own" if many else ""
    return Gathered(tuple(every), tuple(left_out), ended, beyond)


def _measured(files: Sequence[Path], left_out: list[str]) -> dict[tuple[str, str, str], Measured]:
    """Return the results of files, up to the limit. Append errors."""
    found = {}
    for path in files[:MOST]:
        try:
            each = check_measured(read_result(path), str(path))
        except UserError as error:
            left_out.append(error.message)
        else:
            found[_key(each)] = each
    if len(files) > MOST:
        left_out.append(f"{len(files) - MOST:,} older results are left out: no more than {MOST:,} are read")
    return found


def _ended(
    files: Sequence[Path], shares: Callable[[], Shares | None], left_out: list[str]
) -> tuple[FinishedSearch, ...]:
    """Return the finished searches of files, up to the limit. Append errors."""
    found: list[FinishedSearch] = []
    importance = shares() if files else None
    for path in files[:_MOST_READ]:
        if len(found) == MOST_SEARCHES:
            break
        try:
            search = read_search(path)
        except UserError as error:
            left_out.append(error.message)
            continue
        if len(search.trials) > _MOST_TRIALS:
            left_out.append(f"{path} has {len(search.trials):,} trials, which no search has")
        elif search.found:
            end = search_result(search, shares=importance)
            found.append(FinishedSearch(search.head, search.found.ended, path.name, end, tuple(search.measurements)))
    return tuple(sorted(found, key=lambda each: (each.head.rig, each.head.instance, each.head.began)))


def _key(each: Measured) -> tuple[str, str, str]:
    return each.began, each.id, each.label


def _in_file(path: Path) -> Iterator[Measured]:
    """Return the results of a file. Unnamed ones are named after the file, as in `herd compare`."""
    read = read_results(path)
    for number, result in enumerate(read, start=1):
        each = check_measured(result, str(path))
        name = f"{path.name}:{number}" if len(read) > 1 else path.name
        if result.shared:
            # Shared files have the same rig and instance names: two of them may be of different instances.
            each = replace(each, rig="shared", instance=path.name, label=path.name)
        yield replace(each, label=name) if each.less and not result.stack else each


def _named(word: str, results: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of results and of searches of a rig or an instance. Raise UserError."""
    rig, _, instance = word.partition("/")
    if not _NAME.fullmatch(rig) or (instance and not _NAME.fullmatch(instance)):
        raise UserError(f"there is no file {word}", "name a file with results, a rig, or RIG/INSTANCE")
    names = [instance] if instance else folders_in(results / rig)
    files = [file for name in names for file in result_files(results, rig, name)]
    sought = list(_in_turn([searches(results, rig, name) for name in names]))
    if not files and not sought:
        raise UserError(f"there is no result of {word} in {results}", "name a file with results instead")
    return files, sought


def _all(results: Path, of: Callable[[Path, str, str], Sequence[Path]]) -> Iterator[Path]:
    """Return all files: the newest of each instance before the second newest of any."""
    return _in_turn([of(results, rig, name) for rig in folders_in(results) for name in folders_in(results / rig)])


def _in_turn(each: Sequence[Sequence[Path]]) -> Iterator[Path]:
    for place in range(max(map(len, each), default=0)):
        yield from (files[place] for files in each if place < len(files))


KINDS: tuple[str, ...] = get_args(Kind)
"""The kinds of text in the order of the suite; those of other programs come last."""

_CACHES = ("cold", "unknown", "warm")
_OVERHEAD = 1000
"""The tokens of a prompt below which overhead dominates its prefill time."""


def representative(cells: Sequence[MeasuredCell], metric: Metric, kind: str | None = None) -> MeasuredCell | None:
    """Return the cell that measured a metric with the fewest parallel requests and the fewest cached tokens.

    For prefill, it is the shortest cold prompt of at least a thousand tokens with an empty context: shorter prompts
    measure mostly overhead.
    """
    found = [each for each in cells if each.figure(metric) and kind in (None, each.condition.kind)]
    if metric is not DECODE:
        return min(found, key=_prefill_order, default=None)
    return min(found, key=_decode_order, default=None)


def _decode_order(cell: MeasuredCell) -> tuple[float, ...]:
    condition = cell.condition
    limit = condition.power_limit_watts or 0
    return condition.concurrency, cell.filled, condition.context or 0, limit, -condition.generated


def _prefill_order(cell: MeasuredCell) -> tuple[float, ...]:
    condition = cell.condition
    short = (condition.prompt or 0) < _OVERHEAD
    return (
        condition.concurrency,
        _CACHES.index(condition.cache),
        condition.depth,
        short,
        condition.prompt or 0,
        condition.power_limit_watts or 0,
    )


def figure_of(cells: Sequence[MeasuredCell], metric: Metric, kind: str | None = None) -> Figure | None:
    """Return the representative value of a metric."""
    cell = representative(cells, metric, kind)
    return cell.figure(metric) if cell else None


def kinds_of(results: Iterable[Measured]) -> tuple[str, ...]:
    """Return the kinds of text for which any result measured decode."""
    found = {cell.condition.kind for each in results for cell in each.cells if cell.figure(DECODE)}
    return tuple(kind for kind in KINDS if kind in found)


_MOST_BARS = 12
"""The most rows of the chart; the table contains all."""


@dataclass(frozen=True)
class LeaderboardRow:
    """The newest result of a stack. `stale`: its instance has a newer result of another stack."""

    result: Measured
    stale: bool


def leaderboard(results: Sequence[Measured]) -> tuple[LeaderboardRow, ...]:
    """Return the rows, fastest first by the first kind of text that each has, stale rows included."""
    newest: dict[tuple[str, str, str], Measured] = {}
    last: dict[tuple[str, str], Measured] = {}
    for each in sorted(results, key=lambda each: each.order):
        # The instance of other programs' results is unknown: each is a row.
        newest[each.rig, each.instance, each.id if each.less else each.stack] = each
        last[each.rig, each.instance] = each
    rows = [
        LeaderboardRow(each, not each.less and each is not last[each.rig, each.instance]) for each in newest.values()
    ]
    return tuple(sorted(rows, key=_row_order))


def _row_order(row: LeaderboardRow) -> tuple[float, str, str]:
    each = row.result
    speeds = [found.value for kind in kinds_of([each]) if (found := figure_of(each.cells, DECODE, kind))]
    return -(speeds[0] if speeds else 0.0), each.label, each.began


def leaderboard_table(rows: Sequence[LeaderboardRow], *, short: bool = True) -> Table:
    """Return the rows as a table; `short` shows half of an interval instead of its ends."""
    kinds = kinds_of([row.result for row in rows])
    show = plus_minus if short else figure
    headings = ("what", *(f"{kind}, t/s" for kind in kinds), "prefill, t/s", "first token, ms")
    headings += ("accepted", "J/token", "context", "measured")
    made = []
    for row in rows:
        each = row.result
        speeds = [_figure_text(representative(each.cells, DECODE, kind), DECODE, show) for kind in kinds]
        rest = [_figure_text(representative(each.cells, metric), metric, show) for metric in (PREFILL, FIRST_TOKEN)]
        name = " on ".join(filter(None, [row_name(row), each.processors]))
        made.append((name, *speeds, *rest, *_last_columns(each)))
    grey = frozenset(at for at, row in enumerate(rows) if row.stale)
    return without_empty(Table("Every stack by its newest result", headings, tuple(made), grey))


def _figure_text(cell: MeasuredCell | None, metric: Metric, show: Callable[[Figure | None], str]) -> str:
    """Return a value, with the tokens in the context if the condition sets them."""
    if cell is None:
        return NONE
    return f"{show(cell.figure(metric))} at {tokens(cell.filled)}" if cell.filled else show(cell.figure(metric))


def row_name(row: LeaderboardRow) -> str:
    """Return the name of a row: the instance, with model, quant and engine, as far as known."""
    each = row.result
    named = f"{each.label}: {each.named}" if each.named else each.label
    return f"{named} (stale)" if row.stale else f"{named} (imported)" if each.less else named


def _last_columns(each: Measured) -> tuple[str, ...]:
    cell = representative(each.cells, DECODE)
    context = each.context or max((one.condition.context or one.filled for one in each.cells), default=0)
    return (
        share(cell.acceptance if cell else None),
        NONE if cell is None or cell.joules is None else rounded(cell.joules),
        f"{context:,}" if context else NONE,
        each.day or NONE,
    )


def bars_by_kind(rows: Sequence[LeaderboardRow]) -> Iterator[Chart]:
    """Return the fastest row for each kind of text that several stacks have."""
    panes = []
    for kind in kinds_of([row.result for row in rows]):
        bars = [_bar(row, found) for row in rows if (found := figure_of(row.result.cells, DECODE, kind))]
        if len(bars) > 1:
            now = sorted(bars, key=lambda each: (each.grey, -each.value))[:_MOST_BARS]
            most = sorted(now, key=lambda each: -each.value)
            about = f"{len(most)} stacks, the fastest is {most[0].name} with {rounded(most[0].value)} t/s"
            panes.append(Bars(f"Decode: {kind}", about, "tokens a second", tuple(most)))
    if panes:
        left = "" if all(len(each.bars) < _MOST_BARS for each in panes) else f" No more than {_MOST_BARS} are drawn."
        caption = "Lines are 95 % intervals, where there are several runs. Speeds of different kinds do not compare."
        yield Chart("The fastest by kind of text", caption + left, bars=tuple(panes))


def _bar(row: LeaderboardRow, found: Figure) -> Bar:
    low, high = found.ends or (None, None)
    return Bar(row_name(row), found.value, low, high, plus_minus(found), row.stale)


MOST_LISTED = 30
"""The most results in the table: the newest ones."""


@dataclass(frozen=True)
class TrackedCondition:
    """A condition that is shown over time, and its name."""

    name: str
    condition: Condition


def history_charts(results: Sequence[Measured]) -> Iterator[Chart]:
    """Return speed by kind of text, step time, prefill, time to first token and energy over time."""
    in_order = sorted(results, key=lambda each: (each.began, each.id))
    kinds = [one for kind in kinds_of(in_order) if (one := _tracked(in_order, kind, DECODE, kind))]
    prefill = [one] if (one := _tracked(in_order, "prefill", PREFILL)) else []
    first = [one] if (one := _tracked(in_order, "first token", FIRST_TOKEN)) else []
    panes = [
        _history_pane("Decode", "t/s", [_metric_series(in_order, one, DECODE) for one in kinds]),
        _history_pane("Time of a step", "ms", [_metric_series(in_order, one, STEP) for one in kinds]),
        _history_pane("Prefill", "t/s", [_metric_series(in_order, one, PREFILL) for one in prefill]),
        _history_pane("Time to the first token", "ms", [_metric_series(in_order, one, FIRST_TOKEN) for one in first]),
        _history_pane("Energy", "J/token", [_energy_series(in_order, one) for one in kinds]),
    ]
    found = tuple(pane for pane in panes if pane)
    if found:
        caption = f"{len(in_order)} results, {in_order[0].day} to {in_order[-1].day}. Lines are 95 % intervals."
        suites = {each.suite for each in in_order if each.suite}
        more = " Their prompts are not the same: compare those of one suite alone." if len(suites) > 1 else ""
        columns = [*((one, DECODE) for one in kinds), *((one, PREFILL) for one in prefill)]
        table = _history_table(in_order[: -MOST_LISTED - 1 : -1], columns)
        yield Chart("Over time", caption + more, found, table=table)


def _tracked(
    results: Sequence[Measured], name: str, metric: Metric, kind: str | None = None
) -> TrackedCondition | None:
    """Return the condition that most results share: only equal conditions are comparable."""
    found = [cell.condition for each in results if (cell := representative(each.cells, metric, kind))]
    if not found:
        return None
    ((condition, _),) = Counter(reversed(found)).most_common(1)
    return TrackedCondition(name, condition)


def _cell_of(each: Measured, followed: TrackedCondition) -> MeasuredCell | None:
    return next((cell for cell in each.cells if cell.condition == followed.condition), None)


def _history_table(results: Sequence[Measured], columns: Sequence[tuple[TrackedCondition, Metric]]) -> Table:
    """Return a table with a row for each result."""
    rows = []
    for each in results:
        cells = [(_cell_of(each, followed), metric) for followed, metric in columns]
        figures = [figure(cell.figure(metric) if cell else None) for cell, metric in cells]
        doubts = str(len(each.doubts)) if each.doubts else NONE
        rows.append((each.began.replace("T", " ").rstrip("Z"), *figures, each.stack or NONE, doubts))
    named = (f"{followed.condition}: {metric.name}, {metric.unit}" for followed, metric in columns)
    return without_empty(Table("Over time", ("measured, UTC", *named, "stack", "doubts"), tuple(rows)))


def _history_pane(title: str, unit: str, every: Sequence[Series]) -> Pane | None:
    kept = fewest(each for each in every if len(each.points) > 1)
    if not kept:
        return None
    about = "; ".join(f"{each.name}: from {each.points[0].about} to {each.points[-1].about}" for each in kept)
    return Pane(title, f"{unit} by date. {about}", Axis("", "date"), Axis(unit, zero=True), kept)


def _metric_series(results: Sequence[Measured], followed: TrackedCondition, metric: Metric) -> Series:
    points = []
    for each in results:
        cell = _cell_of(each, followed)
        if cell and (found := cell.figure(metric)):
            low, high = found.ends or (None, None)
            about = f"{each.day}: {figure(found)} {metric.unit}"
            points.append(Point(days(each.began), found.value, low, high, about))
    return Series(followed.name, tuple(points))


def _energy_series(results: Sequence[Measured], followed: TrackedCondition) -> Series:
    found = [(each, cell.joules) for each in results if (cell := _cell_of(each, followed)) and cell.joules]
    points = [Point(days(each.began), joules, about=f"{each.day}: {rounded(joules)} J/token") for each, joules in found]
    return Series(followed.name, tuple(points))


_ALL, _BESIDE = "Everything that was measured", "Everything else that was measured"


@dataclass(frozen=True)
class Part:
    """An instance, a result of another program, or a search: its newest result and its history.

    `tables` contain all values, `rest` those in no table of its charts. `lines` are the YAML of a search's result.
    """

    name: str
    title: str
    anchor: str
    facts: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...]
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    rest: tuple[Table, ...]
    charts: tuple[Chart, ...]
    lines: str = ""

    @property
    def chart_names(self) -> tuple[str, ...]:
        """Return the name of each chart, which is its anchor on a page."""
        return tuple(f"{self.anchor}-{at}" for at in range(1, len(self.charts) + 1))


@dataclass(frozen=True)
class Group:
    """A rig with its instances, all results of other programs, or all searches."""

    title: str
    anchor: str
    machine: tuple[str, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Page:
    """A report. `since` and `until` are the days of its oldest and newest dated result."""

    title: str
    results: int
    since: str
    until: str
    leaderboard: Table
    charts: tuple[Chart, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...]
    searches: int = 0

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts of all groups."""
        return tuple(part for group in self.groups for part in group.parts)

    @property
    def about(self) -> str:
        """Return the number of results and searches, and their dates."""
        counts = ((self.results, "result", "results"), (self.searches, "search", "searches"))
        many = " and ".join(f"{count} {one if count == 1 else more}" for count, one, more in counts if count)
        days = self.until if self.since == self.until else f"{self.since} to {self.until}"
        return f"{many}, {days}" if days else many


def page(gathered: Gathered) -> Page:
    """Return the page of results and searches."""
    found = sorted(gathered.found, key=lambda each: (each.rig, each.instance, each.label, each.began, each.id))
    rows = leaderboard(found)
    days = [each.day for each in found] + [each.head.began[:10] for each in gathered.searches]
    days = sorted(each for each in days if each) or [""]
    return Page(
        title=_title([*(row.result for row in rows)]),
        results=len(found),
        since=days[0],
        until=days[-1],
        leaderboard=leaderboard_table(rows),
        charts=tuple(bars_by_kind(rows)),
        groups=(*_groups(found), *_searches(gathered.searches)),
        notes=(*_suites(found), *filter(None, [gathered.beyond]), *gathered.left_out),
        searches=len(gathered.searches),
    )


_MOST_NAMED = 2


def _title(every: Sequence[Measured]) -> str:
    """Return a title with models, GPUs and engines: their names, or how many there are."""
    kinds = (
        ([each.weights for each in every], "models"),
        ([each.processors for each in every], "sets of GPUs"),
        ([each.engine for each in every], "engines"),
    )
    parts = []
    for names, what in kinds:
        known = list(dict.fromkeys(names))
        if all(known):  # a title about some results alone would mislead
            parts.append(" and ".join(known) if len(known) <= _MOST_NAMED else f"{len(known)} {what}")
    about = " · ".join(filter(None, parts))
    return f"Measured speeds: {about}" if about else "Measured speeds"


def _suites(found: Sequence[Measured]) -> Iterator[str]:
    suites = {each.suite for each in found if each.suite}
    if len(suites) > 1:
        yield f"these were measured with {len(suites)} different suites of prompts: compare those of the same alone"
    if any(each.less for each in found):
        yield "imported results lack details, mostly their prompts and their machine"


def _groups(found: Sequence[Measured]) -> Iterator[Group]:
    ours = [each for each in found if not each.less]
    for number, (rig, its) in enumerate(groupby(ours, lambda each: each.rig), start=1):
        results = list(its)
        newest = max(results, key=lambda each: each.order)
        parts = [
            _part(list(one), f"rig-{number}-{at}", newest.machine)
            for at, (_, one) in enumerate(groupby(results, lambda each: each.instance), start=1)
        ]
        title = ": ".join(filter(None, [rig, newest.processors]))
        yield Group(title, f"rig-{number}", newest.machine, tuple(parts))
    if others := [each for each in found if each.less]:
        parts = [_part([each], f"imported-{at}", ()) for at, each in enumerate(others, start=1)]
        yield Group("Imported", "imported", (), tuple(parts))


def _searches(every: Sequence[FinishedSearch]) -> Iterator[Group]:
    if every:
        parts = [_search(each, f"search-{at}") for at, each in enumerate(every, start=1)]
        yield Group("Searches", "searches", (), tuple(parts))


def _search(each: FinishedSearch, anchor: str) -> Part:
    end = each.end
    began, ended = (stamp.replace("T", " ").rstrip("Z") for stamp in (each.head.began, each.ended))
    facts = (
        ("searched", f"{began} to {ended} UTC by llamaherd {each.head.llamaherd}"),
        ("tried", f"{end.tried} candidates in {end.seconds / 60:.1f} min"),
        ("file", each.file),
    )
    keys = yaml_lines(end)
    nothing = () if keys else ("no settings are significantly better than the declared ones",)
    notes = (*map(str, end.judged), *nothing, *filter(None, (end.doubt, *end.notes)))
    # The keys of an instance and of a rig are in two places of a file.
    lines = "\n".join(filter(None, (keys, power_lines(end.power) if end.power else "")))
    tables = tuple(search_tables(each))
    return Part(each.label, each.label, anchor, facts, (), notes, tables, tables, (search_chart(each),), lines)


def _part(results: Sequence[Measured], anchor: str, machine: tuple[str, ...]) -> Part:
    """Return the part of an instance: its newest result, its history, and its machine if it differs."""
    newest = max(results, key=lambda each: each.order)
    before = sorted(results, key=lambda each: (each.began, each.id), reverse=True)
    memory = [table] if (table := memory_table(newest)) else []
    over = [table] if (table := context_table(newest.cells)) else []
    charts = list(result_charts(newest))
    drawn = {condition for chart in charts for condition in chart.conditions}
    rest = [cell for cell in newest.cells if cell.condition not in drawn]
    if len(before) > 1:
        charts += history_charts(before)
    return Part(
        name=newest.label,
        title=": ".join(filter(None, [newest.label if newest.less else newest.instance, newest.named])),
        anchor=anchor,
        facts=tuple(_facts(newest, len(before), machine)),
        doubts=newest.doubts,
        notes=newest.notes,
        tables=(*over, cells_table(newest.cells, _ALL), *memory),
        rest=(
            *over,
            *([cells_table(rest, _BESIDE if drawn else _ALL)] if rest else []),
            *memory,
        ),
        charts=tuple(charts),
    )


def _facts(each: Measured, results: int, machine: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    when = f"{each.began.replace('T', ' ').rstrip('Z')} UTC" if each.dated else "at an unknown time,"
    yield "measured", f"{when} by {each.source}"
    if each.stack != each.label and not set(each.stack.split()) <= set(each.named.replace(",", "").split()):
        yield "stack", each.stack
    if each.machine != machine:
        yield "machine", ", ".join(each.machine)
    if each.serving:
        yield "served with", ", ".join(each.serving)
    if each.suite:
        yield "suite", each.suite
    if results > 1:
        yield "results", str(results)
