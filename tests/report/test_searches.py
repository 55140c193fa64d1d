"""Searches in a report: real ones over a law (`tests/tune/played.py`), whole, many, hostile, cut off."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from benchmarks.tune_law import KV, LawRig
from llamaherd.diagnostics.findings import UserError
from llamaherd.measure.report.charts import Pane
from llamaherd.measure.report.export import Form, render_report, report_json
from llamaherd.measure.report.page import MOST_SEARCHES, Gathered, Part, gather_results, page
from llamaherd.measure.report.searches import MOST_TRIALS
from llamaherd.measure.tune.candidate import Candidate
from llamaherd.measure.tune.journal import Head, Search, SearchJournal, read_search, searches
from llamaherd.measure.tune.result import optuna_shares, result_json
from tests.report.test_page import HOSTILE, Tags, few
from tests.tune.played import Played, search_on


def fails(candidate: Candidate) -> str | None:
    return "ggml_cuda: no kernel" if candidate[KV] == "q4_0" else None


@cache
def made() -> Path:
    """A folder of results with one finished search."""
    folder = Path(mkdtemp())
    search_on(folder, Played(LawRig.drawn(1), fails=fails), 900)
    return folder


@cache
def gathered() -> Gathered:
    return gather_results((), made(), optuna_shares)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return Path(shutil.copytree(made(), tmp_path / "results"))


def search_in(folder: Path) -> tuple[Path, Search]:
    (path,) = searches(folder, "box", "chat")
    return path, read_search(path)


def part() -> Part:
    (group,) = page(gathered()).groups
    return group.parts[0]


def pane(name: str) -> Pane:
    return next(each for chart in part().charts for each in chart.panes if each.title == name)


def write(folder: Path, head: Head, search: Search) -> None:
    with SearchJournal.begin(folder, head) as journal:
        for each in search.trials:
            journal.add(each)
        assert search.found
        journal.add(search.found)


def test_a_search_has_its_section_with_everything_that_it_came_to() -> None:
    captions = [re.split("[:,]", table.caption)[0] for table in part().tables]
    assert captions == ["Before and after", "Steps", "Importance", "The front", "Failed candidates"]
    before, after, *_ = part().tables[0].rows
    assert before[0] == "as declared"
    assert re.fullmatch(r"\+\d+\.\d % \(\+\d+\.\d to \+\d+\.\d\)", after[4])
    assert after[5] == "faster"
    assert page(gathered()).about == "1 search, 2026-11-24"
    assert "threads:" in part().lines


def test_each_trial_is_drawn_once_and_the_line_never_falls() -> None:
    _, search = search_in(made())
    drawn = {each.name: each.points for each in pane("Score").series}
    marks = [*drawn["tried"], *drawn["again"], *drawn["failed"]]
    assert sorted(point.x for point in marks) == list(range(1, len(search.trials) + 1))
    line = [point.y for point in drawn["best by then"]]
    assert line == sorted(line)
    assert line[-1] == max(point.y for point in drawn["tried"])
    assert drawn["tried"][0].y == 1
    assert {point.y for point in drawn["failed"]} == {0}
    assert all("did not start" in point.about for point in drawn["failed"])


def test_who_is_on_the_front_stands_out() -> None:
    drawn = {each.name: len(each.points) for each in pane("Prefill").series}
    assert 0 < drawn["front"] < drawn["others"]


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_the_lines_of_yaml_are_there_as_they_are_written(form: Form) -> None:
    text = render_report(gathered(), form)
    wanted = part().lines.splitlines()
    assert len(wanted) > 2
    indent = "" if form == "html" else "    "
    assert "\n".join(indent + line for line in wanted) in text


def test_a_page_of_a_search_alone_leads_nowhere_that_is_not_there() -> None:
    tags = Tags(render_report(gathered(), "html"))
    assert tags.open == []
    names = [value for _, every in tags.seen if (value := every.get("id"))]
    assert len(names) == len(set(names))
    wanted = {str(value)[1:] for _, every in tags.seen if (value := every.get("href"))}
    assert wanted == {"searches", "how"}
    assert wanted <= set(names)


def test_machines_are_told_the_whole_end() -> None:
    said = report_json(gathered())
    (search,) = said["searches"]
    assert said["results"] == []
    assert search["rig"] == "box"
    assert search | result_json(gathered().searches[0].end) == search
    assert report_json(few())["searches"] == []


def test_one_that_goes_on_still_is_not_shown(results: Path) -> None:
    path, _ = search_in(results)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match="there are no results"):
        gather_results((), results)


def test_one_that_cannot_be_read_is_left_out_and_named(results: Path) -> None:
    path, search = search_in(results)
    write(results, search.head.model_copy(update={"began": "2026-11-24T16:00:00Z"}), search)
    path.write_bytes(b"no search\n")
    found = gather_results(("box/chat",), results)
    assert len(found.searches) == 1
    assert [path.name in each for each in found.left_out] == [True]


def test_a_file_can_be_named(results: Path) -> None:
    path, _ = search_in(results)
    assert [each.file for each in gather_results((str(path),), results / "nowhere").searches] == [path.name]


def test_no_more_are_shown_than_a_page_can_hold(results: Path) -> None:
    _, search = search_in(results)
    for at in range(MOST_SEARCHES + 5):
        write(results, search.head.model_copy(update={"rig": f"rig-{at}"}), search)
    found = gather_results((), results)
    assert len(found.searches) == MOST_SEARCHES
    assert found.left_out == ()
    assert page(found).notes == (f"of {MOST_SEARCHES + 6} searches 20 are shown; a report of one rig has its own",)
    assert len(render_report(found, "html").encode()) <= 2_000_000


def test_a_long_one_is_drawn_up_to_a_bound_and_says_so(results: Path) -> None:
    path, _ = search_in(results)
    longer(path, 4_000)
    found = gather_results((), results, optuna_shares)
    (chart,) = page(found).groups[0].parts[0].charts
    assert re.search(r"3,[45]\d\d later ones are not drawn", chart.caption)
    assert chart.table
    assert len(chart.table.rows) == MOST_TRIALS
    longer(path, 6_000)
    with pytest.raises(UserError, match=r"\d trials, which no search has"):
        gather_results((), results)


def longer(path: Path, trials: int) -> None:
    """Say what it has tried until there is so much of it."""
    head, *middle, found = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + b"".join((middle * (1 + trials // len(middle)))[:trials]) + found)


def test_what_a_search_says_is_never_markup(results: Path) -> None:
    _, search = search_in(results)
    hostile = Search(search.head)
    hostile.found = search.found
    for at, each in enumerate(search.trials):
        keys = {**each.keys, "kv": f"{HOSTILE}{at % 3}"} if at else each.keys
        hostile.trials.append(each.model_copy(update={"keys": keys, "says": HOSTILE}))
    write(results, search.head.model_copy(update={"rig": "bad"}), hostile)
    found = gather_results(("bad",), results, optuna_shares)
    text = render_report(found, "html")
    assert Tags(text).open == []
    assert not {tag for tag, _ in Tags(text).seen} & {"script", "img"}
    assert not set(text) & {"\x1b", "\u202e"}
    lines = render_report(found, "markdown").splitlines()
    assert not re.search(r"(?<!\\)<script", "\n".join(line for line in lines if not line.startswith("    ")))


@pytest.mark.parametrize(
    "keys",
    [{"draft": 1, "draft.mtp": 2}, {"../x": 1}, {"a.b.c": 1}, {"kv": "x" * 201}],
    ids=["a mapping and a value", "no key", "too deep", "a long word"],
)
def test_keys_of_which_no_yaml_can_be_made_are_refused(results: Path, keys: dict[str, object]) -> None:
    path, search = search_in(results)
    line = {"line": "trial", "keys": {**search.trials[0].keys, **keys}}
    path.write_bytes(path.read_bytes() + json.dumps(line).encode() + b"\n")
    with pytest.raises(UserError, match="is no line of a search"):
        read_search(path)
