"""`herd logs`: the real program on a host that an `ssh` of the tests' own leads to, before a journal of a few lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.gateway import rig_at
from tests.support.rigs import ROOT
from tests.support.ssh_hosts import HERD
from tests.support.terminal import wait_for_idle

SSH = f"""#!{sys.executable}
import os, pathlib, sys

there = pathlib.Path(__file__).parent
if (there / "gone").exists():
    print("ssh: connect to host box port 22: Connection refused", file=sys.stderr)
    sys.exit(255)
sys.path.insert(0, {str(ROOT)!r})
from tests.support.ssh_program import read_document
document = read_document()

from llamaherd import layout
layout.UNITS, layout.KEYS = there / "units", there / "keys"
from llamaherd.onhost.system import FailedError, Host
from llamaherd.onhost.verbs import Events, perform

output = Events()
try:
    output.result(perform(document, Host(output.progress, output.warning, output.value)))
except FailedError as error:
    output.error(error.message, error.fix, error.log)
(there / "ended").touch()
"""
JOURNALCTL = """#!/bin/sh
echo $$ >"${0%/*}/program"
printf '1795249315.5 box systemd[1]: Started chat\\n'
printf '1795249316.5 box llama-server[7]: \\033[31mred\\033[0m\\a and a key 0123456789abcdef\\n'
case "$*" in *" -f"*) exec sleep 600 ;; esac
"""


@dataclass(frozen=True)
class Fleet:
    """A rig with one server, and its host."""

    folder: Path

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start `herd logs`."""
        path = f"{self.folder}:{os.environ['PATH']}"
        return subprocess.Popen(
            [HERD, "-i", str(self.folder / "fleet"), "logs", *words],
            env=os.environ | {"PATH": path, "TZ": "Asia/Tokyo"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def logs(self, *words: str) -> tuple[int, str, str]:
        """Return the exit code and the output of `herd logs`."""
        process = self.begin(*words)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Return a fleet whose server runs."""
    rig = rig_at({"chat": 8001}, {"rig": "box", "connect/host": "box"})
    for folder in ("fleet", "units", "keys"):
        (tmp_path / folder).mkdir()
    text = yaml.safe_dump(rig.model_dump(mode="json", exclude_unset=True))
    (tmp_path / "fleet" / "box.yaml").write_text(text)
    for name, program in (("ssh", SSH), ("journalctl", JOURNALCTL)):
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "units" / "llama-chat.service").touch()
    (tmp_path / "keys" / "chat").write_text("0123456789abcdef\n")
    return Fleet(tmp_path)


def test_lines_have_local_times_and_neither_control_characters_nor_the_key(fleet: Fleet) -> None:
    code, out, err = fleet.logs("box/chat", "-n", "5", "--since", "10m")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "2026-11-21 17:21:55  Started chat",
        "2026-11-21 17:21:56  red and a key [key]",
    ]


def test_a_program_reads_an_object_on_each_line(fleet: Fleet) -> None:
    code, out, err = fleet.logs("box/chat", "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"rig": "box", "instance": "chat", "at": "2026-11-21T08:21:55+00:00", "text": "Started chat"},
        {"rig": "box", "instance": "chat", "at": "2026-11-21T08:21:56+00:00", "text": "red and a key [key]"},
    ]


def test_the_only_server_needs_no_name_and_an_unknown_one_is_named(fleet: Fleet) -> None:
    assert fleet.logs("-n", "1")[1].count("\n") == 1
    code, _, err = fleet.logs("box/chad")
    assert (code, err) == (2, "error: there is no instance `box/chad`\n  help: did you mean `box/chat`?\n")


def test_it_follows_until_ctrl_c_and_the_host_ends_its_program(fleet: Fleet) -> None:
    process = fleet.begin("box/chat", "-f")
    assert process.stdout
    assert [process.stdout.readline()[21:-1] for _ in range(2)] == ["Started chat", "red and a key [key]"]
    journalctl = int((fleet.folder / "program").read_text())
    wait_for_idle(process.pid)  # or it prints the last line once more
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
    until = time.monotonic() + 30
    while Path(f"/proc/{journalctl}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{journalctl}").exists()


def test_an_object_a_line_until_ctrl_c(fleet: Fleet) -> None:
    process = fleet.begin("box/chat", "-f", "--json")
    assert process.stdout
    assert [json.loads(process.stdout.readline())["text"] for _ in range(2)] == ["Started chat", "red and a key [key]"]
    wait_for_idle(process.pid)  # or it prints the last line once more
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
    (fleet.folder / "gone").touch()
    code, out, _ = fleet.logs("--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_nothing_matches_or_there_is_no_server_or_no_host(fleet: Fleet) -> None:
    assert fleet.logs("--grep", "absent") == (0, "", "box/chat: its log has no such line\n")
    (fleet.folder / "units" / "llama-chat.service").unlink()
    code, _, err = fleet.logs()
    assert (code, err) == (1, "error: there is no llama-chat on this host\n  help: `herd up` creates it\n")
    (fleet.folder / "gone").touch()
    code, _, err = fleet.logs()
    assert code == 1
    assert "nothing listens for SSH at box port 2201: connection refused" in err


@pytest.mark.parametrize("words", [("--since", "yesterday"), ("-n", "10001"), ("-n", "-1"), ("--lines", "x")])
def test_wrong_usage(fleet: Fleet, words: tuple[str, ...]) -> None:
    assert fleet.logs(*words)[0] == 2
