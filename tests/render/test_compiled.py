"""Templates are compiled once, and kept beside what Python itself compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from llamaherd import render
from llamaherd.text import quoting


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Python keeps what it compiled of that module, for this test alone."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = Path(cache_from_source(render.__file__)).parent
    folder.mkdir(parents=True)
    render.template_environment.cache_clear()
    yield folder
    render.template_environment.cache_clear()


def text() -> str:
    """Return the text of a template with a value in it."""
    return render.render("host/install-python.sh.j2", wait=60)


def test_a_template_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = text()
    assert list(folder.glob("template-*.cache"))
    render.template_environment.cache_clear()
    monkeypatch.delattr(render._Environment, "_parse")
    monkeypatch.setattr(render._Environment, "compile", lambda *_: pytest.fail("it was compiled again"))
    assert text() == first


def test_another_version_of_ours_compiles_anew(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text()
    other = tmp_path / "quoting.py"
    other.write_text("# changed\n")
    monkeypatch.setattr(quoting, "__file__", str(other))
    render.template_environment.cache_clear()
    before = set(folder.glob("template-*.cache"))
    text()
    assert set(folder.glob("template-*.cache")) - before


@pytest.mark.parametrize("why", ["it is not there", "nothing is to be written"])
def test_where_nothing_may_be_written_nothing_is(folder: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "it is not there":
        folder.rmdir()
    else:
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert text()
    assert not list(folder.glob("*"))
