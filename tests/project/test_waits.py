"""No wait without a total, as far as the text of our programs shows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.rigs import ROOT

PROGRAMS = sorted(
    file for folder in ("llamaherd", "roles", "templates") for file in (ROOT / folder).rglob("*.py") if file.is_file()
)
SCRIPTS = sorted(file for file in (ROOT / "templates").rglob("*") if file.suffix in (".sh", ".j2"))

KNOWN = {
    "llamaherd/cli/edit.py": "subprocess.run([*self.editor, str(self.copy)], check=False)",  # for the user, who edits
    "llamaherd/onhost/fetch/transfer.py": "self._changed.wait()",  # for threads, whose requests have totals
}
"""Waits without a limit of their own, by file."""

CALLS = re.compile(r"subprocess\.\w|\.(wait|communicate|urlopen|create_connection)\(")
"""In a file that is worth parsing."""


def unlimited(tree: ast.AST) -> Iterator[str]:
    """Yield the calls that may wait for ever."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, limited = node.func.attr, {each.arg for each in node.keywords} & {"timeout", None}
        runs = name in ("run", "check_output", "call") and ast.unparse(node.func.value) == "subprocess"
        waits = name in ("wait", "communicate") and not node.args
        connects = name in ("urlopen", "create_connection") and len(node.args) < 2
        if (runs or waits or connects) and not limited:
            yield ast.unparse(node)


def test_a_program_waits_for_nothing_without_a_limit() -> None:
    assert len(PROGRAMS) > 300
    texts = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in PROGRAMS}
    waiting = {name: ast.parse(text) for name, text in texts.items() if CALLS.search(text)}
    assert len(waiting) > 10
    assert {name: each for name, tree in waiting.items() for each in unlimited(tree)} == KNOWN


def test_no_program_waits_for_a_container_without_a_limit() -> None:
    """Compose waits until a container is healthy, or for `--wait-timeout`."""
    lines = [line for file in PROGRAMS for line in file.read_text(encoding="utf-8").splitlines() if '"--wait' in line]
    waiting = [line for line in lines if "option(" not in line]
    assert len(waiting) > 1
    assert [line for line in waiting if '"--wait", "--wait-timeout", str(' not in line] == []


def test_no_program_fetches_without_a_limit() -> None:
    """curl reads no settings of a user, and all of its tries have a total."""
    texts = [text for file in PROGRAMS if '"curl", ' in (text := file.read_text(encoding="utf-8"))]
    fetching = [text for text in texts if '["curl", ' in text]
    assert len(fetching) > 1
    for text in fetching:
        calls = text.count('["curl", ')
        for words in ('["curl", "-q", ', '"--retry", ', '"--retry-max-time", ', '"--max-time", '):
            assert text.count(words) == calls, words


def commands(text: str) -> Iterator[str]:
    """Yield the lines of a script without comments, each with those that it goes on in."""
    for line in text.replace("\\\n", " ").splitlines():
        if not line.lstrip().startswith("#"):
            yield line


RULES: dict[str, tuple[re.Pattern[str], re.Pattern[str] | None]] = {
    "curl reads no settings of a user, and has a total": (
        re.compile(r"(?<![-\w/@.'])(?<!timeout 10 )curl (?!(?=.*--max-time)-q )"),
        re.compile(r"\bcurl -"),
    ),
    "a server's `Retry-After` has a limit": (re.compile(r"--retry (?!.*--retry-max-time)"), None),
    "a lock is not waited for without end": (
        re.compile(r"\bflock (?!-[nuw]|\"\$locks/\w+\" true)"),
        None,
    ),
    "a unit does not start without end": (re.compile(r"Timeout\w*Sec=infinity"), re.compile(r"Timeout\w*Sec=")),
}
"""What no line of a script may have, and what some lines have that are right; None where no script does so."""


@pytest.mark.parametrize("rule", RULES)
def test_a_script_waits_for_nothing_without_a_limit(rule: str) -> None:
    wrong, right = RULES[rule]
    lines = [(file, line) for file in SCRIPTS for line in commands(file.read_text(encoding="utf-8"))]
    assert [f"{file.relative_to(ROOT)}: {line}" for file, line in lines if wrong.search(line)] == []
    assert right is None or any(right.search(line) for _, line in lines)


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("curl reads no settings of a user, and has a total", "until curl -fs -o /dev/null --max-time 5 x; do"),
        ("curl reads no settings of a user, and has a total", 'said=$(curl -q -fs "$url")'),
        ("a server's `Retry-After` has a limit", "curl -q --retry 3 --max-time 60 x"),
        ("a lock is not waited for without end", "flock 9"),
        ("a unit does not start without end", "-p TimeoutStartSec=infinity"),
    ],
)
def test_what_was_wrong_is_found(rule: str, line: str) -> None:
    assert RULES[rule][0].search(line)


def test_what_was_wrong_in_a_program_is_found() -> None:
    code = "process.wait()\nsubprocess.run(['git'])\nprocess.communicate(input=b'')\nurllib.request.urlopen(url)\n"
    assert len(list(unlimited(ast.parse(code)))) == 4
    code = "process.wait(5)\nsubprocess.run(['git'], timeout=5)\nover.wait(timeout=1)\nsocket.create_connection(a, 3)\n"
    assert list(unlimited(ast.parse(code))) == []
