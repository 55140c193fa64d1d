"""The screens of `herd verify`: on terminals of 80 and 100 columns, with and without colour, and in a pipe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import pytest
from rich.console import Console

from llamaherd.cli.verification import print_report
from llamaherd.role.report import Check, Report
from tests.pipeline.test_verify import VERB, captured, in_json, probed, report, well
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Screen:
    """What a host returned, and whether all checks are printed."""

    returned: Callable[[], str]
    verbose: bool = False


SCREENS = {
    "doubt": Screen(lambda: well().replace("red, ", "red<|im_end|>, ")),
    "garbage": Screen(lambda: probed(captured("verify-box.json"))),
    "disabled": Screen(lambda: well().replace('"enabled": "enabled"', '"enabled": "disabled"')),
    "stopped": Screen(lambda: captured("verify-stopped.json")),
    "verbose": Screen(well, verbose=True),
}


def printed(found: Report, *, verbose: bool = False, width: int | None = None, colour: bool = False) -> str:
    """Return what is printed on a terminal of so many columns, or into a pipe."""
    file = StringIO()
    system: Literal["standard"] | None = "standard" if colour else None
    to = Console(file=file, width=width, force_terminal=width is not None, color_system=system, highlight=False)
    print_report(found, to, verbose=verbose)
    return file.getvalue()


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen(name: str) -> None:
    screen = SCREENS[name]
    found = report(screen.returned())
    shown = {str(width): printed(found, verbose=screen.verbose, width=width) for width in (80, 100)}
    shown["pipe"] = printed(found, verbose=screen.verbose)
    shown["colour"] = printed(found, verbose=screen.verbose, width=80, colour=True)
    assert COLOUR.sub("", shown["colour"]) == shown["80"]
    for width in ("80", "100"):
        assert max(map(len, shown[width].split("\n"))) <= int(width)
        assert "".join(shown[width].split()) == "".join(shown["pipe"].split()), "nothing is cut"
    text = "".join(f"{title}:\n{each}\n" for title, each in shown.items()).replace("\x1b", "ESC")
    assert_golden(GOLDEN, f"verify_{name}.txt", {f"verify_{name}.txt": text})


def test_a_paused_server_is_counted_and_shown_with_all_checks() -> None:
    value: dict[str, Any] = json.loads(well())
    value["parts"][VERB]["servers"]["chat"] = {"pause_left": 7200.0}
    found = report(json.dumps(value))
    assert found.ok
    assert printed(found).startswith("box: 1 of 2 servers responds, 1 paused, ")
    line = "✓ paused    for 2 h 00 min more; `herd resume box/chat` starts it"
    assert line in printed(found, verbose=True)


def test_a_rig_where_all_is_well_is_one_line() -> None:
    assert printed(report(well())) == "box: 2 of 2 servers respond, 7.3 to 770 t/s\n"


@pytest.mark.parametrize(
    ("checks", "line"),
    [
        ((True, True), "no server is declared"),
        ((True, False), "no server is declared; 1 check failed"),
        ((False, False), "no server is declared; 2 checks failed"),
    ],
)
def test_a_rig_without_servers(checks: tuple[bool, ...], line: str) -> None:
    found = Report("attic", (), (), machine=tuple(Check("x", ok, "y") for ok in checks))
    assert printed(found).split("\n")[0] == f"attic: {line}"


def test_a_terminal_without_unicode_gets_words() -> None:
    class Latin(StringIO):
        encoding = "latin-1"

    file = Latin()
    print_report(report(captured("verify-stopped.json")), Console(file=file, highlight=False), verbose=True)
    shown = file.getvalue()
    assert "    FAILED process   no process runs\n    ok files     engine" in shown


def test_a_report_executes_nothing_that_a_model_returns() -> None:
    text = captured("verify-box.json").replace(in_json('"content":"b"'), in_json(r'"content":"\u001b[31m[bold]b\n"'))
    shown = printed(report(text), verbose=True)
    assert "a[bold]b cdef" in shown
    assert "\x1b" not in shown
