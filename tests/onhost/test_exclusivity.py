"""The lock of measurements: held until the connection ends, and reported to those that come meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llamaherd.host.program import request
from llamaherd.onhost.reservation import HELD, LOCK, MeasurementLockInput, hold_measurement, measuring
from llamaherd.onhost.system import HeldError
from llamaherd.onhost.verbs import find_verb
from tests.support.played_host import PlayedHost
from tests.support.rigs import ROOT

pytestmark = pytest.mark.usefixtures("starts_processes")  # a thread waits


def test_it_is_held_until_the_connection_ends() -> None:
    host = PlayedHost({})
    held: list[set[str]] = []

    def look() -> str:
        held.append(set(host.held))
        return "anything"

    host.lines = iter([look, "$(id)"])
    find_verb("llamaherd.reservation.hold_measurement").run(MeasurementLockInput("tom  on\ndesk"), host)
    assert host.signed == {LOCK: "tom on desk"}
    assert host.log == [HELD]
    assert held == [{LOCK}]
    assert not host.held


@pytest.mark.parametrize(
    ("holder", "by"), [("ann on lap since 2026-11-28 10:00:00", "ann on lap"), ("", "a run that has just begun")]
)
def test_another_measurement_is_named(holder: str, by: str) -> None:
    host = PlayedHost({}, holders={LOCK: holder})
    with pytest.raises(HeldError, match=f"another measurement runs on this host, by {by}") as raised:
        hold_measurement(MeasurementLockInput("tom"), host)
    assert raised.value.fix == "wait until it has ended"
    assert (host.log, host.holders) == ([], {LOCK: holder})


def test_it_is_free_after_a_failure() -> None:
    host = PlayedHost({})
    with pytest.raises(KeyError), measuring(host, "tom", 5):
        raise KeyError
    assert not host.held


PROGRAM = """
import pathlib, sys
from llamaherd.onhost import system, verbs
system.LOCKS = pathlib.Path(sys.argv[1])
sys.exit(verbs.main([]))
"""


@pytest.mark.usefixtures("starts_processes")
def test_a_program_holds_it_for_its_controller(tmp_path: Path) -> None:
    locks = tmp_path / "run" / "locks"
    command = [sys.executable, "-c", PROGRAM, str(locks)]
    document = request("llamaherd.reservation.hold_measurement", MeasurementLockInput("tom")) + b"\n"
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT) as first:
        assert first.stdin
        assert first.stdout
        first.stdin.write(document)
        first.stdin.flush()
        assert json.loads(first.stdout.readline()) == {"event": "progress", "text": HELD}
        first.stdin.write(b"a line\n")
        first.stdin.flush()
        second = subprocess.run(command, input=document, stdout=pipe, cwd=ROOT, check=False)
        error = json.loads(second.stdout)
        assert (second.returncode, error["help"]) == (1, "wait until it has ended")
        assert error["message"].startswith("another measurement runs on this host, by tom since ")
        assert first.poll() is None
        first.stdin.close()
        assert json.loads(first.stdout.readline()) == {"event": "result", "value": None}
        assert first.wait(60) == 0
    assert (locks / LOCK).read_text() == ""
