"""The line on a terminal that names the hosts a command waits for: hidden while a result is printed, and in the end."""

from __future__ import annotations

import sys
from io import StringIO

import pytest

from llamaherd.cli.progress import waiting_line

HIDDEN = "\r\x1b[K"


class Terminal(StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_the_hosts_that_are_left_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with waiting_line("verifying", ["attic", "duo"]) as done:
        with done("duo"):
            shown.write("duo: well\n")
        with done("attic"):
            shown.write("attic: well\n")
    assert shown.getvalue() == (
        f"{HIDDEN}verifying attic, duo{HIDDEN}duo: well\n{HIDDEN}verifying attic{HIDDEN}attic: well\n{HIDDEN}{HIDDEN}"
    )


def test_of_many_hosts_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with waiting_line("verifying", [f"rig{number}" for number in range(20)]):
        pass
    assert shown.getvalue() == f"{HIDDEN}verifying rig0, rig1, rig2 and 17 more{HIDDEN}"


def test_an_interrupted_command_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with pytest.raises(KeyboardInterrupt), waiting_line("verifying", ["attic"]):
        raise KeyboardInterrupt
    assert shown.getvalue().endswith(HIDDEN)


def test_a_log_has_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting_line("verifying", ["attic"]) as done, done("attic"):
        print("attic: well")
    assert capsys.readouterr() == ("attic: well\n", "")
