"""The site of the documentation, built by the real generator, and the man page and completions of the wheel."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def built(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(root / "scripts/site")], capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout with what the site is made from."""
    for folder in ("docs", "scripts", "llamaherd", "roles"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (ROOT / "mkdocs.yml", *ROOT.glob("*.md")):
        shutil.copy(file, tmp_path)
    return tmp_path


def test_every_page_is_in_the_site_and_loads_nothing_from_elsewhere(copy: Path) -> None:
    ended = built(copy)
    assert ended.returncode == 0, ended.stderr
    site = copy / ".box" / "site"
    for page in (copy / "docs").rglob("*.md"):
        inside = page.relative_to(copy / "docs")
        folder = inside.parent if inside.name == "README.md" else inside.with_suffix("")
        assert (site / folder / "index.html").exists(), inside
    loaded = re.compile(
        r"""<(?:script|img|source|iframe)\b[^>]*\bsrc(?:set)?=["']?https?:|<link\b[^>]*stylesheet[^>]*https?:"""
    )
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert [str(page) for page, text in texts.items() if loaded.search(text)] == []
    assert "<picture>" not in texts[site / "start" / "index.html"]
    assert "show-dark.svg#only-dark" in texts[site / "start" / "index.html"]
    drawn = {page.parent.name for page, text in texts.items() if '<div class="drawing"><svg' in text}
    assert drawn == {"architecture", "gateway", "switch"}


def test_a_link_that_leads_nowhere_fails_the_build(copy: Path) -> None:
    with (copy / "docs" / "power.md").open("a", encoding="utf-8") as page:
        page.write("\nSee [the other page](no_such_page.md).\n")
    ended = built(copy)
    assert ended.returncode == 1
    assert "power.md" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_each_diagram_has_its_drawing() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    diagrams = re.findall(r"^```mermaid\n(.*?)^```$", pages, re.M | re.S)
    named = {hashlib.sha256(diagram.encode()).hexdigest()[:12] for diagram in diagrams}
    assert {file.stem for file in (ROOT / "docs/drawings").glob("*.svg")} == named


def test_the_order_of_pages_names_each_page_once() -> None:
    def files(part: Any) -> list[str]:
        if isinstance(part, str):
            return [part]
        return [file for each in (part.values() if isinstance(part, dict) else part) for file in files(each)]

    named = files(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert len(named) == len(set(named))
    assert {page for page in pages if not page.startswith("findings/")} - set(named) == set()


def test_the_man_page_and_the_completions_are_those_of_the_commands(copy: Path) -> None:
    shutil.copytree(ROOT / "share", copy / "share")
    before = {file: file.read_bytes() for file in (copy / "share").rglob("*") if file.is_file()}
    subprocess.run([sys.executable, "scripts/commands"], cwd=copy, env={"PYTHONPATH": str(copy)}, check=True)
    assert {file: file.read_bytes() for file in (copy / "share").rglob("*") if file.is_file()} == before
    assert len(before) == 4
