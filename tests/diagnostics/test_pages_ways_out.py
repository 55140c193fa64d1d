"""Of every page of a finding: the way out that is printed, done as it says, leaves no such finding."""

from __future__ import annotations

import copy
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.diagnostics.findings import Finding
from llamaherd.inventory.yaml_file import Document, read_yaml
from llamaherd.inventory.yaml_text import Loader
from llamaherd.pipeline.rules import rules
from tests.project.test_docs import INVENTORY, NOT_EXAMINED, findings_of, merged, whole_rig
from tests.support.sample import drawn

QUOTED = re.compile(r"`([^`]+)`")
WORDS = re.compile(r"(?:^|; |, or )(?P<does>write|add|leave|did you mean|set)\b")
Path_ = tuple[str | int, ...]


def example_of(code: str) -> tuple[str, str]:
    return rules()[code].language, rules()[code].shown_example


def is_rig(language: str, example: str) -> bool:
    return language == "yaml" and not example.startswith(("services:", "version:"))


def whole_of(example: str, folder: Path) -> str:
    """A whole rig with an example in it, as text."""
    (folder / "part.yaml").write_text(example, encoding="utf-8")
    part = read_yaml(folder / "part.yaml").data
    if "rig" in part:
        return example
    (folder / "base.yaml").write_text(whole_rig(INVENTORY), encoding="utf-8")
    return yaml.safe_dump(merged(read_yaml(folder / "base.yaml").data, part), allow_unicode=True)


def path_of(document: Document, found: Finding) -> tuple[Path_, bool]:
    """The deepest path whose key or value stands where the finding points, and whether that is the key."""
    both = [*((p, at, True) for p, at in document.keys.items()), *((p, at, False) for p, at in document.values.items())]
    there = [(path, key) for path, at, key in both if (at.line, at.column) == (found.place.line, found.place.column)]
    return max(there, key=lambda each: len(each[0]))


def done(data: Any, path: Path_, at_key: bool, found: Finding) -> Any:
    """The rig with the way out done; None where the help is no instruction of that kind."""
    whole = copy.deepcopy(data)
    arounds = [whole]
    for part in path[:-1]:
        arounds.append(arounds[-1][part])
    here, quoted, does = path[-1], QUOTED.findall(found.help), WORDS.match(found.help)
    if does is None or (does["does"] != "leave" and not quoted):
        return None
    if does["does"] == "leave":
        return whole if _leave(arounds[-1], here, found, quoted) else None
    if "extra_args" in path:
        at = path.index("extra_args")
        arounds, here = arounds[: at + 1], "extra_args"
        if not re.match(r"[\w-]+: ", quoted[0]):
            return whole if _reword(arounds[-1], found, quoted) else None
    target = arounds[-1]
    written = yaml.load(quoted[0], Loader=Loader) if re.match(r"[\w-]+: ", quoted[0]) else None
    if not isinstance(written, dict):
        if does["does"] != "did you mean" or not isinstance(target, dict):
            return None
        if at_key:
            target[quoted[0]] = target.pop(here)
        else:
            target[here] = quoted[0]
        return whole
    inner = target[here] if isinstance(target, dict) and here in target else None
    if isinstance(inner, dict) and here not in written and does["does"] != "did you mean":
        target = inner
    elif here not in written and (at_key or here in ("extra_args", "environment")) and does["does"] != "add":
        target.pop(here)
    target.update(written)
    return whole


def _leave(around: Any, here: str | int, found: Finding, quoted: list[str]) -> bool:
    """Leave out what is named, or all of it."""
    name = quoted[0].partition(":")[0] if quoted and not found.help.startswith("leave it") else str(here)
    if isinstance(around, list):
        words = shlex.split(QUOTED.findall(found.message)[0])
        return _replace(around, words, [])
    inner = around[here] if isinstance(around[here], dict) and name in around[here] else around
    return inner.pop(name, None) is not None


def _reword(around: dict[str, Any], found: Finding, quoted: list[str]) -> bool:
    """Arguments in place of those that the message names."""
    given = around["extra_args"]
    words = shlex.split(given) if isinstance(given, str) else [str(word) for word in given]
    around["extra_args"] = words
    return _replace(words, shlex.split(QUOTED.findall(found.message)[0]), shlex.split(quoted[0]))


def _replace(words: list[str], wrong: list[str], better: list[str]) -> bool:
    """One run of words in place of another; with the value of a flag that only the better one names."""
    for at in range(len(words)):
        if words[at : at + len(wrong)] == wrong:
            valued = len(wrong) == 1 and len(better) > 1 and words[at + 1 : at + 2] == better[-1:]
            words[at : at + len(wrong) + valued] = better
            return True
    return False


RIGS = [code for code in rules() if code not in NOT_EXAMINED and is_rig(*example_of(code))]
READ = [code for code in RIGS if code not in ("LH001", "LH002", "LH003")]
TOO_MUCH = {
    "LH107": "what is to go is the word behind the switch that is named",
    "LH186": "`store` is to stand beside `models`, and `from` no more below it",
}
"""What a machine does not do as it is said."""


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, int, int]]:
    """The help of each page that is an instruction or a question; how many such findings there were, and are then."""
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for code in READ:
        text = whole_of(example_of(code)[1], folder)
        before = [each for each in findings_of(text, "yaml", "", folder) if each.code == code]
        document = read_yaml(folder / "example.yaml")
        better = done(document.data, *path_of(document, before[0]), before[0])
        if better is not None and code not in TOO_MUCH:
            after = findings_of(yaml.safe_dump(better, allow_unicode=True), "yaml", "", folder)
            found[code] = (before[0].help, len(before), len([each for each in after if each.code == code]))
    return found


@pytest.mark.parametrize("code", drawn(READ))
def test_the_way_out_of_a_page_is_right(code: str, tried: dict[str, tuple[str, int, int]]) -> None:
    help_, before, after = tried.get(code, ("", 1, 0))
    assert after < before, help_


def test_most_ways_out_are_tried(tried: dict[str, tuple[str, int, int]]) -> None:
    """The others are choices that only an owner can make: `rename one of them`."""
    assert len(tried) >= 65, sorted(set(READ) - set(tried))
