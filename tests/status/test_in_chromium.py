"""The page, as a browser shows it: nothing reaches beyond it, and it fetches nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llamaherd.status.page import to_html
from tests.status.made import FLEET
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


@pytest.mark.parametrize(("dark", "paper"), [(False, "rgb(255, 255, 255)"), (True, "rgb(18, 18, 18)")])
def test_it_is_light_or_dark_and_asks_for_nothing(browser: Chromium, page: Path, dark: bool, paper: str) -> None:
    browser.open(page, dark=dark)
    assert browser.value("getComputedStyle(document.body).backgroundColor") == paper
    assert [each["request"]["url"] for each in browser.told("Network.requestWillBeSent")] == [page.as_uri()]
    assert browser.told("Log.entryAdded") == []
