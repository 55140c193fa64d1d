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

_MOST = 1_850_000
"""Bytes of instances with their charts, beyond which those that come later have their tables alone."""


def to_html(page: Page) -> str:
    """The whole page. Whatever a result says is text in it, and never markup."""
    made = _environment()
    every = [part for group in page.groups for part in group.parts]
    return made.get_template("page.html.j2").render(page=page, parts=_parts(every), version=__version__)


def _parts(every: Sequence[Part]) -> dict[str, str]:
    """Each part by its anchor: all have their tables, and as many as there is room for have their charts."""
    template = _environment().get_template("part.html.j2")
    bare = {part.anchor: template.render(part=part, charts=()) for part in every}
    left = _MOST - sum(len(text.encode()) for text in bare.values())
    found = bare
    for part in every:
        whole = template.render(part=part, charts=part.charts) if left > 0 else bare[part.anchor]
        left -= len(whole.encode()) - len(bare[part.anchor].encode())
        if left < 0:
            break
        found[part.anchor] = whole
    return found


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES / "report"),
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
