"""YAML with positions: every key and value is where it stands, and what is no YAML says where it goes wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamaherd.diagnostics.findings import Finding, InventoryError, Place
from llamaherd.inventory import yaml_text
from llamaherd.inventory.yaml_file import read_yaml

TEXT = """\
# a comment
rig: box
instances:
  chat: {port: 8080, on: [a, b]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rig.yaml"


def test_positions_of_keys_and_values(file: Path) -> None:
    file.write_text(TEXT)
    document = read_yaml(file)
    assert document.data == {"rig": "box", "instances": {"chat": {"port": 8080, "on": ["a", "b"]}}}
    assert document.key(("rig",)) == Place(file, 2, 1)
    assert document.value(("rig",)) == Place(file, 2, 6)
    assert document.key(("instances", "chat", "port")) == Place(file, 4, 10)
    assert document.value(("instances", "chat", "port")) == Place(file, 4, 16)
    assert document.value(("instances", "chat", "on", 1)) == Place(file, 4, 30)


def test_what_is_not_there_stands_where_its_parent_does(file: Path) -> None:
    file.write_text(TEXT)
    document = read_yaml(file)
    assert document.value(("instances", "chat", "draft", "mtp")) == document.value(("instances", "chat"))
    assert document.value(("models",)) == Place(file, 1, 1)


def test_words_stay_words_and_keys_stay_text(file: Path) -> None:
    file.write_text("on: [off, yes, No]\n1: true\n")
    assert read_yaml(file).data == {"on": ["off", "yes", "No"], "1": True}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0000:01:00.0", "0000:01:00.0"),
        ("01:00.0", "01:00.0"),
        ("8080:80", "8080:80"),
        ("010", 10),
        ("-3", -3),
        ("0x1F", 31),
        ("0.9", 0.9),
        ("13.", 13.0),
        (".5", 0.5),
        ("1.5e3", 1500.0),
        ("-.inf", float("-inf")),
        ("12345e7", "12345e7"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("2026-01-01", "2026-01-01"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_numbers_are_what_people_take_for_numbers(file: Path, text: str, value: object) -> None:
    file.write_text(f"a: {text}\n")
    read_value = read_yaml(file).data["a"]
    assert (type(read_value), read_value) == (type(value), value)


def test_anchors_and_merges(file: Path) -> None:
    file.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert read_yaml(file).data["b"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("rig: [a\nhost: b\n", "LH001", 1, 6),
        ("rig: a: b\n", "LH001", 1, 7),
        ("rig: a\n\thost: b\n", "LH001", 2, 1),
        ("rig: 'a\n", "LH001", 1, 6),
        ("rig: *nobody\n", "LH001", 1, 6),
        ("a: 1\n--- \nb: 1\n", "LH001", 2, 1),
        ("rig: !!python/name:os.system x\n", "LH001", 1, 6),
        ("", "LH002", 0, 1),
        ("# nothing\n", "LH002", 0, 1),
        ("- rig: a\n", "LH002", 0, 1),
        ("just words\n", "LH002", 0, 1),
        ("rig: a\nrig: b\n", "LH003", 2, 1),
        ("host:\n  os: a\n  ram: 1\n  os: b\n", "LH003", 4, 3),
        ("host: {os: a, os: b}\n", "LH003", 1, 15),
    ],
)
def test_what_is_wrong_says_where(file: Path, text: str, code: str, line: int, column: int) -> None:
    file.write_text(text)
    with pytest.raises(InventoryError) as caught:
        read_yaml(file)
    (finding,) = caught.value.findings
    assert (finding.code, finding.place) == (code, Place(file, line, column))


def test_every_duplicate_is_said_at_once(file: Path) -> None:
    file.write_text("rig: a\nrig: b\nhost: {os: a, os: b}\n")
    with pytest.raises(InventoryError) as caught:
        read_yaml(file)
    assert [(f.code, f.place.line) for f in caught.value.findings] == [("LH003", 2), ("LH003", 3)]
    assert "the first is at line 1" in caught.value.findings[0].message


@pytest.mark.parametrize("data", [b"\xfd\xfe\x01", b"rig: \xe9\n"])
def test_bytes_that_are_no_text(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    with pytest.raises(InventoryError, match="it is not UTF-8 text"):
        read_yaml(file)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="LH001: cannot read this file: it is a folder"):
        read_yaml(tmp_path)
    with pytest.raises(InventoryError, match="LH001: cannot read this file: No such file"):
        read_yaml(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "rig: 2026-13-45\n",
        "rig: !!int words\n",
        "rig: !!float words\n",
        "rig: !!timestamp words\n",
        f"rig: {'9' * 5000}\n",
        f"rig: {'[' * 2000}{']' * 2000}\n",
        f"rig: {'{a: ' * 2000}\n",
        "rig: &a [*a]\n",
        "rig: &a {b: *a}\n",
        "rig: \x07\n",
        'rig: "\\ud800"\n',
        "? [a, b]\n: c\n",
        "? {a: b}\n: c\n",
        "!!set {a, b}\n",
        "!!omap {a: b}\n",
        "!!null {a: b}\n",
        "{<<: 1}\n",
        "=: a\n",
        "a: =\n",
    ],
    ids=lambda text: text.strip()[:24],
)
def test_odd_yaml_is_data_or_a_finding(file: Path, text: str) -> None:
    file.write_text(text)
    assert {finding.code for finding in wrong_with(file)} <= {"LH001", "LH002", "LH003", "LH013"}


def wrong_with(file: Path, places: int = 10**4) -> tuple[Finding, ...]:
    """What is found, or nothing where it is data, which is then a mapping with no more than so many places."""
    try:
        document = read_yaml(file)
    except InventoryError as error:
        return error.findings
    assert isinstance(document.data, dict)
    assert len(document.values) < places
    return ()


def test_aliases_do_not_multiply(file: Path) -> None:
    doubled = "\n".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 18))
    file.write_text(f"a0: &a0 lol\n{doubled}\n")
    assert {finding.code for finding in wrong_with(file, places=1000)} <= {"LH014"}


YAML_LIKE = st.text(alphabet=st.sampled_from("ab:-[]{},&*!?|>'\"#%@`<=~ \n\t0159.\\é\u2028"), max_size=60)


@settings(max_examples=300)
@given(YAML_LIKE.map(lambda text: text.replace("!", "")))  # of a tag without a name they think differently
def test_libyaml_gives_the_nodes_that_pyyaml_gives(text: str) -> None:
    try:
        fast, slow = (yaml.compose(text, Loader=each) for each in (yaml_text.FastLoader, yaml_text.Loader))
    except yaml.YAMLError:
        return  # what libyaml refuses is read again; PyYAML refuses a little that is right, such as a comment after `|`
    assert described(fast) == described(slow)


def described(node: yaml.Node | None) -> object:
    """A node with its tag and place, and those in it."""
    if node is None:
        return None
    value = node.value
    if isinstance(node, yaml.MappingNode):
        value = [(described(key), described(inner)) for key, inner in node.value]
    elif isinstance(node, yaml.SequenceNode):
        value = [described(inner) for inner in node.value]
    # What is not there is between two others: where exactly, they think differently of.
    return node.tag, value, *((node.start_mark.line, node.start_mark.column) if node.value else ())


@pytest.mark.parametrize("text", ["[" * 50000, "- " * 50000, "{a: " * 9000, "? " * 50000, "a:\u2028" + "- " * 50000])
def test_no_depth_ends_the_program(file: Path, text: str) -> None:
    file.write_text(f"rig:\n {text}")
    assert {finding.code for finding in wrong_with(file)} == {"LH001"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=200)
@given(st.one_of(YAML_LIKE.map(str.encode), st.binary(max_size=60)))
def test_any_bytes_are_data_or_a_finding(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    for finding in wrong_with(file):
        assert finding.place.line >= 0
        assert os.fspath(file) in str(finding)
