"""A golden file holds few lines of its text, and fails whatever byte of the text changes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.golden import HERE_DOCUMENT, assert_golden, constant_templates

CASE = "two.sh"
COMMON = "".join(f"common line {number}\n" for number in range(9)) + "open_lock() {\n}\n"
UNIT = base64.encodebytes(b"[Service]\n" + b"ExecStart=/opt/an/engine --with=many-arguments\n" * 9).decode()
TEXTS = {"one.sh": COMMON, CASE: f"hold 8 host 3600\n{COMMON}base64 -d >unit <<'END'\n{UNIT}END\nend\n"}
"""The second one has lines of the first, and a file in base64."""


def with_another_unit(text: str) -> str:
    """Add a byte to a unit that a script carries in base64."""
    unit = next(found[2] for found in HERE_DOCUMENT.finditer(text) if b"ExecStart=" in base64.b64decode(found[2]))
    changed = base64.b64decode(unit).replace(b"ExecStart=", b"ExecStart=+", 1)
    return text.replace(unit, base64.encodebytes(changed).decode().rstrip("\n"))


CHANGES: dict[str, Callable[[str], str]] = {
    "a line of its own": lambda text: text.replace("hold 8 host 3600", "hold 8 host  3600"),
    "a line that another text has": lambda text: text.replace("open_lock() {", "open_lock() { "),
    "a line that stands there twice": lambda text: text + text.splitlines(keepends=True)[-1],
    "a line less": lambda text: "".join(text.splitlines(keepends=True)[:-1]),
    "the end": lambda text: text.rstrip("\n"),
    "lines of Windows": lambda text: text.replace("\n", "\r\n", 1),
    "a file in base64": with_another_unit,
    "base64 in other lines": lambda text: HERE_DOCUMENT.sub(lambda found: found[1] + found[2].replace("\n", ""), text),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_byte_fails(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITE_GOLDEN", "1")
    assert_golden(tmp_path, CASE, TEXTS)
    monkeypatch.delenv("REWRITE_GOLDEN")
    changed = CHANGES[change](TEXTS[CASE])
    assert changed != TEXTS[CASE]
    with pytest.raises(pytest.fail.Exception, match=r"(?m)^[+-]"):
        assert_golden(tmp_path, CASE, {**TEXTS, CASE: changed})


def test_lines_of_an_earlier_text_and_of_a_template_are_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITE_GOLDEN", "1")
    name = "templates/gateway/gateway-talk.py"
    program = constant_templates()[name]
    carried_program = base64.encodebytes("".join(f"{line}\n" for line in program).encode()).decode()
    common = "".join(f"line {number}\n" for number in range(9))
    texts = {"one": f"{common}own\n", "two": f"begin\n{common}base64 -d >talk <<'END'\n{carried_program}END\n"}
    for text in texts:
        assert_golden(tmp_path, text, texts)
    assert (tmp_path / "one").read_text() == texts["one"]
    begin, first, last, command, *carried, end = (tmp_path / "two").read_text().splitlines()
    assert (begin, first, last, end) == ("begin", "<<< one: line 0", ">>> line 8", "END")
    assert command == "base64 -d >talk <<'END'"
    assert carried[0] == f"base64|<<< {name}: {program[0]}"
    assert len(carried) < 10 < len(program)


def test_a_golden_file_that_names_lines_of_another_fails_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REWRITE_GOLDEN", raising=False)
    (tmp_path / "two").write_text("<<< one: line 0\n>>> line 8\n")
    with pytest.raises(pytest.fail.Exception, match=r"(?m)^-<<< one: line 0\n->>> line 8"):
        assert_golden(tmp_path, "two", {"one": "line 0\nline 1\n", "two": "line 0\nline 1\n"})
