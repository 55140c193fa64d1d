"""How a host is asked and how its answer is taken apart: marks, facts, texts; and an answer that is cut off."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llamaherd
from llamaherd.host import protocol
from llamaherd.host.program import Events, Program
from llamaherd.host.protocol import (
    BEGIN,
    END,
    CutOffError,
    UnexpectedLineError,
    marked_lines,
    parse_texts,
    query_verb,
    split_facts,
)
from llamaherd.host.remote import Patience, Remote
from llamaherd.inventory.schema import Connect, Rig
from llamaherd.onhost.document import dump
from llamaherd.onhost.engine_memory import ToolRun, ToolRuns
from llamaherd.onhost.hardware import FoundHost, HardwareInput
from llamaherd.pipeline import engine_estimate, preview
from llamaherd.pipeline.inspection import inspect_host
from llamaherd.pipeline.verify import verify_rig
from llamaherd.render import render
from llamaherd.text.quoting import Written
from roles import ROLES
from tests.pipeline import test_asking as asking
from tests.support.found_hosts import found_host
from tests.support.ours import parse_state, plan, queried
from tests.support.rigs import converged, cpu_rig, planned

PACKAGE = Path(llamaherd.__file__).parent
REMOTE = re.compile(r"remote|Remote|shell|here\b|host$")
"""What runs a script on a rig, as it is called."""
DATA = Path(__file__).parents[1] / "data"
RIG = cpu_rig()
PLAN = planned(RIG)
FIELD = st.text(st.characters(exclude_characters="\t\n"))
LINE = st.text(st.characters(exclude_characters="\n"))


@dataclass(frozen=True)
class Saying(Remote):
    """A rig whose host says this, whatever it is asked."""

    out: str
    err: str = ""
    code: int = 0

    def perform(
        self, program: Program, document: bytes | Callable[[], bytes], events: Events, limit: float | Patience
    ) -> int:
        """Hand over what the program prints."""
        assert program.path
        assert document
        assert limit
        for line in self.out.splitlines(keepends=True):
            events.hear("stdout", line)
        events.hear("stderr", self.err)
        return self.code

    def lines(self, script: str, patience: Patience) -> Generator[str, None, None]:
        """The lines that came whole, one by one."""
        assert script
        assert patience.total
        yield from self.out.split("\n")[:-1]


def saying(out: str, err: str = "") -> Saying:
    return Saying(Connect(host="duo"), out, err)


def shell(script: str, shell: str = "sh") -> list[str]:
    """What a shell that reads this on stdin prints."""
    return subprocess.run([shell, "-s"], input=script, capture_output=True, text=True, check=False).stdout.split("\n")


def asked(monkeypatch: pytest.MonkeyPatch, body: str) -> str:
    """A question of this body."""

    def rendered(template: str, **values: Any) -> Written:
        return Written(body) if template == "body" else render(template, **values)

    monkeypatch.setattr(protocol, "render", rendered)
    return protocol.probe_script("body")


@given(st.lists(st.tuples(FIELD, st.lists(FIELD)), max_size=9), st.lists(LINE), st.lists(LINE))
def test_facts_arrive_as_they_were_said(said: list[tuple[str, list[str]]], before: list[str], after: list[str]) -> None:
    facts = [(kind, fields) for kind, fields in said if not kind.startswith("@ ")]
    lines = [*(line for line in before if line != BEGIN), BEGIN, *("\t".join([k, *f]) for k, f in facts), END, *after]
    assert [(kind, fields) for kind, *fields in split_facts(marked_lines(lines))] == facts


@given(st.dictionaries(st.tuples(FIELD, FIELD), st.lists(LINE, min_size=1)))
def test_texts_arrive_as_they_were_said(said: dict[tuple[str, str], list[str]]) -> None:
    """Whatever their lines are: also such as would be marks."""
    lines = [BEGIN]
    for (what, of_what), text in said.items():
        lines += [f"@ {what}\t{of_what}", *(f"\t{line}" for line in text)]
    assert parse_texts(marked_lines([*lines, END])) == {key: "\n".join(text) for key, text in said.items()}


@pytest.mark.parametrize("name", ["sh", "bash"])
def test_a_shell_says_it_in_that_form(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    body = """say kind 'a b' '' '*' "$(printf 'it\\\\s')"; say alone
        section what 'of it'; printf '@ end\\n@ x\\t\\n' | lines"""
    said = marked_lines(shell(asked(monkeypatch, body), name))
    assert said == ["kind\ta b\t\t*\tit\\s", "alone", "@ what\tof it", "\t@ end", "\t@ x\t"]


def test_facts_that_are_said_at_once_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """As servers that are asked meanwhile whether they hang."""
    body = "for each in a b c d; do (for n in $(seq 500); do say $each 1 2 3 4; done) & done; wait"
    said = marked_lines(shell(asked(monkeypatch, body)))
    assert {line[1:] for line in said} == {"\t1\t2\t3\t4"}
    assert len(said) == 2000


def test_a_question_that_is_cut_off_on_its_way_does_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = asked(monkeypatch, f"touch {tmp_path}/done")
    for length in range(0, script.rindex("}"), 7):
        assert shell(script[:length]) == [""]
    assert list(tmp_path.iterdir()) == []
    shell(script)
    assert [each.name for each in tmp_path.iterdir()] == ["done"]


@pytest.mark.parametrize("body", ["exit 0", "exit 3", "kill -9 $$", ". /no/such/file", "if", "say os; exit"])
def test_a_script_that_gives_up_has_no_answer(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    with pytest.raises(CutOffError, match="output of the host ended early"):
        marked_lines(shell(asked(monkeypatch, body)))


def test_the_last_complaint_is_said_and_not_the_answer() -> None:
    with pytest.raises(CutOffError, match=r"ended early: sh: 7: Killed\n  help: run the command again"):
        marked_lines(["Welcome", BEGIN, "os\tdebian-13"], ["note", "sh: 7: Killed", "", ""])
    with pytest.raises(CutOffError, match="ended early: it printed no reason"):
        marked_lines([BEGIN, "os\tdebian-13"])
    with pytest.raises(CutOffError, match="ended early: This account is closed"):
        marked_lines(["This account is closed", ""])


@pytest.mark.parametrize("line", ["", "no\tsuch", "@ what\tof", "\t"])
def test_a_fact_that_was_not_asked_for(line: str) -> None:
    with pytest.raises(UnexpectedLineError, match=r"unexpected line: .*\n  help: "):
        parse_state([line])


@pytest.mark.parametrize("line", ["", "os\tdebian-13", " \tx", "@", "\tof no text"])
def test_a_line_that_is_of_no_text(line: str) -> None:
    with pytest.raises(UnexpectedLineError, match="unexpected line"):
        parse_texts([line])


# --- every question, cut off ------------------------------------------------------------------------------------------


def inspected(remote: Remote) -> object:
    """`herd preflight`, and in the same way `herd up`."""
    return inspect_host(remote, PLAN, ROLES)


def verified(remote: Remote) -> object:
    """`herd verify`."""
    return verify_rig(Rig.model_validate(RIG), PLAN, ROLES, remote)


def estimated(remote: Remote) -> object:
    """`herd fit --ask_host`: all instances of a rig."""
    rig = asking.declared()
    return engine_estimate.query_engines(rig, plan(rig, asking.LOCK), asking.LOCK, remote)


def looked(remote: Remote) -> object:
    """`herd init`."""
    return query_verb(remote, "llamaherd.hardware.inspect", HardwareInput(), FoundHost, 1)


def between(*lines: str) -> str:
    """A whole answer of these lines."""
    return "\n".join([BEGIN, *lines, END, ""])


FAILED = {name: ToolRun("ran", 1, "", "it failed") for name in ("reasoner", "boxed", "small", "worker")}


def test_an_estimate_that_is_cut_off_is_none() -> None:
    whole = dump({"event": "result", "value": ToolRuns(FAILED)})
    assert estimated(saying(f"Welcome\n{whole}\n"))
    for at in range(0, len(whole), 101):
        with pytest.raises(CutOffError):
            estimated(saying(f"Welcome\n{whole[:at]}"))


def test_an_inspection_of_a_new_host_that_is_cut_off_is_none() -> None:
    whole = dump({"event": "result", "value": found_host("duo")})
    assert looked(saying(f"Welcome\n{whole}\n")) == found_host("duo")
    for at in range(0, len(whole), 101):
        with pytest.raises(CutOffError):
            looked(saying(f"Welcome\n{whole[:at]}"))


def test_an_inspection_that_is_cut_off_is_none() -> None:
    whole = dump({"event": "result", "value": queried(converged(PLAN, {"chat": "key"}))})
    assert inspected(saying(f"Welcome\n{whole}\n"))
    for at in range(0, len(whole), 101):
        with pytest.raises(CutOffError):
            inspected(saying(f"Welcome\n{whole[:at]}"))


@pytest.mark.usefixtures("starts_processes")
def test_a_verification_that_is_cut_off_is_none() -> None:
    result = json.loads((DATA / "verify-box.json").read_text(encoding="utf-8"))
    whole = dump({"event": "result", "value": result})
    assert verified(saying(f"{whole}\n"))
    for at in range(0, len(whole), 101):
        with pytest.raises(CutOffError):
            verified(saying(whole[:at]))


def test_preflight_shows_what_was_cut_off_as_its_row() -> None:
    found = preview.run_preflight(PLAN, ROLES, saying('{"event":"result"', "Killed"))
    (row,) = found.rows
    assert "the output of the host ended early: Killed" in str(row)


def test_all_that_ask_a_host_do_so_by_this_protocol() -> None:
    """Only pyinfra's edge runs scripts and commands on a host; all else are verbs."""
    calls = {
        (str(file.relative_to(PACKAGE)), node.func.attr)
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("run", "lines", "run_shell_command") and REMOTE.search(ast.unparse(node.func.value))
        if file.parent.name != "onhost"  # it runs on the host
    }
    assert calls == {
        # Of pyinfra: an inspection, whose result is read by `result_of`, and steps, which read nothing.
        ("deploy/connector.py", "run"),
        ("deploy/commands.py", "run_shell_command"),
        # Keeps a forwarded port open, and reads nothing.
        ("host/tunnel.py", "run"),
        ("deploy/operations.py", "run_shell_command"),
        ("deploy/run_state.py", "run_shell_command"),
    }
