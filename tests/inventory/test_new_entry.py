"""New entries in the text of a rig: what was meant, in the style of the file, and nothing else."""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.exact_edits import text_with_comments, text_with_entries
from llamaherd.inventory.file_writer import FileEdit
from llamaherd.inventory.yaml_file import parse_yaml

FILE = Path("duo.yaml")
MODEL = {"hf": "a/b", "quant": "Q4_K_M"}
INSTANCE: dict[str, Any] = {"engine": "main", "model": "b", "on": ["ti"], "context": 4096, "port": 8006}
BLOCK = "\n  new:\n    engine: main\n    model: b\n    on: [ti]\n    context: 4096\n    port: 8006\n"


def added(text: str, section: str = "instances") -> str:
    new = text_with_entries(text, FILE, section, {"new": INSTANCE if section == "instances" else MODEL})
    before, after = parse_yaml(FILE, text).data, parse_yaml(FILE, new).data
    own = after[section].pop("new")
    assert own == (INSTANCE if section == "instances" else MODEL)
    assert after == {**before, section: before.get(section) or {}}
    return new


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("instances:\n  a: {port: 1}\n", "instances:\n  a: {port: 1}\n  new: {engine: main, model: b, on: [ti], "),
        ("instances:\n  a:\n    port: 1\nz: 1\n", f"instances:\n  a:\n    port: 1{BLOCK}z: 1\n"),
        ("instances: {}  # none\nz: 1\n", f"instances:  # none{BLOCK}z: 1\n"),
        ("instances:\n\nz: 1", f"instances:{BLOCK}\nz: 1"),
        ("z: 1", f"z: 1\n\ninstances:{BLOCK}"),
        ("instances: {a: {port: 1}}  # one\n", "instances: {a: {port: 1}, new: {engine: main, model: b, on: [ti], "),
        (
            "instances:\n  a:\n    port: 1  # one\n  # two: {}\n\n# rest\nz: 1\n",
            f"instances:\n  a:\n    port: 1  # one\n  # two: {{}}{BLOCK}\n# rest\nz: 1\n",
        ),
        ("instances:\n  a:\n    x: |\n      y\n\n\nz: 1\n", f"instances:\n  a:\n    x: |\n      y{BLOCK}\n\nz: 1\n"),
        ("y: &y {p: 1}\ninstances:\n  a: *y\nz: 1\n", "y: &y {p: 1}\ninstances:\n  a: *y\n  new: {engine: main, "),
        (
            "instances:\n  a:\n    on: [x]\n    e:\n      F:\n",
            f"instances:\n  a:\n    on: [x]\n    e:\n      F:{BLOCK}",
        ),
    ],
    ids=range(10),
)
def test_an_instance_comes_last_in_the_style_of_the_file(text: str, expected: str) -> None:
    assert added(text).startswith(expected)


def test_indentation_is_that_of_the_others() -> None:
    text = "instances:\n    a:\n       port: 1\n"
    assert "\n    new:\n       engine: main\n" in added(text)


@pytest.mark.parametrize(
    "text", ["models:\n  a: {hf: x}\n", "models: {}\n", "rig: a\n", "models:\n  '35b': {hf: é}\nz: ü\n"]
)
def test_a_model_is_one_line(text: str) -> None:
    assert "  new: {hf: a/b, quant: Q4_K_M}\n" in added(text, "models")


def test_a_name_that_yaml_reads_otherwise_is_quoted() -> None:
    new = text_with_entries("models: {}\n", FILE, "models", {"010": MODEL})
    assert parse_yaml(FILE, new).data["models"] == {"010": MODEL}


@pytest.mark.parametrize(
    "text", ["{instances: {}}\n", "instances: [1]\n", "instances: {new: {port: 1}}\n", "<<: {a: 1}\n{}"]
)
def test_what_cannot_be_changed_is_refused(text: str) -> None:
    with pytest.raises(Exception, match=r"cannot be changed|has no room|LH001") as caught:
        text_with_entries(text, FILE, "instances", {"new": INSTANCE})
    assert str(caught.value)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("last", ["", "\r\n"])
def test_line_ends_and_a_byte_order_mark_stay(mark: str, last: str, tmp_path: Path) -> None:
    file = tmp_path / "duo.yaml"
    file.write_bytes(f"{mark}a: 1\r\nb: 2  # kept\nc: 3{last}".encode())
    end = last.replace("\r\n", "\n")
    FileEdit(file, f"a: 1\nb: 2  # kept\nc: 3{end}", f"a: 2\nnew: 0\nb: 2  # kept\nc: 3{end}").write()
    assert file.read_bytes().decode() == f"{mark}a: 2\r\nnew: 0\r\nb: 2  # kept\nc: 3{last}"


def test_a_file_that_changed_meanwhile_is_kept(tmp_path: Path) -> None:
    file, link = tmp_path / "duo.yaml", tmp_path / "link.yaml"
    file.write_text("a: 1\n")
    file.chmod(0o640)
    link.symlink_to(file)
    FileEdit(link, "a: 1\n", "a: 2\n").write()
    assert (file.read_text(), file.stat().st_mode & 0o777, link.is_symlink()) == ("a: 2\n", 0o640, True)
    with pytest.raises(UserError, match="was changed by another program"):
        FileEdit(link, "a: 1\n", "a: 3\n").write()
    assert file.read_text() == "a: 2\n"


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "duo.yaml"
    file.write_text("a: 1\n")
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, old[1]))
    try:
        with pytest.raises(UserError) as caught:
            FileEdit(file, "a: 1\n", "a: 2\nb: 3\nc: 4\n").write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.message.startswith(f"cannot write {file}: ")
    assert [each.name for each in tmp_path.iterdir()] == ["duo.yaml"]
    assert file.read_text() == "a: 1\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("instances:\n  a: {}\n  b: {}\n", "instances:\n  a: {}\n  # x\n  # y z\n  b: {}\n"),
        ("instances: {a: {}, b: {}}\n", "# x\n# y z\ninstances: {a: {}, b: {}}\n"),
        ("instances: {\n  a: {},\n  b: {}}\n", "instances: {\n  a: {},\n  # x\n  # y z\n  b: {}}\n"),
        (
            "instances:\n  a:\n    x: |\n      y\n  b: {}\n",
            "instances:\n  a:\n    x: |\n      y\n  # x\n  # y z\n  b: {}\n",
        ),
        ("instances: {a: {}}\n", "instances: {a: {}}\n"),
    ],
    ids=range(5),
)
def test_comments_are_above_a_key_and_change_no_data(text: str, expected: str) -> None:
    assert text_with_comments(text, FILE, "instances", {"b": ["x", "y\nz"]}) == expected
