"""Keys of an instance that are said beside the inventory: as if the YAML said so, and told by their own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.inventory.exact_edits import parse_setting, with_settings
from llamaherd.inventory.yaml_file import parse_yaml

RIG = parse_yaml(Path("duo.yaml"), "rig: duo\ninstances: {chat: {batch: 512, draft: {mtp: 1, p_min: 0.5}, on: [a]}}\n")


def changed(*words: str) -> Any:
    return with_settings(RIG, "chat", [parse_setting(word) for word in words]).data["instances"]["chat"]


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("batch=1024", ("batch",), 1024),
        ("draft.mtp=2", ("draft", "mtp"), 2),
        ("kv = q8_0", ("kv",), "q8_0"),
        ("on=[a, b]", ("on",), ["a", "b"]),
        ("draft={mtp: 3}", ("draft",), {"mtp": 3}),
        ("extra_args=--a --b=c", ("extra_args",), "--a --b=c"),
        ("mlock=true", ("mlock",), True),
        ("draft=null", ("draft",), None),
        ("draft=", ("draft",), None),
    ],
)
def test_a_value_is_what_yaml_says(word: str, path: tuple[str, ...], value: object) -> None:
    found = parse_setting(word)
    assert (found.path, found.value, str(found)) == (path, value, word)


@pytest.mark.parametrize("word", ["batch", "=1", "draft..mtp=1", ".=1", "a=1\nb: 2", "a." * 9 + "a=1"])
def test_what_sets_nothing_is_said(word: str) -> None:
    with pytest.raises(UserError, match="sets nothing"):
        parse_setting(word)


@pytest.mark.parametrize("word", ["batch=[1", "batch={a: 1, a: 2}", "batch=!!python/object:os.system {}"])
def test_what_is_no_yaml_is_a_finding(word: str) -> None:
    with pytest.raises(InventoryError):
        parse_setting(word)


def test_it_is_as_if_the_yaml_said_so() -> None:
    assert changed("batch=1024", "draft.mtp=2") == {"batch": 1024, "draft": {"mtp": 2, "p_min": 0.5}, "on": ["a"]}
    assert changed("draft={mtp: 2}")["draft"] == {"mtp": 2}
    assert "draft" not in changed("draft=null")
    assert changed("cache.k=q8_0")["cache"] == {"k": "q8_0"}
    assert RIG.data["instances"]["chat"]["batch"] == 512


def test_what_is_wrong_with_it_is_told_at_its_own_words() -> None:
    whole = with_settings(RIG, "chat", [parse_setting("draft.mtp=2")])
    assert str(whole.value(("instances", "chat", "draft", "mtp"))).startswith("--with draft.mtp=2")
    assert str(whole.value(("instances", "chat", "batch"))).startswith("duo.yaml:")


def test_a_rig_without_the_instance_stays_as_it_is() -> None:
    assert with_settings(RIG, "coder", [parse_setting("batch=1")]) is RIG
