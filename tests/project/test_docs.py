"""The documentation, held against the code: keys, defaults, examples, findings, commands, paths and links."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from llamaherd import __version__, recipes
from llamaherd.cli.common import FAILED, INTERRUPTED, UNUSABLE
from llamaherd.cli.herd import main
from llamaherd.diagnostics.findings import Finding, InventoryError, Rule
from llamaherd.engines import DIALECTS, Server
from llamaherd.engines.flags import catalogues
from llamaherd.gguf.folder import folder_shape
from llamaherd.gguf.header import Header, TensorGroup
from llamaherd.inventory.schema import Draft, Fleet, Instance, Rig
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.inventory.schema.key_flags import KEY_FLAGS, key_arguments
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.inventory.yaml_text import Loader
from llamaherd.lock import Lock, LockedFile, LockedLocal, LockedModel
from llamaherd.pipeline.fleet_files import examine_fleet, survey_fleet
from llamaherd.pipeline.rules import rules
from llamaherd.reference.cards import CARDS
from llamaherd.render import render
from llamaherd.scaffold import fleet_files
from tests.support import gguf_files
from tests.support.sample import drawn

ROOT = Path(__file__).resolve().parents[2]
GATEWAY = ROOT / "docs" / "gateway.md"
MONITORING = ROOT / "docs" / "monitoring.md"
CHAT = ROOT / "docs" / "chat_page.md"
ADDRESS = ROOT / "docs" / "virtual_address.md"
HOWTOS = tuple(ROOT / "docs/howto" / f"{name}.md" for name in ("limit_a_user", "two_rigs", "charts"))
OF_FLEETS_FILE = (GATEWAY, MONITORING, CHAT, ADDRESS, *HOWTOS)
README, ARCHITECTURE, INVENTORY, FLEET = (
    ROOT / name for name in ("README.md", "docs/architecture.md", "docs/inventory.md", "docs/fleet.md")
)
HOUSEHOLD, MOVE = ROOT / "docs/tutorial_household.md", ROOT / "docs/tutorial_move.md"
CONTRIBUTING, GLOSSARY = ROOT / "CONTRIBUTING.md", ROOT / "docs/glossary.md"
PAGES = sorted([README, CONTRIBUTING, *(ROOT / "docs").rglob("*.md")])
RIGS = sorted((ROOT / "inventory/examples").glob("*.yaml"))
RECIPES = {
    "wsl": ("launch_mtp_server.sh", "docker-compose.yml", "wsl.wslconfig", "build-wsl.sh"),
    "six": ("qwen-3.5-122B.sh", "build-six.sh"),
    "budget": ("budget.sh",),
    "one": ("olares.txt",),
}
"""What the owners of the example rigs published, as it was: files of tests/data/recipes/."""
CODE = re.compile(r"\bLH\d{3}\b")
NOT_EXAMINED = {
    *("LH005", "LH006", "LH007", "LH008"),  # what files there are, and what is said on the command line
    "LH014",  # what takes very many lines
    *("LH030", "LH031", "LH032", "LH033", "LH034", "LH035"),  # the lock
    *(f"LH{number}" for number in range(300, 326)),  # what stands in `fleet.yaml`, beside rigs
    *(f"LH{number}" for number in range(350, 355)),
    "LH361",  # what stands in `fleet.yaml`, too
    "LH162",  # what a file of this machine holds
    "LH279",  # what lies on this machine
    "LH282",  # a config.yaml of llama-swap
    "LH290",  # Python beside the rigs
    *("LH184", "LH185"),  # what a rig's neighbours are
}
"""No example can have these mistakes by itself: their pages show what `herd` says instead."""


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


def header_of(model: gguf_files.Model) -> Header:
    """What a lock would hold of a file with this model."""
    groups = []
    for weight in model.tensors:
        layer = re.fullmatch(r"blk\.(\d+)\.(.+)", weight.name)
        name, layers = (layer[2], layer[1]) if layer else (weight.name, None)
        groups.append(TensorGroup(name=name, type=weight.type, shape=weight.shape, layers=layers))
    parameters = dict(model.parameters)
    return Header(
        architecture=model.architecture, vocabulary=model.tokens, parameters=parameters, tensors=tuple(groups)
    )


@cache
def locked() -> Lock:
    """The lock of the rig that examples are parts of: an MoE of 35B with a prediction head, and a small dense model."""
    declared = yaml.safe_load(whole_rig(INVENTORY))["models"]
    large, small = header_of(gguf_files.qwen(experts="Q3_K")), header_of(gguf_files.gemma3())
    small = small.model_copy(update={"vocabulary": 262_144})  # Gemma 3's own
    model = LockedModel(
        repo=declared["35b"]["hf"],
        revision="main",
        files=f"*{declared['35b']['quant']}*.gguf",
        commit="0" * 40,
        endpoint="https://hub.lan",
        shards=(LockedFile(path="35b.gguf", size=17_216_897_024, sha256="0" * 64),),
        header=large,
    )
    config = {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "num_attention_heads": 32}
    config |= {"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960, "dtype": "bfloat16"}
    weights = LockedFile(path="model.safetensors", size=16_381_516_776, sha256="0" * 64)
    folder = LockedModel(
        repo="Qwen/Qwen3-8B",
        revision="main",
        files="*",
        commit="0" * 40,
        endpoint="https://hub.lan",
        shards=(weights,),
        shape=folder_shape(json.dumps(config).encode(), None, {weights.path: weights.size}),
    )
    file = LockedLocal(sha256=declared["small"]["sha256"], size=291_545_280, data_offset=0, header=small)
    return Lock(models=(model, folder), files=(file,))


def findings_of(example: str, language: str, base: str, folder: Path) -> tuple[Finding, ...]:
    """What is wrong with an example: a recipe, a whole rig, or parts of the one in `base`."""
    if language != "yaml" or example.startswith(("services:", "version:")):
        sections = re.search(r"\[(?:wsl2|general|experimental)\]", example)
        ini = "llama.service" if "[Service]" in example else ".wslconfig" if sections else "models.ini"
        name = {"sh": "recipe.sh", "ini": ini, "yaml": "compose.yaml"}[language]
        recipe = folder / name
        recipe.write_text(example, encoding="utf-8")
        return recipes.examine(recipe)
    file = folder / "example.yaml"
    file.write_text(example, encoding="utf-8")
    try:
        data = read_yaml(file).data
    except InventoryError as error:
        return error.findings
    if "rig" not in data:
        whole = folder / "whole.yaml"
        whole.write_text(base, encoding="utf-8")
        file.write_text(yaml.safe_dump(merged(read_yaml(whole).data, data), allow_unicode=True), encoding="utf-8")
    return examine_fleet(file, locked())[1]


def whole_rig(page: Path) -> str:
    (rig,) = [block for block in blocks(text_of(page), "yaml") if block.startswith("rig:")]
    return rig


def examples() -> list[Any]:
    return [
        pytest.param(page, block, id=f"{page.stem}-{number}")
        for page in PAGES
        if page not in (FLEET, HOUSEHOLD, MOVE, *OF_FLEETS_FILE)
        if page.stem not in rules() and page.parent.name != "rigs"
        for number, block in enumerate(blocks(text_of(page), "yaml"))
    ]


@pytest.mark.parametrize(("page", "example"), examples())
def test_examples_load(page: Path, example: str, tmp_path: Path) -> None:
    base = whole_rig(page if page == README else INVENTORY)
    # A warning tells of a file that is not there, as it may be in an example.
    found = findings_of(example, "yaml", base, tmp_path)
    assert [str(each) for each in found if each.severity == "error"] == []


def test_files_of_a_fleet_load(tmp_path: Path) -> None:
    """The files that the page shows, beside what `herd init` writes for a rig."""
    for name, text in fleet_files({"duo": render("scaffold/example.yaml.j2", rig="duo")}).items():
        if name.endswith(".yaml"):
            (tmp_path / name).write_text(text, encoding="utf-8")
    written_files(FLEET, tmp_path)
    fleet, found = examine_fleet(tmp_path)
    assert [str(each) for each in found if each.severity == "error"] == []
    assert set(fleet.rigs) == {"duo", "twin"}


def written_files(page: Path, folder: Path) -> list[Path]:
    """Write the YAML blocks of a page that begin with the name of a file, and return the files."""
    found = []
    for block in blocks(text_of(page), "yaml"):
        if named := re.match(r"# (\S+)\n", block):
            found.append(folder / named[1])
            found[-1].write_text(block, encoding="utf-8")
    return found


def test_files_of_tutorials_load(tmp_path: Path) -> None:
    assert len(written_files(HOUSEHOLD, tmp_path)) == 3
    fleet, found = examine_fleet(tmp_path)
    assert [str(each) for each in found if each.severity == "error"] == []
    assert set(fleet.rigs) == {"attic", "porch"}
    for file in written_files(MOVE, tmp_path):
        assert recipes.is_recipe(file)
        assert [str(each) for each in recipes.examine(file) if each.severity == "error"] == []


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
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        first, *others = value.model_dump().values()
        value = first if all(other == first for other in others) else {}
    match value:
        case None:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case "":
            return '`""`'
        case tuple():
            return f"`{list(value)}`"
        case _:
            return f"`{value}`"


MODELS = list(documented(Rig))


def test_every_model_of_the_fleet_is_looked_at() -> None:
    from llamaherd.inventory import schema as fleet

    declared = {each for each in vars(fleet).values() if isinstance(each, type) and issubclass(each, fleet.Declared)}
    assert declared - {fleet.Declared, Fleet} == {model for _, model in MODELS}
    assert all(f"`{key}`" in text_of(INVENTORY) for key in Fleet.model_fields)


@pytest.mark.parametrize(("path", "model"), MODELS, ids=[path for path, _ in MODELS])
def test_keys_and_defaults_are_described(path: str, model: type[BaseModel]) -> None:
    described = sections(text_of(INVENTORY))
    assert path in described, f"docs/inventory.md has no section `{path}`"
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+) \|$", described[path], re.MULTILINE)
    assert [(key, default) for key, _, default, _ in rows] == [
        (field.alias or key, shown_default(field)) for key, field in model.model_fields.items()
    ]


def choices(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for argument in get_args(annotation):
            yield from choices(argument)


@pytest.mark.parametrize(("path", "model"), MODELS, ids=[path for path, _ in MODELS])
def test_choices_are_named(path: str, model: type[BaseModel]) -> None:
    described = sections(text_of(INVENTORY))
    section = described[path] + (described["On several GPUs"] if model is Instance else "")
    wanted = [choice for field in model.model_fields.values() for choice in choices(field.annotation)]
    assert [choice for choice in wanted if f"`{choice}`" not in section] == []


OF_FLEETS = list(documented(FleetFile))[1:]


@pytest.mark.parametrize(("path", "model"), OF_FLEETS, ids=[path for path, _ in OF_FLEETS])
def test_keys_of_a_fleets_file_are_described(path: str, model: type[BaseModel]) -> None:
    page = MONITORING if path.startswith("monitoring") else CHAT if path == "gateway.chat" else GATEWAY
    described = sections(text_of(page))
    assert path in described, f"docs/{page.name} has no section `{path}`"
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+) \|$", described[path], re.MULTILINE)
    assert [(key, default) for key, _, default, _ in rows] == [
        (key, shown_default(field)) for key, field in model.model_fields.items()
    ]
    wanted = [choice for field in model.model_fields.values() for choice in choices(field.annotation)]
    assert [choice for choice in wanted if f"`{choice}`" not in described[path]] == []


@pytest.mark.parametrize("page", OF_FLEETS_FILE, ids=lambda page: page.stem)
def test_the_fleets_file_of_a_page_is_right(tmp_path: Path, page: Path) -> None:
    """The first one, with rigs that have what it names."""
    (tmp_path / "fleet.yaml").write_text(blocks(text_of(page), "yaml")[0], encoding="utf-8")
    for number, name in enumerate(("attic", "porch"), 20):
        rig = render("scaffold/example.yaml.j2", rig=name).replace("\n  chat:\n", "\n  coder:\n")
        reached = rig.replace("    port: 8080", "    listen: 0.0.0.0\n    api_key: {env: K}\n    port: 8080")
        reached += f"store: {{share: {{address: 192.168.1.{number}}}}}\n"
        (tmp_path / f"{name}.yaml").write_text(reached, encoding="utf-8")
    survey = survey_fleet(tmp_path)
    found = [str(each) for each in survey.findings if each.place.file.name == "fleet.yaml" and each.severity == "error"]
    assert survey.own
    assert found == []


def test_known_cards_and_versions_are_named() -> None:
    described = sections(text_of(INVENTORY))
    assert [card for card in CARDS if f"`{card}`" not in described["gpus.cards.NAME"]] == []
    versions = {each.version[:10] for kind in DIALECTS for each in catalogues(kind)}
    assert [version for version in versions if f"`{version}`" not in described["engines.NAME"]] == []


KINDS = tuple(DIALECTS)


def rows_of_keys() -> list[str]:
    """The table of keys and flags as the page shows it: keys of several rows are one line."""
    cells: dict[str, dict[str, list[str]]] = {}
    for row in KEY_FLAGS:
        line = cells.setdefault(row.title or f"`{row.top}`", {kind: [] for kind in KINDS})
        for kind, spelling in row.spelled.items():
            line[kind].append(spelling.shown or ", ".join(f"`{flag}`" for flag in spelling.flags))
    return [f"| {title} | " + " | ".join(map(", ".join, line.values())) + " |" for title, line in cells.items()]


def test_what_keys_become_is_described() -> None:
    table = sections(text_of(INVENTORY))["What each key becomes"]
    shown = [re.sub(" +", " ", row) for row in table.split("\n") if row.startswith("| ") and "---" not in row]
    assert shown[1:] == [re.sub(" +", " ", row) for row in rows_of_keys()]


@pytest.mark.parametrize("engine", sorted(DIALECTS))
def test_what_keys_become_names_each_flag(engine: str) -> None:
    column = KINDS.index(engine) + 2
    named = {flag for row in rows_of_keys() for flag in re.findall(r"--[a-z-]+", row.split("|")[column])}
    declared: dict[str, Any] = {"engine": "e"}
    for row in KEY_FLAGS:
        if row.example:
            key, _, part = row.key.partition(".")
            value = yaml.load(row.example, Loader=Loader)
            declared[key] = {**declared.get(key, {}), part: value} if part else value
    declared |= {"on": ["a", "b"], "draft": {"mtp": 2, "p_min": 0.5}}
    everything = Instance.model_validate(declared, context={"folder": ROOT})
    newest = catalogues(engine)[-1]
    server = Server(everything, "/m.gguf", 4, "127.0.0.1", newest, ("blk=CPU",), "/key")
    smaller = everything.model_copy(update={"draft": Draft(model="s")})
    other = replace(server, declared=smaller, draft_path="/s.gguf", mmproj_path="/p.gguf")
    ranks = replace(server, declared=everything.model_copy(update={"serve": "rerank", "pooling": None}))
    written = [word for each in (server, other, ranks) for word in key_arguments(engine, each)]
    assert named == {argument for argument in written if argument.startswith("--")}


# --- findings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", drawn(rules().values()), ids=lambda rule: rule.code)
def test_examples_of_rules_find_them(rule: Rule, tmp_path: Path) -> None:
    assert rule.title.endswith(".")
    assert rule.fix
    assert (rule.language == "console") == (rule.code in NOT_EXAMINED)
    if rule.language == "console":
        assert set(CODE.findall(rule.example)) == {rule.code}
        return
    found = findings_of(rule.shown_example, rule.language, whole_rig(INVENTORY), tmp_path)
    assert rule.code in {each.code for each in found}
    # Some mistakes come in pairs: the page names the other one.
    named = CODE.findall(rule.page)
    assert {str(each) for each in found if each.severity == "error" and each.code not in named} == set()
    assert {each.severity for each in found if each.code == rule.code} <= set(rule.severities)


def test_other_pages_name_findings_that_exist() -> None:
    assert {code for page in PAGES for code in CODE.findall(text_of(page))} <= set(rules())


# --- rigs ----------------------------------------------------------------------------------------------------


def test_every_example_rig_has_a_page() -> None:
    assert {file.stem for file in RIGS} == {page.stem for page in (ROOT / "docs/rigs").glob("*.md")}


@pytest.mark.parametrize("file", RIGS, ids=lambda file: file.stem)
def test_pages_of_rigs_show_what_is_in_them(file: Path, tmp_path: Path) -> None:
    """What a page shows of a rig stands in the rig, with the same values."""
    page = text_of(ROOT / f"docs/rigs/{file.stem}.md")
    assert f"(../../inventory/examples/{file.name})" in page
    whole = read_yaml(file).data
    assert blocks(page, "yaml")
    shown = tmp_path / "shown.yaml"
    for block in blocks(page, "yaml"):
        shown.write_text(block, encoding="utf-8")
        assert merged(whole, read_yaml(shown).data) == whole


@pytest.mark.parametrize("rig", RECIPES)
def test_pages_of_rigs_name_what_is_wrong_in_their_recipes(rig: str) -> None:
    folder = ROOT / "tests/data/recipes"
    found = {finding.code for name in RECIPES[rig] for finding in recipes.examine(folder / name)}
    of_recipes = {
        code
        for code in CODE.findall(text_of(ROOT / f"docs/rigs/{rig}.md"))
        if "LH100" <= code < "LH150" or code == "LH160" or code >= "LH210"
    }
    assert of_recipes == found


# --- commands, paths, links ----------------------------------------------------------------------------------


def test_commands_exist() -> None:
    named: set[str] = set()
    for page in PAGES:
        text = text_of(page)
        typed = [line for block in blocks(text, "console") for line in re.findall(r"^\$ (.+)", block, re.MULTILINE)]
        typed += re.findall(r"`([^`\n]+)`", prose(text))
        named |= {found[1] for line in typed if (found := re.match(r"herd (?:-i \S+ )?([a-z]+(?:-[a-z]+)*)\b", line))}
    assert named <= set(main.commands)
    assert set(main.commands) - set(re.findall(r"herd ([a-z]+(?:-[a-z]+)*)", text_of(README))) == set()


def test_paths_exist() -> None:
    """A path of this repository on a page exists. A measurement keeps the paths of its commit."""
    folders = "|".join(("llamaherd", "roles", "box", "templates", "compose", "scripts", "tests", "inventory", "docs"))
    path = re.compile(rf"`((?:(?:{folders})/[\w./-]*)|(?:inventory|deploy)\.py)[^`]*`")
    pages = [page for page in PAGES if page.parent.name != "measurements"]
    named = {found for page in pages for found in path.findall(prose(text_of(page)))}
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []


def test_tests_that_a_page_names_exist() -> None:
    """A promise is tried by what it says it is tried by."""
    named = {found for page in PAGES for found in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text_of(page))}
    assert named
    missing = [f"{path}::{test}" for path, test in named if f"def {test}(" not in (ROOT / path).read_text("utf-8")]
    assert sorted(missing) == []


def test_pictures_are_light_and_dark() -> None:
    """Each picture that a page shows lies here twice, and each that lies here is shown."""
    named = {(page, name) for page in PAGES for name in re.findall(r'(?:src|srcset)="([^"]+)"', prose(text_of(page)))}
    shown = {str((page.parent / name).resolve().relative_to(ROOT)) for page, name in named}
    drawn = {str(file.relative_to(ROOT)) for file in (ROOT / "docs/pictures").iterdir()}
    assert shown == drawn
    assert {name.replace("-dark.", "-light.") for name in drawn} == {name for name in drawn if "-light." in name}


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    released = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert {project["version"], released[0]} == {__version__}


def test_the_rig_of_the_first_screen_is_short() -> None:
    assert len(whole_rig(README).splitlines()) <= 12


def test_words_are_in_order_and_linked() -> None:
    words = re.findall(r"^\| ([^|]+) \| .+ \|$", text_of(GLOSSARY), re.MULTILINE)[2:]
    assert words == sorted(words, key=str.lower)
    for page in (README, CONTRIBUTING, ARCHITECTURE):
        assert "glossary.md)" in text_of(page)


def test_the_page_names_every_package() -> None:
    text = text_of(ARCHITECTURE)
    packages = [path.parent.name for path in (ROOT / "llamaherd").glob("*/__init__.py")]
    assert [each for each in sorted(packages) if f"`{each}/`" not in text] == []


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
    rows: Mapping[str, str] = dict(re.findall(r"^\| (\d+) \| (.+) \|$", text_of(README), re.MULTILINE))
    assert list(map(int, rows)) == [0, FAILED, UNUSABLE, INTERRUPTED]
