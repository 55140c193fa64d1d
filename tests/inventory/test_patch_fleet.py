"""Users written into the text of a fleet's file: what was meant, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.exact_edits import text_with_value
from llamaherd.inventory.yaml_text import Loader

BLOCKS = """\
# Ours.
gateway:
  on: [attic]  # the big one
  users:
    # the first
    tom:
      key: {file: keys/users/tom}
      streams: 4
    ann: {key: {file: keys/users/ann}}  # may less
  models:
    coder: {serve: [attic.coder]}
"""
LINE = "gateway: {on: [attic], users: {tom: {key: {env: A}}}, models: {coder: {serve: [attic.coder]}}}\n"
NOBODY = "gateway:\n  on: [attic]\n  models:\n    coder: {serve: [attic.coder]}\n"
EMPTY = "gateway:\n  on: [attic]\n  users: {}\n  models:\n    coder: {serve: [attic.coder]}\n"
BOB = {"key": {"file": "keys/users/bob"}, "models": ["coder"]}


def put(text: str, name: str, value: object) -> str:
    return text_with_value(text, Path("fleet.yaml"), ("gateway", "users", name), value)


def users(text: str) -> Any:
    return yaml.load(text, Loader=Loader)["gateway"].get("users")


@pytest.mark.parametrize("text", [BLOCKS, LINE, NOBODY, EMPTY], ids=["blocks", "one line", "nobody", "empty"])
def test_a_user_comes_and_nothing_else_changes(text: str) -> None:
    now = put(text, "bob", BOB)
    before = yaml.load(text, Loader=Loader)
    before["gateway"].setdefault("users", {})["bob"] = BOB
    assert yaml.load(now, Loader=Loader) == before
    if text is not LINE:
        assert [line for line in text.splitlines() if line not in now.splitlines() and "users: {}" not in line] == []


@pytest.mark.parametrize("name", ["tom", "ann"])
def test_a_user_goes_and_comments_stay(name: str) -> None:
    now = put(BLOCKS, name, None)
    assert set(dict(users(now) or {})) == {"tom", "ann"} - {name}
    assert "# Ours." in now
    assert "# the big one" in now


def test_the_last_user_goes() -> None:
    assert users(put(LINE, "tom", None)) is None
    alone = BLOCKS.replace("    ann: {key: {file: keys/users/ann}}  # may less\n", "")
    assert users(put(alone, "tom", None)) is None


def test_what_is_written_in_an_unusual_way_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be changed by itself"):
        put("gateway: &all\n  on: [attic]\n  users: &u\n    tom: {key: {env: A}}\n  also: *u\n", "bob", BOB)


@given(st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), min_size=1, max_size=6, unique=True))
def test_who_came_can_go_again(names: list[str]) -> None:
    text = NOBODY
    for name in names:
        text = put(text, name, BOB)
    assert set(dict.fromkeys(users(text) or ())) == set(names)
    for name in names[1:]:
        text = put(text, name, None)
    assert users(text) == {names[0]: BOB}
