"""Texts that are no YAML: where it goes wrong, and a way out that leads to what was meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llamaherd.diagnostics.findings import Finding, InventoryError
from llamaherd.inventory.yaml_file import parse_yaml, read_yaml

DUO = (Path(__file__).parents[1] / "data" / "duo.yaml").read_text(encoding="utf-8")

WRONG = {
    "a tab": ("    context: 8192", "\tcontext: 8192", "a tab stands here", "write spaces"),
    "a tab within": ("    context: 8192", "  \tcontext: 8192", "a tab stands here", "write spaces"),
    "no space": ("context: 8192", "context:8192", "no space behind `context:`", "write `context: 8192`"),
    "no colon": ("context: 8192", "context 8192", "no colon behind `context`", "write `context: 8192`"),
    "an equals sign": ("context: 8192", "context = 8192", "no colon behind `context`", "write `context: 8192`"),
    "a space of a page": ("context: 8192", "context:\u00a08192", "U+00A0", "type a plain space"),
    "no space in a list": ("on: [std]", "on:\n    -std", "no space behind `-`", "write `- std`"),
    "one space less": ("    context: 8192", "   context: 8192", "indented by 3 spaces", "indent it with 4 spaces"),
    "two spaces more": ("    context: 8192", "      context: 8192", "indented by 6 spaces", "indent it with 4 spaces"),
    "a name as an item": ("  worker:\n", "  - worker:\n", "some does not", "leave out each `- `"),
    "an open brace": ("fans: 70%}", "fans: 70%", "`{` is opened here", "add `}`"),
    "an open bracket": ("on: [std]", "on: [std", "`[` is opened here", "add `]`"),
    "an open quotation": ('cuda: "13.0"', 'cuda: "13.0', '`"` is opened here', 'add `"`'),
    "an open quotation at the end": ("backend: systemd", "backend: 'systemd", "`'` is opened here", "add `'`"),
    "a comma left out": ("RTX 3090 Ti, uuid", "RTX 3090 Ti uuid", "a comma is missing", "write `, uuid:`"),
    "a star": ('files: "*Q4_K_M.gguf"', "files: *Q4_K_M.gguf", "`*` at the beginning", 'write it in quotes: `"*Q4'),
    "an at sign": ("host: duo.lan", "host: @duo", "begins with `@`", 'write it in quotes: `"@duo"`'),
    "a percent sign": ("fans: 70%", "fans: %70", "begins with `%`", 'write it in quotes: `"%70"`'),
    "a colon in a value": (
        "engine: ik\n",
        "engine: ik: main\n",
        "a value has `: ` in it",
        'write it in quotes: `engine: "ik',
    ),
    "an alias of itself": ("on: [std]", "on: &on [*on]", "it contains itself", "write out what the `*`"),
    "two documents": ("host:\n", "---\nhost:\n", "a second document", "one file per rig"),
    "a merge": ("host:\n", "<<<<<<< HEAD\nhost:\n", "a merge is not finished", "keep what is right"),
}
BARE = re.compile(r"<block|scalar|token|mapping values|expected")
"""YAML's own words."""


def finding(text: str, folder: Path) -> Finding:
    file = folder / "duo.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InventoryError) as caught:
        read_yaml(file)
    (found,) = caught.value.findings
    return found


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_it_is_said_as_people_say_it(case: tuple[str, str, str, str], tmp_path: Path) -> None:
    right, wrong, message, help_ = case
    assert right in DUO
    found = finding(DUO.replace(right, wrong, 1), tmp_path)
    assert found.code == "LH001"
    assert message in found.message
    assert help_ in found.help
    assert not BARE.search(found.message)


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_the_place_is_where_it_is_mended(case: tuple[str, str, str, str], tmp_path: Path) -> None:
    right, wrong, *_ = case
    first = DUO[: DUO.index(right)].count("\n") + 1
    assert first <= finding(DUO.replace(right, wrong, 1), tmp_path).place.line <= first + 2


@pytest.mark.parametrize("name", ["no space", "no colon", "an equals sign", "no space in a list", "a colon in a value"])
def test_what_it_says_to_write_can_be_read(name: str, tmp_path: Path) -> None:
    right, wrong, *_ = WRONG[name]
    text = DUO.replace(right, wrong, 1)
    found = finding(text, tmp_path)
    written = re.search(r"`(.+)`$", found.help)
    assert written
    lines = text.splitlines()
    line = lines[found.place.line - 1]
    lines[found.place.line - 1] = line[: len(line) - len(line.lstrip())] + written[1]
    (tmp_path / "better.yaml").write_text("\n".join(lines), encoding="utf-8")
    assert read_yaml(tmp_path / "better.yaml").data["rig"] == "duo"


def test_what_stands_below_a_name_twice_is_said_once(tmp_path: Path) -> None:
    found = finding(DUO.replace("  chat:\n", "  reasoner:\n"), tmp_path)
    assert (found.code, found.help) == ("LH003", "rename one of the two")


@pytest.mark.parametrize("escape", [r"\UFFFFFFFF", r"\U00110000"])
def test_an_escape_that_is_no_character(escape: str) -> None:
    with pytest.raises(InventoryError) as caught:
        parse_yaml(Path("rig.yaml"), f'rig: "{escape}"\n')
    (finding,) = caught.value.findings
    assert (finding.code, finding.place.line) == ("LH001", 1)
