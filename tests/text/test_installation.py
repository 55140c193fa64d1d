"""The command that adds an extra: by the tool and from the source that pip, uv and pipx record."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from llamaherd import installation

PYTHON = "/venv/bin/python"
FOLDER = {"url": "file:///home/tom/my%20clones/llamaherd", "dir_info": {}}
SOURCES = {
    "a folder": (FOLDER, "'/home/tom/my clones/llamaherd[report]'"),
    "a checkout": (FOLDER | {"dir_info": {"editable": True}}, "-e '/home/tom/my clones/llamaherd[report]'"),
    "a wheel": ({"url": "file:///tmp/llamaherd-9-py3-none-any.whl"}, "'/tmp/llamaherd-9-py3-none-any.whl[report]'"),
    "a folder with a quote": ({"url": "file:///home/o'brien/herd"}, "'/home/o'\"'\"'brien/herd[report]'"),
    "git": (
        {"url": "https://git.lan/llamaherd", "vcs_info": {"vcs": "git", "commit_id": "1"}},
        "'llamaherd[report] @ git+https://git.lan/llamaherd'",
    ),
    "an index": (None, "'llamaherd[report]'"),
}


class Recorded:
    """What an installer has recorded."""

    def __init__(self, source: object) -> None:
        self._source = source

    def read_text(self, name: str) -> str | None:
        """Return a file of the metadata, if it exists."""
        assert name == "direct_url.json"
        return json.dumps(self._source) if self._source else None


@pytest.mark.parametrize(("source", "requirement"), SOURCES.values(), ids=SOURCES)
def test_an_extra_comes_from_the_same_source(
    source: object, requirement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "distribution", lambda _: Recorded(source))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "uv-receipt.toml").touch()
    assert installation.install_command("report") == f"uv tool install {requirement}"


@pytest.mark.parametrize(
    ("file", "pip", "command"),
    [
        ("uv-receipt.toml", True, "uv tool install"),
        ("pipx_metadata.json", True, "pipx install --force"),
        ("pyvenv.cfg", True, f"{PYTHON} -m pip install"),
        ("pyvenv.cfg", False, f"uv pip install --python {PYTHON}"),
    ],
)
def test_an_extra_is_installed_by_the_same_tool(
    file: str, pip: bool, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "distribution", lambda _: Recorded(None))
    monkeypatch.setattr(installation, "find_spec", lambda _: pip or None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", PYTHON)
    (tmp_path / file).touch()
    assert installation.install_command("tune") == f"{command} 'llamaherd[tune]'"
