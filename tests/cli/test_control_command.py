"""`herd stop`, `start`, `restart`, `pause` and `resume`: what a host receives, and what is printed of its result.

An `ssh` of the tests' own records the document, and prints a result.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from llamaherd.cli.control import local_end, result_line
from llamaherd.cli.servers import ControlOptions, seconds_until
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.document import decode
from llamaherd.onhost.server_control import ControlInput, ServerResult
from tests.support.envelope import envelope
from tests.support.gateway import rig_at
from tests.support.rigs import ROOT, cpu_rig, planned
from tests.support.ssh_hosts import HERD

SSH = f"""#!{sys.executable}
import json, pathlib, sys

there = pathlib.Path(__file__).parent
sys.path.insert(0, {str(ROOT)!r})
from tests.support.ssh_program import read_document

(there / "document").write_text(json.dumps(read_document()))
print((there / "result").read_text(), flush=True)
"""


@dataclass(frozen=True)
class Fleet:
    """A rig with two servers, and its host."""

    folder: Path

    def returns(self, **servers: dict[str, Any]) -> None:
        """Have the host return these results."""
        event = {"event": "result", "value": {"servers": servers}}
        (self.folder / "result").write_text(json.dumps(event))

    def fails(self, message: str) -> None:
        """Have the host fail."""
        event = {"event": "error", "message": message, "help": "wait", "log": []}
        (self.folder / "result").write_text(json.dumps(event))

    def herd(self, *words: str) -> tuple[int, str, str]:
        """Return the exit code and the output of a command."""
        done = subprocess.run(
            [HERD, "-i", str(self.folder / "fleet"), *words],
            env=os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}", "TZ": "Europe/Berlin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    @property
    def received(self) -> tuple[str, ControlInput]:
        """The verb and the input that the host received."""
        document = json.loads((self.folder / "document").read_text())
        return document["verb"], decode(ControlInput, document["input"])


DONE = {"seconds": 3.2, "changed": True}
SAME = {"seconds": 0.1, "changed": False}


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Return a fleet whose host does what it should."""
    made = Fleet(tmp_path)
    rig = rig_at({"one": 8001, "two": 8002}, {"rig": "box", "connect/host": "box", "instances/one/listen": "0.0.0.0"})
    (tmp_path / "fleet").mkdir()
    text = yaml.safe_dump(rig.model_dump(mode="json", exclude_unset=True))
    (tmp_path / "fleet" / "box.yaml").write_text(text)
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    made.returns(one=DONE)
    return made


def test_a_server_is_stopped_and_started_again(fleet: Fleet) -> None:
    code, out, _ = fleet.herd("stop", "box/one", "--lock-wait", "7")
    assert (code, out) == (0, "box/one: stopped after 3 s; `herd start box/one` or `herd up` starts it\n")
    verb, given = fleet.received
    assert verb == "serve.control.stop"
    assert [(each.name, each.service, each.port) for each in given.servers] == [("one", "llama-one", 8001)]
    assert (given.lock.rig, given.lock.seconds, given.anew) == ("box", 7, False)
    code, out, _ = fleet.herd("start", "one")
    assert (code, out) == (0, "box/one: healthy after 3 s: http://box:8001\n")
    assert fleet.received[0] == "serve.control.start"
    fleet.returns(one=SAME)
    assert fleet.herd("start", "one")[1] == "box/one: it runs: http://box:8001\n"
    assert fleet.herd("stop", "one")[1].startswith("box/one: it was stopped before; ")


def test_a_restart_is_a_start_anew(fleet: Fleet) -> None:
    assert fleet.herd("restart", "box/one")[:2] == (0, "box/one: healthy after 3 s: http://box:8001\n")
    verb, given = fleet.received
    assert (verb, given.anew) == ("serve.control.start", True)


def test_a_rig_stands_for_all_of_its_servers(fleet: Fleet) -> None:
    fleet.returns(one=DONE, two=SAME)
    code, out, _ = fleet.herd("stop", "box", "--json")
    assert [each.name for each in fleet.received[1].servers] == ["one", "two"]
    value = envelope(out)
    assert (code, value["schema"], value["ok"], value["rigs"][0]["rig"]) == (0, 1, True, "box")
    one = {"name": "one", "ok": True, "changed": True, "seconds": 3.2, "url": "http://box:8001", "error": None}
    assert value["rigs"][0]["servers"][0] == one
    code, _, err = fleet.herd("stop")
    assert (code, "the inventory has several servers" in err) == (2, True)


def test_a_failing_server_is_shown_with_its_error(fleet: Fleet) -> None:
    fleet.returns(one={**DONE, "why": "it is not healthy after 3 s; its last error: out of \x1b[31mmemory"}, two=DONE)
    code, out, err = fleet.herd("start", "box")
    assert code == 1
    assert out == "box/two: healthy after 3 s: http://127.0.0.1:8002 on box itself\n"
    assert err == (
        "error: box/one: it is not healthy after 3 s; its last error: out of memory\n"
        "  help: `herd logs box/one` shows more\n"
    )
    assert envelope(fleet.herd("start", "box", "--json")[1])["ok"] is False


def test_a_host_that_fails_and_a_result_that_lacks_a_server(fleet: Fleet) -> None:
    fleet.returns()
    assert fleet.herd("stop", "box/one")[0] == 1
    fleet.fails("another run changes this host, by tom")
    code, _, err = fleet.herd("stop", "box/one")
    assert (code, err) == (1, "error: another run changes this host, by tom\n  help: wait\n")


def test_a_pause_has_an_end_in_local_time(fleet: Fleet) -> None:
    code, out, _ = fleet.herd("pause", "box/one", "--for", "90m")
    assert code == 0
    assert out.startswith("box/one: paused until ")
    assert out.endswith("; `herd resume box/one` starts it earlier\n")
    verb, given = fleet.received
    assert (verb, given.seconds) == ("serve.control.pause", 5400)
    fleet.herd("pause", "box/one", "--until", "22:00")
    assert 0 < fleet.received[1].seconds <= 25 * 3600
    fleet.returns(one=SAME)
    assert fleet.herd("resume", "box/one")[1] == "box/one: it is not paused\n"
    assert fleet.received[0] == "serve.control.resume"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give the end of the pause"),
        (("--for", "1h", "--until", "22:00"), "give the end of the pause"),
        (("--for", "0m"), "the end must be in 1 minute to 30 days"),
        (("--for", "9999h"), "the end must be in 1 minute to 30 days"),
        (("--until", "2020-01-01 10:00"), "the end must be in 1 minute to 30 days"),
        (("--until", "25:00"), "`25:00` does not exist"),
        (("--until", "2026-02-30 10:00"), "`2026-02-30 10:00` does not exist"),
        (("--until", "tomorrow"), "write it like 22:00 or 2026-12-01 08:00"),
        (("--for", "soon"), "write it like 45m, 90s or 2h"),
    ],
)
def test_wrong_ends(fleet: Fleet, words: tuple[str, ...], said: str) -> None:
    code, _, err = fleet.herd("pause", "box/one", *words)
    assert (code, said in err) == (2, True), err
    assert not (fleet.folder / "document").exists()


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Live in Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("text", "now", "hours"),
    [
        ("22:00", "2026-11-29 20:30", 1.5),
        ("22:00", "2026-11-29 22:00", 24),
        ("6:30", "2026-11-29 22:00", 8.5),
        ("2026-12-01 08:00", "2026-11-29 22:00", 34),
        ("2026-12-01T08:00", "2026-11-29 22:00", 34),
        ("04:00", "2026-03-28 22:00", 5),  # summer time begins in between
        ("04:00", "2026-10-24 22:00", 7),  # and ends
    ],
)
def test_the_seconds_until_a_local_time(text: str, now: str, hours: float) -> None:
    assert seconds_until(text, datetime.fromisoformat(now)) == hours * 3600


@pytest.mark.parametrize("text", ["9999-12-31 23:59", "0001-01-01 00:00"])
def test_a_time_at_the_ends_of_the_calendar(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York" if text.startswith("9") else "Asia/Tokyo")
    time.tzset()
    try:
        with pytest.raises(ValueError, match=f"`{text}` does not exist"):
            seconds_until(text, datetime(2026, 11, 29, 20, 30))
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_end_counts_from_the_begin_of_the_command() -> None:
    rig = Rig.model_validate(cpu_rig())
    began = datetime(2026, 11, 29, 20, 30)
    options = ControlOptions("pause", None, "one", 0, False, 5400, began)
    instance = planned(cpu_rig()).instances[0]
    line = result_line(rig, instance, ServerResult(600, True), options)
    assert ": paused until 22:00;" in line


@pytest.mark.usefixtures("berlin")
def test_an_end_is_shown_with_its_date_unless_it_is_today() -> None:
    now = datetime(2026, 3, 28, 22, 0)
    assert local_end(now, 3600) == "23:00"
    assert local_end(now, 5 * 3600) == "2026-03-29 04:00"
    assert local_end(now, round(timedelta(days=2).total_seconds())) == "2026-03-30 23:00"
