"""The page as HTML: one file that runs no script and fetches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from llamaherd import __version__
from llamaherd.report.bars import draw_bars
from llamaherd.report.geometry import draw
from llamaherd.report.page import Page, Part
from llamaherd.resources import TEMPLATES
from llamaherd.text.terminal import shown

_MOST = 1_950_000
"""Bytes of a page, beyond which the instances that come later have their tables alone, and no charts."""


def to_html(page: Page) -> str:
    """The whole page. Whatever a result says is text in it, and never markup."""
    template = html_environment("report").get_template("page.html.j2")
    bare = template.render(page=page, drawn=frozenset(), version=__version__)
    every = [part for group in page.groups for part in group.parts]
    return template.render(page=page, drawn=_drawn(every, _MOST - _size(bare)), version=__version__)


def _drawn(every: Sequence[Part], room: int) -> frozenset[str]:
    """The anchors of the parts whose charts there is room for: the first ones."""
    template = html_environment("report").get_template("part.html.j2")
    found, left = set[str](), room
    for part in every:
        if not part.charts:
            continue
        left -= _size(template.render(part=part, charts=part.charts)) - _size(template.render(part=part, charts=()))
        if left < 0:
            break
        found.add(part.anchor)
    return frozenset(found)


def _size(text: str) -> int:
    return len(text.encode())


@cache
def html_environment(folder: str) -> Environment:
    """Templates of pages in a folder, with the pieces and the style of this one. Every value is text, never markup."""
    made = Environment(
        loader=FileSystemLoader([TEMPLATES / folder, TEMPLATES / "report"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
        finalize=_text,
    )
    made.globals |= {"draw": draw, "draw_bars": draw_bars}
    return made


def _text(value: object) -> object:
    """Texts without control characters, which no page may hold; what templates have made stays as it is."""
    return shown(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
