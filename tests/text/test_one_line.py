"""Messages that quote what others have written: one line, of bounded length, which no terminal obeys."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamaherd.diagnostics.findings import Finding, Place, UserError
from llamaherd.role.changes import Change, RunScript
from llamaherd.role.preflight import PreflightRow, Refusal
from llamaherd.role.report import Check
from llamaherd.text.terminal import MOST_HELP, MOST_MESSAGE, one_line

TEXTS = st.one_of(
    st.text(),
    st.text(alphabet=st.characters(), max_size=20).map(lambda text: f"`{text * 400}` does not do"),
    st.text(alphabet="ab `\n\x1b[31m\u202e\ud800\u00a0", max_size=2000),
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`--port 80` is below 1024", "`--port 80` is below 1024"),
        ("one\ntwo\r\x1b[31m\u202e\u200b\ud800\x85", r"one\ntwo\r\x1b[31m\u202e\u200b\ud800\x85"),
        (f"`--port` takes a whole number, not `{'9' * 4301}`", f"`--port` takes a whole number, not `{'9' * 79}…`"),
        (f"`{'a b ' * 999}` is a name", f"`{('a b ' * 20)[:79]}…` is a name"),
        (f"{'9' * 4301}: no number", f"{'9' * 79}… no number"),
    ],
)
def test_what_is_quoted(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_a_long_command_in_a_help_text_stays_whole() -> None:
    command = f"write `llama-server {'--flag value ' * 60}`"
    assert one_line(command, MOST_HELP) == command


@given(TEXTS)
def test_whatever_is_quoted_is_one_short_line(text: str) -> None:
    place = Place(Path("a"))
    made = (Finding("LH001", place, text, text), UserError(text, text), Refusal(text, text))
    for each in made:
        assert (len(each.message) <= MOST_MESSAGE, len(each.help) <= MOST_HELP) == (True, True)
        assert (each.message.isprintable(), each.help.isprintable()) == (True, True)
    row, check = PreflightRow("what", text, why=text, help=text), Check("it", ok=True, detail=text)
    for detail in (row.found, row.why, row.help, check.detail, one_line(text, MOST_HELP)):
        assert (len(detail) <= MOST_HELP, detail.isprintable()) == (True, True)
    change = str(Change("update", "file", text, (text,), RunScript("true")))
    assert (len(change) <= 2 * MOST_MESSAGE + 20, change.isprintable()) == (True, True)
