"""What a rig takes over from elsewhere, what it keeps and takes away, and where a finding about it points."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamaherd.diagnostics.findings import Finding, InventoryError, Place
from llamaherd.inventory.yaml_file import EXTENDS, INSTANCE_DEFAULTS, Document, Path_, inherited, read_yaml
from llamaherd.pipeline.fleet_files import examine_fleet
from tests.support.rigs import SHA

Data = dict[str, Any]

BASE = f"""\
rig: base
connect: {{host: base.lan}}
host: {{os: debian-13, cpu: {{cores: 8}}, ram: 32GB}}
engines:
  main: {{kind: llama.cpp, source: {{git: https://git.lan/l, commit: {"cd" * 20}}}}}
models:
  small: {{file: small.gguf, sha256: {SHA}}}
instances:
  chat:
    engine: main
    model: small
    context: 4096
    kv: {{k: q8_0, v: q8_0}}
    port: 8080
"""


def document(file: str, data: Data) -> Document:
    """A document with a place of its own for every path: the line is one that no other path has."""
    keys: dict[Path_, Place] = {}
    values: dict[Path_, Place] = {}

    def walk(node: object, path: Path_) -> None:
        values[path] = Place(Path(file), len(values) + 1)
        for key, value in node.items() if isinstance(node, dict) else ():
            keys[(*path, key)] = Place(Path(file), len(keys) + 1)
            walk(value, (*path, key))

    walk(data, ())
    return Document(Path(file), data, keys, values)


def whole(own: Data, *, defaults: Data | None = None, **others: Data) -> Document:
    """What a rig is in the end; its own file is `own.yaml`, the others are called after their rigs."""
    documents = {name: document(f"{name}.yaml", {"rig": name, **data}) for name, data in others.items()}
    given_defaults = document("defaults.yaml", defaults) if defaults is not None else None
    return inherited(document("own.yaml", own), documents, given_defaults)


# --- values --------------------------------------------------------------------------------------------------

VALUES: dict[str, tuple[Data, Data, dict[str, Data], Data]] = {
    # name: (own, defaults, other rigs, outcome)
    "nothing to take over": ({"a": 1}, {}, {}, {"a": 1}),
    "a key from the defaults": ({"a": 1}, {"b": 2}, {}, {"a": 1, "b": 2}),
    "its own wins": ({"a": 1}, {"a": 2}, {}, {"a": 1}),
    "mappings are merged": ({"h": {"x": 1}}, {"h": {"x": 2, "y": 3}}, {}, {"h": {"x": 1, "y": 3}}),
    "deep ones too": (
        {"h": {"c": {"x": 1}}},
        {"h": {"c": {"y": 2}, "o": 3}},
        {},
        {"h": {"c": {"x": 1, "y": 2}, "o": 3}},
    ),
    "lists are replaced": ({"l": [1]}, {"l": [2, 3]}, {}, {"l": [1]}),
    "a text in place of a mapping": ({"kv": "q8_0"}, {"kv": {"k": "f16"}}, {}, {"kv": "q8_0"}),
    "a mapping in place of a text": ({"kv": {"k": "f16"}}, {"kv": "q8_0"}, {}, {"kv": {"k": "f16"}}),
    "null takes a key away": ({"a": None}, {"a": 1, "b": 2}, {}, {"b": 2}),
    "null takes a key of a mapping away": ({"h": {"x": None}}, {"h": {"x": 1, "y": 2}}, {}, {"h": {"y": 2}}),
    "null with nothing to take away": ({"a": None}, {"b": 2}, {}, {"a": None, "b": 2}),
    "false and 0 are values": ({"a": False, "b": 0}, {"a": True, "b": 1}, {}, {"a": False, "b": 0}),
    "a rig over the defaults": ({EXTENDS: "mid"}, {"a": 1, "b": 1}, {"mid": {"a": 2}}, {"a": 2, "b": 1}),
    "a rig that extends another": (
        {EXTENDS: "mid", "c": 3},
        {},
        {"mid": {EXTENDS: "far", "a": 2}, "far": {"a": 1, "b": 1}},
        {"a": 2, "b": 1, "c": 3},
    ),
    "what was taken away in between": (
        {EXTENDS: "mid"},
        {"a": 1},
        {"mid": {EXTENDS: "far", "a": None}, "far": {"a": 2}},
        {},
    ),
    "what was taken away and given again": ({EXTENDS: "mid", "a": 3}, {"a": 1}, {"mid": {"a": None}}, {"a": 3}),
    "which machine it is stays its own": (
        {"rig": "own", "connect": {"host": "a"}, EXTENDS: "mid"},
        {},
        {"mid": {"connect": {"host": "b", "user": "tom"}, "a": 1}},
        {"rig": "own", "connect": {"host": "a"}, "a": 1},
    ),
    "each instance": (
        {INSTANCE_DEFAULTS: {"x": 1, "y": 1}, "instances": {"i": {"y": 2}, "j": {}}},
        {},
        {},
        {"instances": {"i": {"x": 1, "y": 2}, "j": {"x": 1, "y": 1}}},
    ),
    "each instance, from the defaults": (
        {"instances": {"i": {}}},
        {INSTANCE_DEFAULTS: {"x": 1}},
        {},
        {"instances": {"i": {"x": 1}}},
    ),
    "an instance without one of them": (
        {INSTANCE_DEFAULTS: {"draft": {"mtp": 2}}, "instances": {"i": {"draft": None}}},
        {},
        {},
        {"instances": {"i": {}}},
    ),
    "what an instance has taken away does not come back from further below": (
        {EXTENDS: "mid", "instances": {"i": {"draft": None}}},
        {INSTANCE_DEFAULTS: {"draft": 1}},
        {"mid": {"instances": {"i": {"draft": 2}}}},
        {"instances": {"i": {}}},
    ),
    "an instance of another rig": (
        {EXTENDS: "mid", "instances": {"i": None}},
        {},
        {"mid": {"instances": {"i": {"x": 1}, "j": {"x": 2}}}},
        {"instances": {"j": {"x": 2}}},
    ),
    "no defaults of instances after all": (
        {INSTANCE_DEFAULTS: None, "instances": {"i": {}}},
        {INSTANCE_DEFAULTS: {"x": 1}},
        {},
        {"instances": {"i": {}}},
    ),
}


@pytest.mark.parametrize("case", VALUES)
def test_what_a_rig_is_in_the_end(case: str) -> None:
    own, defaults, others, outcome = VALUES[case]
    before = copy.deepcopy((own, defaults, others))
    assert whole(own, defaults=defaults, **others).data == outcome
    assert (own, defaults, others) == before


# --- laws ----------------------------------------------------------------------------------------------------

LEAVES = st.integers(0, 3) | st.booleans() | st.sampled_from(["", "text"]) | st.lists(st.integers(0, 3), max_size=2)
KEYS = st.sampled_from(["a", "b", "c", "d"])
FILLED = st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8)
LAYERS = st.dictionaries(KEYS, st.none() | FILLED, max_size=4)
PRESENT = st.dictionaries(KEYS, FILLED, max_size=4)


def leaves(data: object, path: Path_ = ()) -> dict[Path_, object]:
    """Every value that is no mapping, by its path; an empty mapping counts as one."""
    if isinstance(data, dict) and data:
        return {at: value for key, inner in data.items() for at, value in leaves(inner, (*path, key)).items()}
    return {path: data}


@given(PRESENT)
def test_a_rig_alone_is_what_its_file_says(own: Data) -> None:
    made = document("own.yaml", own)
    assert inherited(made, {}, None) == made
    assert whole(own, defaults={}).data == own
    assert whole(own, defaults=own).data == own


@given(PRESENT, LAYERS, LAYERS)
def test_whatever_a_rig_says_it_has(own: Data, mid: Data, defaults: Data) -> None:
    found = leaves(whole({**own, EXTENDS: "mid"}, defaults=defaults, mid=mid).data)
    said = {path: value for path, value in leaves(own).items() if value != {}}
    assert {path: found.get(path) for path in said} == said


@given(PRESENT, LAYERS)
def test_defaults_are_a_rig_that_all_others_extend(own: Data, layer: Data) -> None:
    assert whole(own, defaults=layer).data == whole({**own, EXTENDS: "mid"}, mid=layer).data


@given(LAYERS, LAYERS)
def test_what_null_takes_away_is_away(own: Data, defaults: Data) -> None:
    found = whole(own, defaults=defaults).data
    assert [key for key, value in own.items() if value is None and key in defaults and key in found] == []


@given(PRESENT, PRESENT, PRESENT)
def test_every_value_stands_where_it_was_written(own: Data, mid: Data, defaults: Data) -> None:
    made = whole({**own, EXTENDS: "mid"}, defaults=defaults, mid=mid)
    files = {"own.yaml": own, "mid.yaml": mid, "defaults.yaml": defaults}
    for path, value in leaves(made.data).items():
        written = files[made.value(path).file.name] if path else own
        for key in path:
            written = written[str(key)]
        assert written == value
    under_no_mapping = {path for path, value in leaves(made.data).items() if value != {}}
    assert [p for p in made.values if any(p[:n] in under_no_mapping for n in range(1, len(p)))] == []


@given(LAYERS, LAYERS, LAYERS)
def test_no_layer_is_changed(own: Data, mid: Data, defaults: Data) -> None:
    before = copy.deepcopy((own, mid, defaults))
    whole({**own, EXTENDS: "mid"}, defaults=defaults, mid=mid)
    assert (own, mid, defaults) == before


# --- through files -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "small.gguf").touch()
    return tmp_path


def found(source: Path) -> list[tuple[str, str, int]]:
    """What is wrong: code, file and line."""
    return [(f.code, f.place.file.name, f.place.line) for f in examine_fleet(source)[1] if f.severity == "error"]


def test_a_rig_in_three_lines(folder: Path) -> None:
    (folder / "next.yaml").write_text("rig: next\nconnect: {host: next.lan}\nextends: base\n")
    rigs = examine_fleet(folder)[0].rigs
    base, after = rigs["base"], rigs["next"]
    assert after.model_dump(exclude={"rig", "connect"}) == base.model_dump(exclude={"rig", "connect"})
    assert after.connect.host == "next.lan"


def test_defaults_are_for_every_rig(folder: Path) -> None:
    (folder / "next.yaml").write_text("rig: next\nconnect: {host: next.lan}\nextends: base\n")
    (folder / "defaults.yaml").write_text("instance_defaults: {parallel: 3}\n")
    fleet, _ = examine_fleet(folder)
    assert {rig.instances["chat"].parallel for rig in fleet.rigs.values()} == {3}


@pytest.mark.parametrize("name", ["base", "next"])
def test_one_file_gives_the_rig_that_the_folder_gives(folder: Path, name: str) -> None:
    (folder / "next.yaml").write_text("rig: next\nconnect: {host: next.lan}\nextends: base\n")
    (folder / "defaults.yaml").write_text("instance_defaults: {parallel: 3}\n")
    alone = examine_fleet(folder / f"{name}.yaml")[0].rigs
    assert alone == {name: examine_fleet(folder)[0].rigs[name]}


def test_a_file_of_another_name_is_read_as_well(folder: Path) -> None:
    (folder / "base.yaml").rename(folder / "base.txt")
    assert list(examine_fleet(folder / "base.txt")[0].rigs) == ["base"]


def test_what_is_wrong_beside_it_is_not_its_fault(folder: Path) -> None:
    (folder / "broken.yaml").write_text("rig: [\n")
    assert found(folder / "base.yaml") == []
    assert found(folder) == [("LH001", "broken.yaml", 2)]


# What stands in `next.yaml` and in `defaults.yaml`, and what is found: code, file and line.
WRONG: dict[str, tuple[str, str, list[tuple[str, str, int]]]] = {
    "a rig that is not there": ("extends: bass\n", "", [("LH009", "next.yaml", 3)]),
    "itself": ("extends: next\n", "", [("LH009", "next.yaml", 3)]),
    "no name": ("extends: [base]\n", "", [("LH009", "next.yaml", 3)]),
    "a value of its own": ("extends: base\nhost: {ram: much}\n", "", [("LH012", "next.yaml", 4)]),
    "a value of the defaults": (
        "extends: base\n",
        "instance_defaults:\n  parallel: 0\n",
        [("LH012", "defaults.yaml", 2)],
    ),
    "a text over a mapping": (
        "extends: base\ninstances: {chat: {kv: q9}}\n",
        "instance_defaults: {kv: {k: q8_0}}\n",
        [("LH012", "next.yaml", 4)],
    ),
    "a key that the defaults alone have": (
        "extends: base\n",
        "colour: red\nhost:\n  size: big\ninstance_defaults: {prot: 1}\n",
        [("LH010", "defaults.yaml", 1), ("LH010", "defaults.yaml", 3), ("LH010", "defaults.yaml", 4)],
    ),
    "taken away and needed": ("extends: base\nmodels: null\n", "", [("LH011", "next.yaml", 1)]),
    "a machine in the defaults": (
        "extends: base\n",
        "rig: all\nconnect: local\nextends: base\n",
        [("LH009", "defaults.yaml", 1), ("LH009", "defaults.yaml", 2), ("LH009", "defaults.yaml", 3)],
    ),
    "no mapping for the instances": ("extends: base\ninstance_defaults: [1]\n", "", [("LH012", "next.yaml", 4)]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_once_and_where_it_stands(folder: Path, case: str) -> None:
    own, defaults, outcome = WRONG[case]
    (folder / "next.yaml").write_text(f"rig: next\nconnect: {{host: next.lan}}\n{own}")
    if defaults:
        (folder / "defaults.yaml").write_text(defaults)
    assert found(folder) == outcome


def test_what_is_wrong_in_a_rig_is_not_said_again_for_those_that_extend_it(folder: Path) -> None:
    (folder / "base.yaml").write_text(BASE.replace("context: 4096", "context: 1"))
    for name in ("one", "two", "three"):
        (folder / f"{name}.yaml").write_text(f"rig: {name}\nconnect: {{host: {name}.lan}}\nextends: base\n")
    assert found(folder) == [("LH012", "base.yaml", 12)]


@pytest.mark.parametrize("length", [1, 2, 3, 10])
def test_rigs_that_extend_each_other_in_a_ring(tmp_path: Path, length: int) -> None:
    for number in range(length):
        text = f"rig: r{number}\nconnect: {{host: r{number}.lan}}\nextends: r{(number + 1) % length}\n"
        (tmp_path / f"r{number}.yaml").write_text(text)
    findings = examine_fleet(tmp_path)[1]
    assert {finding.code for finding in findings} == {"LH009"}
    assert all("leads back to itself" in finding.message for finding in findings)
    assert findings[0].help == "leave out `extends` in one of them"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("bse", "did you mean `base`?"),
        ("[base]", "write `extends: base`, the rig's own name"),
        ("base.yaml", "write `extends: base`, the rig's own name"),
    ],
)
def test_the_nearest_rig_is_named(folder: Path, written: str, said: str) -> None:
    (folder / "next.yaml").write_text(f"rig: next\nconnect: {{host: next.lan}}\nextends: {written}\n")
    (unknown,) = (finding for finding in examine_fleet(folder)[1] if finding.place.file.name == "next.yaml")
    assert unknown.help == said


def mutated(text: str, layers: list[Data]) -> list[Finding]:
    """What is found when a rig of that text lies over layers of nonsense."""
    own = yaml.safe_load(text)
    try:
        whole({**own, EXTENDS: "mid"}, defaults=layers[0], mid=layers[1])
    except InventoryError as error:
        return list(error.findings)
    return []


NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*"ab", "kv"]), inner, max_size=2),
    max_leaves=5,
)
PARTS = st.dictionaries(
    st.sampled_from(["host", "engines", "models", "instances", INSTANCE_DEFAULTS, EXTENDS]), NONSENSE, max_size=3
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150, deadline=None
)
@given(PARTS, PARTS)
def test_nonsense_is_a_finding(folder: Path, defaults: Data, mid: Data) -> None:
    assert {finding.code for finding in mutated(BASE, [defaults, mid])} <= {"LH009", "LH012"}
    (folder / "defaults.yaml").write_text(yaml.safe_dump(defaults, allow_unicode=True))
    (folder / "next.yaml").write_text(yaml.safe_dump({"rig": "next", "connect": {"host": "n"}, **mid}))
    fleet, findings = examine_fleet(folder)
    assert fleet.rigs or findings


def test_an_alias_is_merged_as_what_it_stands_for(folder: Path) -> None:
    (folder / "next.yaml").write_text(
        "rig: next\nconnect: {host: n}\nextends: base\nhost: {cpu: &c {cores: 2}}\ngpus: null\nmodels: {}\n"
    )
    assert read_yaml(folder / "next.yaml").data["gpus"] is None
    assert examine_fleet(folder)[0].rigs["next"].host.cpu.cores == 2
