"""The page in a real Chromium: light, dark, on a phone, how soon it is drawn, and what a screen reader is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.measure.report.export import render_report
from llamaherd.measure.report.page import Gathered
from llamaherd.measure.report.results import measured
from tests.report.many import many
from tests.report.test_page import few
from tests.report.test_searches import gathered
from tests.support.chromium import MISSING, PROGRAM, Chromium, chromium

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

PHONE, DESK = 390, 1200
SHOW_ALL = """
document.querySelectorAll('article').forEach(one => one.style.contentVisibility = 'visible');
document.querySelectorAll('details').forEach(one => one.open = true);
"""
BEYOND = """
[...document.querySelectorAll('svg text')].filter(one => {
  const box = one.getBBox(), view = one.ownerSVGElement.viewBox.baseVal;
  return box.x < -1 || box.x + box.width > view.width + 1 || box.y < -1 || box.y + box.height > view.height + 1;
}).map(one => one.textContent + ' of ' + one.ownerSVGElement.querySelector('title').textContent)
"""
OVER_EACH_OTHER = """
[...document.querySelectorAll('svg')].flatMap(svg => {
  const all = [...svg.querySelectorAll('text')].map(one => [one.getBBox(), one.textContent]);
  return all.flatMap(([a, said], at) => all.slice(at + 1).filter(([b]) =>
    Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x) > 1 &&
    Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y) > 4
  ).map(([, other]) => svg.querySelector('title').textContent + ': ' + said + ' and ' + other));
})
"""
CONTRASTS = """
(() => {
  const shade = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = text => { const [r, g, b] = shade(text); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const against = text => {
    const other = light(text);
    return (Math.max(paper, other) + 0.05) / (Math.min(paper, other) + 0.05);
  };
  const least = (what, of) => Math.min(...[...document.querySelectorAll(what)].map(one => against(of(one))));
  return {
    text: least('p, li, td, th, dt, dd, caption, figcaption, h1, h2, h3, h4, a, summary',
      one => getComputedStyle(one).color),
    labels: least('svg text', one => getComputedStyle(one).fill),
    marks: least('svg .p', one => getComputedStyle(one).fill),
    lines: least('svg .l', one => getComputedStyle(one).stroke),
  };
})()
"""
ATTACK = """
const one = document.createElement('p');
one.setAttribute('onclick', "document.title = 'taken over'");
one.click();
"""
"""What markup of somebody else's could do, if the page let it."""
SCROLLED = """
(to => [...document.querySelectorAll('div.scroll')].filter(one => one.offsetParent).map(one => {
  one.scrollLeft = to;
  const box = one.getBoundingClientRect(), at = what => one.querySelector(what).getBoundingClientRect();
  const said = at('caption span'), first = at('tbody th');
  return {wide: one.scrollWidth > one.clientWidth + 1, small: at('table').width < box.width - 9, room: box.width,
    column: first.width, moved: first.left - box.left, words: [said.left - box.left, box.right - said.right],
    edge: {x: box.right - 6, y: scrollY + at('caption').top + 2, width: 5, height: 10},
    foot: {x: box.right - 6, y: scrollY + box.bottom - 9, width: 5, height: 10}};
}))
"""
"""Tables after their boxes were scrolled so far, with the right edge of each, beside what stands above its columns."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ours and others', of five kinds of text and with all charts, and a search."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(render_report(replace(few(), searches=gathered().searches), "html"), encoding="utf-8")
    return file


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_nothing_reaches_beyond_the_page_or_a_chart(browser: Chromium, page: Path, width: int) -> None:
    browser.open(page, width=width)
    browser.value(SHOW_ALL)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("document.querySelectorAll('svg').length") > 30
    assert browser.value(BEYOND) == []


def test_a_table_on_a_phone_keeps_its_first_column_and_shows_that_there_is_more(browser: Chromium, page: Path) -> None:
    browser.open(page, width=PHONE)
    browser.value(SHOW_ALL)
    begun, ended = (browser.value(f"{SCROLLED}({to})") for to in (0, 9999))
    assert sum(each["wide"] for each in begun) > 10
    for each in [*begun, *ended]:
        assert abs(each["moved"]) < 1
        assert min(each["words"]) > -1, "what it is about is read without scrolling"
        assert not each["wide"] or each["column"] < each["room"] / 2
    wide = next(each["edge"] for each in begun if each["wide"])
    fits = [each[where] for each in begun for where in ("edge", "foot") if each["small"]]
    paper = browser.seen(wide)
    assert fits
    assert {browser.seen(each) for each in fits} == {paper}
    browser.value(f"{SCROLLED}(0)")
    assert browser.seen(wide) != paper


def test_no_words_of_a_chart_lie_over_others(browser: Chromium, page: Path) -> None:
    browser.open(page)
    browser.value(SHOW_ALL)
    assert browser.value(OVER_EACH_OTHER) == []


@pytest.mark.parametrize("dark", [False, True])
def test_words_and_marks_can_be_told_from_the_page(browser: Chromium, page: Path, dark: bool) -> None:
    """As WCAG 2 asks: 4.5 for text, 3 for what is drawn."""
    browser.open(page, dark=dark)
    assert browser.value("getComputedStyle(document.body).backgroundColor") == (
        "rgb(18, 18, 18)" if dark else "rgb(255, 255, 255)"
    )
    found = browser.value(CONTRASTS)
    assert min(found["text"], found["labels"]) >= 4.5
    assert min(found["marks"], found["lines"]) >= 3


def test_a_screen_reader_is_told_what_each_chart_shows(browser: Chromium, page: Path) -> None:
    browser.open(page)
    browser.value(SHOW_ALL)
    browser.call("Accessibility.enable")
    every = browser.call("Accessibility.getFullAXTree")["nodes"]
    charts = [node["name"]["value"] for node in every if node.get("role", {}).get("value") in ("image", "img")]
    assert len(charts) == browser.value("document.querySelectorAll('svg').length")
    assert any("Speed" in name and "4K: 46.30 t/s" in name for name in charts)


def test_it_runs_no_script_and_asks_for_nothing(browser: Chromium, page: Path) -> None:
    browser.open(page)
    asked = [each["request"]["url"] for each in browser.told("Network.requestWillBeSent")]
    assert asked == [page.as_uri()]
    assert browser.told("Log.entryAdded") == []
    browser.value(ATTACK)
    assert browser.value("document.title").startswith("Measured speeds")


def test_two_hundred_results_are_drawn_within_a_second(browser: Chromium, tmp_path: Path) -> None:
    """The second is processor time, of which the page usually takes a quarter: other programs do not lengthen it."""
    file = tmp_path / "many.html"
    every = tuple(measured(each) for each in many(200))
    file.write_text(render_report(Gathered(every, ()), "html"), encoding="utf-8")
    browser.open(file)
    assert 0 < browser.processor_seconds() <= 1.0
