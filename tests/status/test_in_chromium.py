"""The page, as a browser shows it: nothing reaches beyond it, and it fetches nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from llamaherd.fleet.status_text import to_html
from tests.status.made import ATTIC, CHANGE, DUO, FLEET, status
from tests.support.chromium import MISSING, PROGRAM, Chromium, chromium

pytestmark = pytest.mark.skipif(not PROGRAM, reason=MISSING)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("status") / "status.html"
    file.write_text(to_html(FLEET), encoding="utf-8")
    return file


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_reaches_beyond_the_page(browser: Chromium, page: Path, width: int) -> None:
    browser.open(page, width=width)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("document.querySelectorAll('table').length") == 5


OUTSIDE = """
[...document.querySelectorAll('table.prose')]
  .flatMap(table => [table.parentElement, table, ...table.querySelectorAll('th, td')])
  .filter(one => one.getBoundingClientRect().right > innerWidth || one.scrollWidth > one.clientWidth + 1)
  .map(one => one.tagName + ' ' + one.textContent.slice(0, 40))
"""
"""What of tables with sentences is wider than the window, or than what it lies in."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Changes that were told at length, one of them by a word that has no end."""
    what = "update gateway llamaherd-gateway: " + "; ".join(["/etc/llamaherd/gateway/haproxy.cfg has another text"] * 5)
    said = replace(CHANGE, who="somebody-with-a-name on a-machine.of.a.long.domain.example", changes=(what,))
    failed = replace(CHANGE, failed=(f"chat: {'/very/long' * 36} is not there",))
    rigs = (replace(DUO, change=said), replace(ATTIC, name="workstation-below-the-roof", change=failed))
    file = tmp_path_factory.mktemp("long") / "status.html"
    file.write_text(to_html(status(*rigs)), encoding="utf-8")
    return file


@pytest.mark.parametrize("width", [360, 390, 768, 1200])
def test_long_sentences_of_changes_are_wrapped(browser: Chromium, long: Path, width: int) -> None:
    browser.open(long, width=width)
    assert browser.value("document.querySelectorAll('table.prose').length") == 1
    assert browser.value(OUTSIDE) == []
    assert browser.value("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("dark", "paper"), [(False, "rgb(255, 255, 255)"), (True, "rgb(18, 18, 18)")])
def test_it_is_light_or_dark_and_asks_for_nothing(browser: Chromium, page: Path, dark: bool, paper: str) -> None:
    browser.open(page, dark=dark)
    assert browser.value("getComputedStyle(document.body).backgroundColor") == paper
    assert [each["request"]["url"] for each in browser.told("Network.requestWillBeSent")] == [page.as_uri()]
    assert browser.told("Log.entryAdded") == []


def test_a_page_that_is_written_again_shows_that_by_itself(browser: Chromium, tmp_path: Path) -> None:
    """Chromium reloads the file after five seconds; a page that has ended stays."""
    file = tmp_path / "status.html"
    file.write_text(to_html(status(DUO, ATTIC), 1.0), encoding="utf-8")
    browser.open(file)
    before = browser.value("document.title")
    later = replace(FLEET, at="2030-01-01 00:00:00 UTC")
    file.write_text(to_html(later, 1.0, ended=True), encoding="utf-8")
    until = time.monotonic() + 60
    while browser.value("document.title") == before and time.monotonic() < until:
        time.sleep(0.2)
    assert "2030-01-01" in browser.value("document.title")
    assert browser.value("document.querySelectorAll('meta[http-equiv=refresh]').length") == 0
    assert browser.told("Log.entryAdded") == []
