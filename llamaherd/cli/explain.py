"""`herd explain`: print the page of a finding, or another page of docs/, without a checkout."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import click
from click.shell_completion import CompletionItem

from llamaherd.cli.common import echo, terminal_columns
from llamaherd.diagnostics.spelling import misspelled_name
from llamaherd.pipeline.rules import rules
from llamaherd.resources import DOCS


def _files() -> dict[str, Path]:
    """Return the pages other than findings by their names: `gateway`, `howto/tune`."""
    files = {page.relative_to(DOCS).with_suffix("").as_posix(): page for page in DOCS.rglob("*.md")}
    named = {name: page for name, page in files.items() if not name.startswith("findings/")}
    return dict(sorted(named.items(), key=lambda each: ("/" in each[0], each[0])))


def _pages() -> dict[str, str | Path]:
    """Return every page by its name, as text or as a file: findings by their codes, then the other pages."""
    return {**{code: rule.page for code, rule in rules().items()}, **_files()}


def _complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _pages() if name.casefold().startswith(typed.casefold())]


def _page_meant(name: str) -> str:
    """Return the fix for a name without a page."""
    number = name.upper().removeprefix("LH")
    code = f"LH{number:0>3}"
    if code in rules():
        return f"did you mean `{code}`?"
    if number.isdecimal():
        return "`herd explain findings` lists all codes"
    if meant := misspelled_name(name, _pages()):
        return f"did you mean `{meant}`?"
    if len(name) > 1 and (sections := [each for each, page in _files().items() if _has_key(page, name)]):
        return f"it is a key: `herd explain {'inventory' if 'inventory' in sections else sections[0]}` describes it"
    others = ", ".join(name for name in _files() if "/" not in name)
    return f"name a code, such as LH031, or one of: {others}"


def _has_key(page: Path, name: str) -> bool:
    return f"\n| `{name}` |" in page.read_text(encoding="utf-8")


@click.command()
@click.argument("names", metavar="[CODE|PAGE]...", nargs=-1, shell_complete=_complete)
def explain(names: tuple[str, ...]) -> None:
    """Print the page of a finding, or another page of docs/.

    Without a name, it lists the pages. On a terminal, pages are laid out for its width; elsewhere they are Markdown.

    \b
    Examples:
      herd explain              the names of all pages
      herd explain LH031        one finding
      herd explain findings     all findings, one line each
      herd explain inventory    every key of a rig
      herd explain howto/tune   a how-to page
    """
    if not names:
        _print_names()
        return
    pages = _pages()
    found = [pages[_whole_name(name, pages)] for name in names]
    texts = (page.read_text(encoding="utf-8") if isinstance(page, Path) else page for page in found)
    _print_page("\n".join(texts).rstrip("\n"))


def _whole_name(name: str, pages: Collection[str]) -> str:
    """Return the name of the page that a user means: a whole name, else its last part. Raise UsageError."""
    typed = name.casefold().removeprefix("docs/").removesuffix(".md")
    whole = [page for page in pages if page.casefold() == typed]
    found = whole or [page for page in pages if page.casefold().endswith(f"/{typed}")]
    if not found:
        raise click.UsageError(f"there is no page `{name}`\n  help: {_page_meant(name)}")
    if len(found) > 1:
        names = " or ".join(f"`{page}`" for page in found)
        raise click.UsageError(f"{len(found)} pages have the name `{name}`\n  help: type {names}")
    return found[0]


def _print_names() -> None:
    """Print the name and the title of each page."""
    pages = _files()
    width = max(map(len, pages), default=0)
    for name, page in pages.items():
        with page.open(encoding="utf-8") as text:
            echo(f"{name:{width}}  {text.readline().lstrip('# ').rstrip()}")
    echo("\nPrint one with `herd explain NAME`. `herd explain findings` lists the codes of all findings.")


def _print_page(text: str) -> None:
    """Print a page: laid out on a terminal, else as Markdown."""
    columns = terminal_columns(err=False)
    if columns is None:
        echo(text)
        return
    from rich.console import Console  # late: it takes a while to load
    from rich.markdown import Markdown
    from rich.theme import Theme

    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    console = Console(width=columns, color_system=colours, theme=Theme({"markdown.code": "cyan"}))
    console.print(Markdown(_without_targets(text), code_theme="ansi_dark", hyperlinks=False))


_TO_PAGE = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]*\)")
"""A link to another page of the project."""


def _without_targets(text: str) -> str:
    """Return a page with the texts of its links to other pages: a terminal cannot follow them."""
    return _TO_PAGE.sub(r"\1", text)
