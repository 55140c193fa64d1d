"""The content of a report in its order, before it becomes HTML, Markdown or text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from llamaherd.measure.report.charts import Chart
from llamaherd.measure.report.curves import result_charts
from llamaherd.measure.report.overview import bars_by_kind, history_charts, leaderboard, leaderboard_table
from llamaherd.measure.report.results import Measured
from llamaherd.measure.report.searches import FinishedSearch, search_chart, search_tables
from llamaherd.measure.report.sources import Gathered
from llamaherd.measure.report.tables import Table, cells_table, memory_table
from llamaherd.measure.tune.final_measurements import power_lines
from llamaherd.measure.tune.result import yaml_lines

_ALL, _BESIDE = "Everything that was measured", "Everything else that was measured"


@dataclass(frozen=True)
class Part:
    """An instance, a result of another program, or a search: its newest result and its history.

    `tables` contain all values, `rest` those in no table of its charts. `lines` are the YAML of a search's result.
    """

    title: str
    anchor: str
    facts: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...]
    notes: tuple[str, ...]
    tables: tuple[Table, ...]
    rest: tuple[Table, ...]
    charts: tuple[Chart, ...]
    lines: str = ""


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

    results: int
    since: str
    until: str
    leaderboard: Table
    charts: tuple[Chart, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...]
    searches: int = 0

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
        results=len(found),
        since=days[0],
        until=days[-1],
        leaderboard=leaderboard_table(rows),
        charts=tuple(bars_by_kind(rows)),
        groups=(*_groups(found), *_searches(gathered.searches)),
        notes=(*_suites(found), *filter(None, [gathered.beyond]), *gathered.left_out),
        searches=len(gathered.searches),
    )


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
        yield Group(rig, f"rig-{number}", newest.machine, tuple(parts))
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
    return Part(each.label, anchor, facts, (), notes, tables, tables, (search_chart(each),), lines)


def _part(results: Sequence[Measured], anchor: str, machine: tuple[str, ...]) -> Part:
    """Return the part of an instance: its newest result, its history, and its machine if it differs."""
    newest = max(results, key=lambda each: each.order)
    before = sorted(results, key=lambda each: (each.began, each.id), reverse=True)
    memory = [table] if (table := memory_table(newest)) else []
    charts = list(result_charts(newest))
    drawn = {condition for chart in charts for condition in chart.conditions}
    rest = [cell for cell in newest.cells if cell.condition not in drawn]
    if len(before) > 1:
        charts += history_charts(before)
    return Part(
        title=newest.label if newest.less else newest.instance,
        anchor=anchor,
        facts=tuple(_facts(newest, len(before), machine)),
        doubts=newest.doubts,
        notes=newest.notes,
        tables=(cells_table(newest.cells, _ALL), *memory),
        rest=(
            *([cells_table(rest, _BESIDE if drawn else _ALL)] if rest else []),
            *memory,
        ),
        charts=tuple(charts),
    )


def _facts(each: Measured, results: int, machine: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    when = f"{each.began.replace('T', ' ').rstrip('Z')} UTC" if each.dated else "at an unknown time,"
    yield "measured", f"{when} by {each.source}"
    if each.stack and each.stack != each.label:
        yield "stack", each.stack
    if each.machine != machine:
        yield "machine", ", ".join(each.machine)
    if each.serving:
        yield "served with", ", ".join(each.serving)
    if each.suite:
        yield "suite", each.suite
    if results > 1:
        yield "results", str(results)
