"""What a report says, as a value and as text: against golden files, and by what must be in it."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from llamaherd.measure.report.export import MOST_PANES, Form, render_report
from llamaherd.measure.report.page import KINDS, Gathered, history_charts, leaderboard, leaderboard_table, page
from llamaherd.measure.report.results import Measured, measured
from llamaherd.measure.results.lookup import read_results
from llamaherd.measure.results.result import Cell, Condition, Engine, Provenance, Run
from tests.bench.made import result, run
from tests.report.many import many, one
from tests.support.golden import assert_golden
from tests.support.rigs import ROOT

DATA = ROOT / "tests/data/bench"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[31m\u202e&amp;{{7*7}}|`x`"


def told(*files: str) -> list[Measured]:
    """What is told of the results of others, with times and hashes that do not change with the checkout."""
    found = [measured(each) for name in files for each in read_results(DATA / name)]
    return [replace(each, began="2026-03-01T00:00:00Z", id=f"{n:012x}") for n, each in enumerate(found)]


def few() -> Gathered:
    """An instance in two weeks, and what the owners of two rigs have published."""
    ours = [measured(each) for each in many(2, instances=1)]
    return Gathered((*ours, *told("six.txt", "one.md")), ())


def brief() -> Gathered:
    """Return two results of one instance, the second with all curves, and one result that somebody published."""
    weeks = one(0, 0, 0, deep=False), one(1, 0, 1)
    return Gathered((*map(measured, weeks), *told("one.md")[:1]), ())


@pytest.mark.parametrize("form", ["html", "markdown", "csv"])
def test_golden(form: Form) -> None:
    name = f"brief.{form}"
    # Another version of matplotlib may place a label elsewhere: tests/report/test_drawing.py tests drawings.
    text = re.sub(r"<svg.*?</svg>", "<svg/>", render_report(brief(), form), flags=re.DOTALL)
    assert_golden(Path(__file__).parent / "golden", name, {name: text})


def test_two_hundred_results_are_a_page_of_two_megabytes_at_most() -> None:
    """Of twenty instances, and the worst: each of an instance of its own. A pane takes 35 ms to draw."""
    for instances in (20, 200):
        every = tuple(measured(each) for each in many(200, instances=instances))
        text = render_report(Gathered(every, ()), "html")
        assert len(text.encode()) <= 2_000_000
        assert text.count("<svg") <= MOST_PANES + len(KINDS)
        assert "charts are not drawn: the page would be too large" in text


def test_each_instance_has_its_first_chart_and_an_instance_alone_has_all() -> None:
    every = tuple(measured(each) for each in many(40, instances=20))
    whole = page(Gathered(every, ()))
    text = render_report(Gathered(every, ()), "html")
    for part in whole.parts:
        assert f'aria-labelledby="{part.chart_names[0]}-1-t' in text
    alone = Gathered(tuple(each for each in every if each.instance == "server-3"), ())
    (part,) = page(alone).parts
    text = render_report(alone, "html")
    assert all(f'aria-labelledby="{name}-1-t' in text for name in part.chart_names)
    assert "not drawn" not in text


def test_title_and_headings_name_model_quant_gpus_and_engine() -> None:
    text = render_report(Gathered(tuple(map(measured, many(2, instances=1))), ()), "html")
    stack = "Qwen3.6 35B-A3B UD-Q3_K_XL, llama.cpp b11434"
    assert "Measured speeds: Qwen3.6 35B-A3B UD-Q3_K_XL · 2 RTX 3090 at 280 W · llama.cpp b11434" in text
    assert ">attic: 2 RTX 3090 at 280 W</h2>" in text
    assert f">server-0: {stack}</h3>" in text
    assert f">attic/server-0: {stack} on 2 RTX 3090 at 280 W</th>" in text
    several = page(Gathered(tuple(map(measured, many(60, instances=3))), ())).title
    assert several == "Measured speeds: Qwen3.6 35B-A3B UD-Q3_K_XL · 2 RTX 3090 at 280 W · 4 engines"
    assert page(brief()).title == "Measured speeds", "of one result, the model and the GPUs are unknown"


class Tags(HTMLParser):
    """The tags of a page, and whether each that is opened is closed, but for cells, which end by themselves."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "td"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_one_file_without_scripts() -> None:
    text = render_report(few(), "html")
    tags = Tags(text)
    assert tags.open == []
    assert not {tag for tag, _ in tags.seen} & {"script", "link", "img", "iframe", "object", "form", "base"}
    named = {value for _, every in tags.seen for key, value in every.items() if key in ("href", "src")}
    assert all(value and value.startswith("#") for value in named)
    assert not re.search(r"\bon\w+=|url\(|@import|https?://(?!www\.w3\.org)", text)
    assert "default-src 'none'" in text


def test_every_link_leads_somewhere_and_no_name_is_given_twice() -> None:
    tags = Tags(render_report(few(), "html"))
    names = [value for _, every in tags.seen if (value := every.get("id"))]
    assert len(names) == len(set(names))
    wanted = {value[1:] for _, every in tags.seen if (value := every.get("href"))}
    wanted |= {one for _, every in tags.seen for one in (every.get("aria-labelledby") or "").split()}
    assert wanted <= set(names)


def test_every_chart_has_a_title_a_description_and_a_table() -> None:
    text = render_report(few(), "html")
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) > 30
    for each in pictures:
        tree = ElementTree.fromstring(each)
        assert tree.get("role") == "img"
        assert [child.tag for child in list(tree)[:2]] == ["title", "desc"]
        assert all(child.text and child.text.strip() for child in list(tree)[:2])
    for figure in re.findall(r"<figure.*?</figure>", text, re.DOTALL):
        assert "<details>" in figure or "The fastest by kind of text" in figure


def hostile() -> Gathered:
    """A result in which every text wants to be more than that."""
    origin = Provenance(model=HOSTILE, driver=HOSTILE, engine=Engine(kind=HOSTILE))
    bad = result(run(), Run(excluded=HOSTILE), stack=HOSTILE, provenance=origin)
    return Gathered((measured(bad),), (HOSTILE,))


def test_what_a_result_says_is_never_markup() -> None:
    text = render_report(hostile(), "html")
    tags = Tags(text)
    assert tags.open == []
    assert not {tag for tag, _ in tags.seen} & {"script", "img"}
    assert "&lt;script&gt;" in text
    assert not set(text) & {"\x1b", "\u202e"}


def test_what_a_result_says_breaks_no_table_and_no_formula() -> None:
    lines = render_report(hostile(), "markdown").splitlines()
    assert not re.search(r"(?<!\\)<script", "\n".join(lines))
    heads = [at for at, line in enumerate(lines) if line.startswith("| --- |")]
    bars = [len(re.findall(r"(?<!\\)\|", line)) for at in heads for line in lines[at - 1 : at + 2]]
    assert all(bars[at] == bars[at + 1] == bars[at + 2] for at in range(0, len(bars), 3))
    formula = measured(result(run(), stack="=HYPERLINK(1)"))
    (row, *_) = csv.DictReader(io.StringIO(render_report(Gathered((formula,), ()), "csv")))
    assert (row["label"], row["metric"]) == ("'=HYPERLINK(1)", "decode")


def test_the_leaderboard_has_a_row_for_each_stack_and_old_ones_are_grey() -> None:
    def served(build: str, speed: float, day: int) -> Measured:
        began = f"2026-03-{day:02}T00:00:00Z"
        origin = Provenance(engine=Engine(kind="llama.cpp", version=build), model="m")
        return measured(result(*(run(speed + at / 10) for at in range(5)), provenance=origin, began=began))

    rows = leaderboard([served("b2", 90.0, 3), served("b1", 100.0, 1), served("b1", 101.0, 2)])
    table = leaderboard_table(rows)
    assert [row[:2] for row in table.rows] == [
        ("duo/chat: m, llama.cpp b1 (stale)", "101.2 ± 0.2"),
        ("duo/chat: m, llama.cpp b2", "90.20 ± 0.2"),
    ]
    assert table.grey == {0}


def test_the_tool_itself_says_what_is_wrong_with_what_was_published() -> None:
    """Seed figures: a time to the first token of another prompt, a spread that is the text's, empty contexts."""
    text = render_report(Gathered(tuple(told("six.txt", "one.md")), ()), "markdown")
    for doubt in (
        "is that of 7,648 tokens at the prefill speed of the same run, not of 202,752",
        "the spread of ± 1.2% is of the text and not of the machine",
        "as fast with a context of 268,288 tokens as with 32,768",
    ):
        assert doubt in text
    assert "no power law" in text


def test_a_page_has_the_panes_that_there_are_points_for() -> None:
    (group,) = page(Gathered(tuple(told("six.txt")), ())).groups
    panes = {chart.title: [pane.title for pane in chart.panes] for chart in group.parts[0].charts}
    assert [len(each) for each in panes.values()] == [6, 1, 2]
    ours, *_ = page(few()).groups
    panes = {chart.title: [pane.title for pane in chart.panes] for chart in ours.parts[0].charts}
    assert len(panes["Prefill over the context"]) == 4
    assert len(panes["Requests at once"]) == 4
    assert {"Over the power limit", "Run by run", "Over time"} <= set(panes)


def test_only_equal_conditions_are_one_line_over_time() -> None:
    """A slow day asked for shorter answers: they are no point of the line, and the table says what its columns are."""

    def on(day: int, generated: int) -> Measured:
        cell = Cell(condition=Condition(kind="code", generated=generated), runs=(run(100.0), run(101.0)))
        return measured(result(cells=(cell,), began=f"2026-03-{day:02}T00:00:00Z", ended=f"2026-03-{day:02}T00:01:00Z"))

    (chart,) = history_charts([on(1, 256), on(2, 64), on(3, 256), on(4, 256)])
    (series,) = chart.panes[0].series
    assert len(series.points) == 3
    assert chart.table
    assert chart.table.headings[:2] == ("measured, UTC", "code, 256 out: decode, t/s")
    assert [row[1] != "-" for row in chart.table.rows] == [True, True, False, True]


def test_what_was_cut_off_hides_no_whole_result() -> None:
    whole = measured(result(*(run(100.0 + at) for at in range(3)), ended="2026-11-23T20:18:00Z"))
    cut = measured(result(run(50.0), began="2026-11-24T00:00:00Z"))
    (row,) = leaderboard([whole, cut])
    assert (row.result, row.stale) == (whole, False)
    ((part,),) = [group.parts for group in page(Gathered((whole, cut), ())).groups]
    assert part.facts[0][1].startswith("2026-11-23")
