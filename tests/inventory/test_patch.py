"""Keys written into the text of a rig: what was meant, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.exact_edits import Setting, parse_setting, text_with_settings
from tests.support.rigs import ROOT

RIG = """\
rig: duo  # the big one
instances:
  chat:
    engine: main   # the newest
    model: small
    context: 4096  # enough
    draft: {mtp: 2}  # pays
    # what he has measured
    threads: 6
    port: 8001
  other: {engine: main, model: small, context: 4096, port: 8002}
  last:
    engine: main
    model: small
    context: 8192
    draft:
      mtp: 3
      p_min: 0.5
    port: 8003
"""


def after(instance: str, *words: str, text: str = RIG) -> str:
    return text_with_settings(text, Path("duo.yaml"), instance, [parse_setting(word) for word in words])


def changed(text: str) -> list[str]:
    """Lines that differ."""
    before, now = RIG.splitlines(), text.splitlines()
    return [f"-{each}" for each in before if each not in now] + [f"+{each}" for each in now if each not in before]


@pytest.mark.parametrize(
    ("instance", "words", "lines"),
    [
        ("chat", ["threads=4"], ["-    threads: 6", "+    threads: 4"]),
        ("chat", ["context=8192"], ["-    context: 4096  # enough", "+    context: 8192  # enough"]),
        ("chat", ["ubatch=1024"], ["+    ubatch: 1024"]),
        ("chat", ["draft.mtp=3"], ["-    draft: {mtp: 2}  # pays", "+    draft: {mtp: 3}  # pays"]),
        ("chat", ["draft.p_min=0.75"], ["-    draft: {mtp: 2}  # pays", "+    draft: {mtp: 2, p_min: 0.75}  # pays"]),
        ("chat", ["draft=null"], ["-    draft: {mtp: 2}  # pays"]),
        ("chat", ["threads=null"], ["-    threads: 6"]),
        ("last", ["draft.p_min=null"], ["-      p_min: 0.5"]),
        ("last", ["draft.mtp=1"], ["-      mtp: 3", "+      mtp: 1"]),
        ("last", ["draft=null"], ["-    draft:", "-      mtp: 3", "-      p_min: 0.5"]),
        ("last", ["kv=q8_0"], ["+    kv: q8_0"]),
    ],
    ids=str,
)
def test_only_its_lines_change(instance: str, words: list[str], lines: list[str]) -> None:
    assert changed(after(instance, *words)) == lines


def test_in_one_line_too() -> None:
    text = after("other", "ubatch=256", "draft.mtp=2", "draft.p_min=0.5", "port=9000", "model=null")
    line = next(each for each in text.splitlines() if "other" in each)
    assert line == ("  other: {engine: main, context: 4096, port: 9000, ubatch: 256, draft: {mtp: 2, p_min: 0.5}}")


@pytest.mark.parametrize(
    "text",
    [
        "rig: duo\ninstances: {}\n",
        "rig: duo\nextends: base\n",
        "rig: duo\nbase: &base {engine: main, port: 1}\ninstances:\n  chat: *base\n",
    ],
    ids=["not there", "elsewhere", "an alias"],
)
def test_what_it_cannot_do_it_says(text: str) -> None:
    with pytest.raises(UserError, match="itself"):
        after("chat", "threads=4", text=text)


_VALUES = st.one_of(
    st.none(), st.integers(1, 9999), st.sampled_from(["q8_0", "on", "50%", "a: b", "#", "'", "yes", ""]), st.booleans()
)
_KEYS = st.sampled_from(["threads", "ubatch", "kv", "context", "split", "port"])


@given(
    name=st.sampled_from(["chat", "other", "last"]),
    keys=st.dictionaries(_KEYS, _VALUES, max_size=4),
    draft=st.one_of(st.just({}), st.fixed_dictionaries({"mtp": st.integers(1, 4)}, optional={"p_min": st.just(0.5)})),
)
def test_it_says_what_was_meant(name: str, keys: dict[str, Any], draft: dict[str, Any]) -> None:
    settings = [Setting((key,), value, key) for key, value in keys.items()]
    settings += [Setting(("draft", key), value, key) for key, value in draft.items()]
    before = yaml.safe_load(RIG)
    now = yaml.safe_load(text_with_settings(RIG, Path("duo.yaml"), name, settings))
    meant = {**before["instances"][name], **keys}
    if draft:
        meant["draft"] = {**meant.get("draft", {}), **draft}
    before["instances"][name] = {key: value for key, value in meant.items() if value is not None}
    assert now == before


@pytest.mark.parametrize("file", sorted((ROOT / "inventory/examples").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_instance_of_the_examples_can_be_patched(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    for name in data["instances"]:
        new = text_with_settings(text, file, name, [parse_setting("ubatch=1024"), parse_setting("kv=q8_0")])
        assert yaml.safe_load(new)["instances"][name]["ubatch"] == 1024
        assert len(set(new.splitlines()) - set(text.splitlines())) <= 2
