"""The documentation, held against the code: keys, defaults, examples, findings, commands, paths and links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from llamaherd.cli import main
from llamaherd.findings import Finding, InventoryError
from llamaherd.fleet import CUDA_ARCHITECTURES, Fleet, Rig
from llamaherd.inventory import examine
from llamaherd.yamlfile import read

ROOT = Path(__file__).resolve().parents[2]
README, ARCHITECTURE, INVENTORY, FINDINGS = (
    ROOT / name for name in ("README.md", "docs/architecture.md", "docs/inventory.md", "docs/findings.md")
)
PAGES = sorted([README, *(ROOT / "docs").rglob("*.md")])
CODE = re.compile(r"\bLH\d{3}\b")
NOT_IN_YAML = {"LH005", "LH006", "LH007", "LH008", "LH030", "LH031"}
"""These are about files, arguments and the lock: their sections show what `herd` says instead."""


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def sections(text: str) -> dict[str, str]:
    """The text under each heading, by heading without backticks."""
    parts = re.split(r"^##+ (.+)\n", text, flags=re.MULTILINE)
    return {heading.replace("`", ""): body for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


def merged(base: Any, part: Any) -> Any:
    """What the reader of an example makes of it: its parts added to the rig that they belong to."""
    if not (isinstance(base, dict) and isinstance(part, dict)):
        return part
    return base | {key: merged(base.get(key), value) for key, value in part.items()}


def findings_of(example: str, base: str, folder: Path) -> list[Finding]:
    """What is wrong with an example: a whole rig, or parts of the one in `base`."""
    file = folder / "example.yaml"
    file.write_text(example, encoding="utf-8")
    try:
        data = read(file).data
    except InventoryError as error:
        return list(error.findings)
    if "rig" not in data:
        whole = folder / "whole.yaml"
        whole.write_text(base, encoding="utf-8")
        file.write_text(yaml.safe_dump(merged(read(whole).data, data)), encoding="utf-8")
    return list(examine(file)[1])


def whole_rig(page: Path) -> str:
    (rig,) = [block for block in blocks(text_of(page), "yaml") if block.startswith("rig:")]
    return rig


def examples() -> list[Any]:
    return [
        pytest.param(page, block, id=f"{page.stem}-{number}")
        for page in PAGES
        if page != FINDINGS
        for number, block in enumerate(blocks(text_of(page), "yaml"))
    ]


@pytest.mark.parametrize(("page", "example"), examples())
def test_examples_load(page: Path, example: str, tmp_path: Path) -> None:
    base = whole_rig(page if page == README else INVENTORY)
    # A warning tells of a file that is not there, as it may be in an example.
    assert [str(each) for each in findings_of(example, base, tmp_path) if each.severity == "error"] == []


# --- keys ----------------------------------------------------------------------------------------------------


def inner_model(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model that a value of this type holds, and whether it holds many by name."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for argument in get_args(annotation):
        found, _ = inner_model(argument)
        if found:
            return found, get_origin(annotation) is dict
    return None, False


def documented(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Every mapping of an inventory: the heading of its section, and its model."""
    yield path or "The top", model
    for key, field in model.model_fields.items():
        inner, many = inner_model(field.annotation)
        if inner:
            yield from documented(inner, ".".join(filter(None, [path, key, "NAME" if many else ""])))


def shown_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.default
    assert value is not PydanticUndefined, "a default that is made by a function: teach this test to show it"
    if isinstance(value, BaseModel):
        (value,) = set(value.model_dump().values())
    match value:
        case None:
            return "none"
        case "":
            return '`""`'
        case tuple():
            return f"`{list(value)}`"
        case _:
            return f"`{value}`"


MODELS = list(documented(Rig))


def test_every_model_of_the_fleet_is_looked_at() -> None:
    from llamaherd import fleet

    declared = {each for each in vars(fleet).values() if isinstance(each, type) and issubclass(each, fleet.Declared)}
    assert declared - {fleet.Declared, Fleet} == {model for _, model in MODELS}
    assert all(f"`{key}`" in text_of(INVENTORY) for key in Fleet.model_fields)


@pytest.mark.parametrize(("path", "model"), MODELS, ids=[path for path, _ in MODELS])
def test_keys_and_defaults_are_described(path: str, model: type[BaseModel]) -> None:
    described = sections(text_of(INVENTORY))
    assert path in described, f"docs/inventory.md has no section `{path}`"
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+) \|$", described[path], re.MULTILINE)
    assert [(key, default) for key, _, default, _ in rows] == [
        (key, shown_default(field)) for key, field in model.model_fields.items()
    ]


def choices(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for argument in get_args(annotation):
            yield from choices(argument)


@pytest.mark.parametrize(("path", "model"), MODELS, ids=[path for path, _ in MODELS])
def test_choices_are_named(path: str, model: type[BaseModel]) -> None:
    section = sections(text_of(INVENTORY))[path]
    wanted = [choice for field in model.model_fields.values() for choice in choices(field.annotation)]
    assert [choice for choice in wanted if f"`{choice}`" not in section] == []


def test_known_cards_are_named() -> None:
    section = sections(text_of(INVENTORY))["gpus.cards.NAME"]
    assert [card for card in CUDA_ARCHITECTURES if f"`{card}`" not in section] == []


# --- findings ------------------------------------------------------------------------------------------------


def described_findings() -> dict[str, str]:
    return {code: body for code, body in sections(text_of(FINDINGS)).items() if CODE.fullmatch(code)}


def test_findings_are_described_and_made() -> None:
    made = {code for file in (ROOT / "llamaherd").rglob("*.py") for code in CODE.findall(text_of(file))}
    assert set(described_findings()) == made
    assert list(described_findings()) == sorted(described_findings())


@pytest.mark.parametrize("code", sorted(described_findings()))
def test_findings_have_an_example_and_a_way_out(code: str, tmp_path: Path) -> None:
    body = described_findings()[code]
    assert "Way out: " in body
    if code in NOT_IN_YAML:
        (example,) = blocks(body, "console")
        assert set(CODE.findall(example)) == {code}
        return
    (example,) = blocks(body, "yaml")
    found = findings_of(example, whole_rig(INVENTORY), tmp_path)
    assert code in {each.code for each in found}
    assert {each.code for each in found if each.severity == "error"} <= {code}


def test_other_pages_name_findings_that_exist() -> None:
    assert {code for page in PAGES for code in CODE.findall(text_of(page))} <= set(described_findings())


# --- commands, paths, links ----------------------------------------------------------------------------------


def test_commands_exist() -> None:
    named: set[str] = set()
    for page in PAGES:
        text = text_of(page)
        typed = [line for block in blocks(text, "console") for line in re.findall(r"^\$ (.+)", block, re.MULTILINE)]
        typed += re.findall(r"`([^`\n]+)`", prose(text))
        named |= {found[1] for line in typed if (found := re.match(r"herd (?:-i \S+ )?([a-z]+)\b", line))}
    assert named <= set(main.commands)
    assert set(main.commands) - set(re.findall(r"herd ([a-z]+)", text_of(README))) == set()


def test_paths_exist() -> None:
    """Whatever a page names as a path of this repository is there."""
    folders = "|".join(("llamaherd", "roles", "templates", "compose", "scripts", "tests", "inventory", "docs"))
    path = re.compile(rf"`((?:(?:{folders})/[\w./-]*)|(?:inventory|deploy)\.py)[^`]*`")
    named = {found for page in PAGES for found in path.findall(prose(text_of(page)))}
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []


def test_every_module_has_its_line() -> None:
    text = text_of(ARCHITECTURE)
    modules = [path for path in (ROOT / "llamaherd").glob("*.py") if path.name != "__init__.py"]
    packages = [path.parent for path in (ROOT / "llamaherd").glob("*/__init__.py")]
    wanted = [f"`llamaherd/{path.name}`" for path in modules] + [f"`llamaherd/{path.name}/`" for path in packages]
    wanted += [f"`{path.stem}`" for path in (ROOT / "roles").glob("*.py") if path.name != "__init__.py"]
    assert [each for each in sorted(wanted) if each not in text] == []


def anchors(page: Path) -> set[str]:
    """The names that a page's headings get: lower case, dashes for spaces, other signs left out."""
    headings = re.findall(r"^#+ (.+)$", prose(text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(text_of(page))):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_exit_codes_are_those_of_the_program() -> None:
    from llamaherd import cli

    rows: Mapping[str, str] = dict(re.findall(r"^\| (\d+) \| (.+) \|$", text_of(README), re.MULTILINE))
    assert list(map(int, rows)) == [0, cli.FAILED, cli.UNUSABLE, cli.INTERRUPTED]
