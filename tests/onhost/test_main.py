"""The program's own lines: events for the controller, plain lines for a journal, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from llamaherd.host.program import packed_program, request
from llamaherd.onhost import verbs
from llamaherd.onhost import verbs as program
from llamaherd.onhost.document import MOST_BYTES, VERSION, Secret, dump
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import FAULT, OTHER_VERSION, Verb, main
from tests.support.rigs import ROOT

HIDDEN = "sk-hidden-3f1d9c"


@dataclass(frozen=True)
class Told:
    """The input of a verb in these tests."""

    how: str
    key: Secret


def act(given: Told, system: System) -> object:
    """Report, warn, and end as the input says."""
    system.report("it begins … ä\nin two lines")
    system.warn("it is slow")
    match given.how:
        case "fails":
            raise FailedError("it cannot", "do this", ["line 1", "line 2"])
        case "fails without help":
            raise FailedError("it cannot")
        case "is at fault":
            raise_with(given.key)
        case "is odd":
            system.report("\udcff and \ud800")
    return {"how": given.how, "pair": (1, None)}


def raise_with(key: Secret) -> NoReturn:
    """Fail as a fault in the code does, with a key at hand."""
    text = key.text
    raise RuntimeError(f"{key} {[key]} {len(text)}")


@pytest.fixture(autouse=True)
def verb(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have one verb, and leave the umask as it is."""
    monkeypatch.setattr(verbs, "find_verb", lambda _: Verb(Told, act))
    before = os.umask(0o022)
    yield
    os.umask(before)


def document(how: str) -> bytes:
    """Return a document for the verb."""
    return dump({"version": VERSION, "verb": "a.b", "input": {"how": how, "key": HIDDEN}}).encode()


def events(data: bytes, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> tuple[int, Any]:
    """Run the program with a document on stdin. Return its exit code and its events."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    code = main([])
    out, err = capfdbinary.readouterr()
    assert err == b""
    assert HIDDEN.encode() not in out
    return code, [json.loads(line) for line in out.splitlines()]


BEGINS = [{"event": "progress", "text": "it begins … ä\nin two lines"}, {"event": "warning", "text": "it is slow"}]


def test_a_result(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code, found = events(document("ends"), monkeypatch, capfdbinary)
    assert (code, found) == (0, [*BEGINS, {"event": "result", "value": {"how": "ends", "pair": [1, None]}}])


def test_a_document_is_one_line_and_the_verb_may_read_more(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, found = events(document("ends") + b"\nstart A\n", monkeypatch, capfdbinary)
    assert (code, found[-1]["event"]) == (0, "result")


def test_what_it_writes_is_for_root_alone(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    events(document("ends"), monkeypatch, capfdbinary)
    assert os.umask(0o022) == 0o077


def test_a_failure_has_its_log_and_a_help(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, found = events(document("fails"), monkeypatch, capfdbinary)
    error = {"event": "error", "message": "it cannot", "help": "do this", "log": ["line 1", "line 2"]}
    assert (code, found) == (1, [*BEGINS, error])


def test_a_fault_is_reported_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, found = events(document("is at fault"), monkeypatch, capfdbinary)
    assert code == 70
    assert (found[-1]["message"], found[-1]["help"]) == (FAULT, "please report it with the lines above")
    assert found[-1]["log"][-1] == f"RuntimeError: Secret(…) [Secret(…)] {len(HIDDEN)}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the document is not JSON: JSONDecodeError"),
        (b"{}", "the document does not have `version`, `verb` and `input` alone"),
        (document("ends").replace(b"1", b"2", 1), "this program reads version 1 of documents alone"),
        (document("ends").replace(b'"how"', b'"hue"'), "Told.how is missing"),
        (b'"' + b"a" * MOST_BYTES + b'"', "the document has more than 64 MiB"),
    ],
)
def test_a_document_that_is_refused(
    data: bytes, message: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, found = events(data, monkeypatch, capfdbinary)
    assert (code, found) == (2, [{"event": "error", "message": message, "help": OTHER_VERSION, "log": []}])


def test_half_a_character_ends_no_run(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, found = events(document("is odd"), monkeypatch, capfdbinary)
    assert code == 0
    assert found[2] == {"event": "progress", "text": "? and ?"}


class Gone(io.RawIOBase):
    """A pipe that nothing reads any more."""

    def writable(self) -> bool:
        """Return that it could be written."""
        return True

    def write(self, _: object) -> int:
        """Fail as such a pipe does."""
        raise BrokenPipeError


def test_the_verb_goes_on_where_its_lines_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(document("ends"))))
    monkeypatch.setattr(sys, "stdout", type("Closed", (), {"buffer": Gone()}))
    assert main([]) == 0


@pytest.mark.parametrize(
    ("how", "code", "ends"),
    [
        ("ends", 0, []),
        ("fails", 1, ["line 1", "line 2", "it cannot", "  help: do this"]),
        ("fails without help", 1, ["it cannot"]),
    ],
)
def test_a_unit_gets_plain_lines(
    how: str, code: int, ends: list[str], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "document").write_bytes(document(how))
    assert main([str(tmp_path / "document")]) == code
    assert capfdbinary.readouterr().out.decode().splitlines() == [
        "it begins … ä",
        "in two lines",
        "it is slow",
        *ends,
    ]


def test_a_unit_whose_document_is_gone(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main([str(tmp_path / "document")]) == 70
    assert FAULT in capfdbinary.readouterr().out.decode()


def test_the_output_is_a_protocol() -> None:
    outputs: list[program.Output] = [program.Events(), program.Lines()]
    assert len(outputs) == 2


def test_the_packed_program_runs_by_itself(tmp_path: Path) -> None:
    """Without this repository: what it imports is in the file, and the standard library is all that it needs."""
    packed = tmp_path / "program.pyz"
    packed.write_bytes(packed_program().data)
    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(packed)],
        input=request("serve.removal.nothing", {}),
        capture_output=True,
        cwd=tmp_path,
        env={"LC_ALL": "POSIX"},
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    message = "this version of the program has no verb `serve.removal.nothing`"
    assert json.loads(ended.stdout) == {"event": "error", "message": message, "help": OTHER_VERSION, "log": []}
    assert str(ROOT).encode() not in packed.read_bytes()
