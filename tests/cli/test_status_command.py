"""`herd status`: the real program on hosts that an `ssh` of the tests' own leads to, before servers on loopback."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from click.shell_completion import ShellComplete

from llamaherd.cli.herd import main
from llamaherd.measure.results.store import write_result
from tests.bench.made import result, run
from tests.support.envelope import envelope
from tests.support.gateway import free_port, rig_at
from tests.support.rigs import ROOT
from tests.support.slots_server import KEY, SlotsServer
from tests.support.ssh_hosts import HERD

RIGS = {"attic": 2301, "duo": 2302}
SSH = f"""#!{sys.executable}
import os, pathlib, sys, time

port = sys.argv[sys.argv.index("-p") + 1]
there = pathlib.Path(__file__).parent / port
with open(there.parent / "log", "a") as log:
    print(port, file=log)
if (there / "slow").exists():
    time.sleep(60)
if (there / "gone").exists():
    print(f"ssh: connect to host box port {{port}}: Connection refused", file=sys.stderr)
    sys.exit(255)
sys.path.insert(0, {str(ROOT)!r})
from tests.support.ssh_program import read_document, run_program

document = read_document()
for server in document["input"]["servers"]:
    server["key"] = str(there / "key")
os.environ["PATH"] = f"{{there}}/bin:{{os.environ['PATH']}}"
sys.exit(run_program(document, {{"RELEASES": there / "releases", "GATEWAY_TALK": there / "gateway-talk"}}))
"""
UNIT = """#!/bin/sh
printf 'Id=llama-one.service\\nLoadState=loaded\\nActiveState=%s\\nSubState=running\\nResult=success\\nMainPID=0\\n' \
    "$(cat {there}/active)"
"""
RELEASE = {
    "at": "2026-11-24T10:00:00+00:00",
    "origin": {"user": "ann"},
    "changes": ["restart one: its engine is another"],
}


@dataclass(frozen=True)
class Fleet:
    """Two rigs with a server each."""

    folder: Path
    servers: dict[str, SlotsServer] = field(default_factory=dict)

    def at(self, name: str, *parts: str) -> Path:
        """A file of a rig's host."""
        return self.folder.joinpath(str(RIGS[name]), *parts)

    def begin(self, *words: str, stdout: int = subprocess.PIPE, command: str = "status") -> subprocess.Popen[str]:
        """`herd status`, or another command."""
        return subprocess.Popen(
            [HERD, "-i", str(self.folder / "fleet"), command, *words],
            cwd=self.folder,
            env=os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}", "TERM": "xterm", "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    def status(self, *words: str, command: str = "status") -> subprocess.CompletedProcess[str]:
        """The same, to its end."""
        process = self.begin(*words, command=command)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    @property
    def execs(self) -> list[str]:
        """The hosts that were logged in to, each time."""
        names = {str(port): name for name, port in RIGS.items()}
        log = self.folder / "log"
        return sorted(names[port] for port in log.read_text().split()) if log.exists() else []


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    (tmp_path / "fleet").mkdir()
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    for name, port in RIGS.items():
        server = made.servers[name] = SlotsServer()
        rig = rig_at({"one": server.port}, {"rig": name, "connect/port": port, "connect/host": "box"})
        (tmp_path / "fleet" / f"{name}.yaml").write_text(
            yaml.safe_dump(rig.model_dump(mode="json", exclude_unset=True))
        )
        for folder in ("bin", "releases"):
            made.at(name, folder).mkdir(parents=True)
        made.at(name, "key").write_text(f"{KEY}\n")
        made.at(name, "active").write_text("active")
        made.at(name, "bin", "systemctl").write_text(UNIT.format(there=made.at(name)))
        made.at(name, "bin", "systemctl").chmod(0o755)
        made.at(name, "releases", "7.json").write_text(json.dumps(RELEASE))
    yield made
    for server in made.servers.values():
        server.stop()


def test_all_serve(fleet: Fleet) -> None:
    fleet.servers["duo"].busy, fleet.servers["duo"].step, fleet.servers["duo"].waiting = 1, 40, 2
    runs = [run(100.0 + each / 10) for each in range(5)]
    write_result(
        fleet.folder / "fleet" / "results", result(*runs, rig="duo", instance="one", ended="2026-11-23T20:18:00Z")
    )
    done = fleet.status()
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    first, _, headings, *rows = done.stdout.splitlines()
    assert first.startswith("2 of 2 instances serve, 2026-")
    assert headings.split() == [
        "rig",
        "instance",
        "state",
        "port",
        "model",
        "streams",
        "waiting",
        "t/s",
        "now",
        "measured",
    ]
    assert rows[0].split()[:5] == ["attic", "one", "serves", str(fleet.servers["attic"].port), "gemma"]
    assert rows[1].split()[5:9] == ["1", "of", "2", "2"]
    assert "100.2 ± 0.2" in rows[1]
    assert "attic  7       2026-11-24 10:00:00 UTC  ann  restart one: its engine is another" in done.stdout
    assert "\x1b" not in done.stdout


def test_json_says_the_same_and_each_host_is_asked_once(fleet: Fleet) -> None:
    fleet.servers["duo"].busy, fleet.servers["duo"].step = 2, 40
    value = envelope(fleet.status("--json").stdout)
    assert (value["ok"], [rig["rig"] for rig in value["rigs"]]) == (True, ["attic", "duo"])
    (one,) = value["rigs"][1]["instances"]
    assert (one["state"], one["streams"], one["slots"]) == ("serves", 2, 2)
    assert 0 < one["tokens_per_second"] <= 80
    assert fleet.execs == ["attic", "duo"]


def test_top_shows_processes_once_without_a_terminal(fleet: Fleet) -> None:
    fleet.servers["duo"].busy, fleet.servers["duo"].step = 1, 40
    fleet.at("attic", "gone").touch()
    done = fleet.status(command="top")
    assert (done.returncode, done.stderr) == (1, "")
    first, away, _, headings, row = done.stdout.splitlines()
    assert first.startswith("1 stream, ")
    assert away.startswith("attic: nothing listens for SSH at box")
    assert headings.split() == ["rig", "server", "state", "t/s", "streams", "context"]
    assert row.split()[:3] == ["duo", "one", "serves"]
    assert row.split()[4:] == ["1", "of", "2", "0.0K", "of", "8.0K"]
    value = envelope(fleet.status("duo", "--json", command="top").stdout)
    assert (value["schema"], value["ok"], value["rigs"][0]["rig"]) == (1, True, "duo")
    (process,) = value["rigs"][0]["processes"]
    assert (process["streams"], process["slots"], process["context"]) == (1, 2, [0, 8192])
    assert fleet.execs == ["attic", "duo", "duo"]


def test_what_is_down_ends_with_one_and_the_others_go_on(fleet: Fleet) -> None:
    fleet.at("attic", "active").write_text("failed")
    done = fleet.status()
    assert done.returncode == 1
    assert "1 of 2 instances serve" in done.stdout
    assert "attic: one is down: its unit is failed; see `herd logs attic/one`" in done.stdout
    fleet.at("attic", "gone").touch()
    done = fleet.status()
    assert done.returncode == 1
    assert done.stdout.startswith("1 of 2 instances serve, attic unreachable, ")
    assert "attic: nothing listens for SSH at box" in done.stdout
    assert "duo    one       serves" in done.stdout
    assert fleet.status("duo").returncode == 0


def test_a_host_that_lies_is_a_line(fleet: Fleet) -> None:
    fleet.at("attic", "active").write_text("\x1b[2J")
    done = fleet.status()
    assert done.returncode == 1
    assert "attic: the host printed an unexpected line" in done.stdout
    assert "\x1b" not in done.stdout
    assert "duo    one       serves" in done.stdout


def test_watching_without_a_terminal_prints_a_table_each_time_and_ends_cleanly(fleet: Fleet) -> None:
    process = fleet.begin("--watch", "1", "duo")
    assert process.stdout
    assert process.stderr
    tables = 0
    for line in process.stdout:
        tables += "instances serve" in line
        if tables == 3:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert "\x1b" not in out
    assert (process.returncode, err) == (130, "interrupted\n")
    assert 3 <= len(fleet.execs) <= 4


def test_watching_on_a_terminal_draws_over_what_is_there(fleet: Fleet) -> None:
    ours, theirs = pty.openpty()
    process = fleet.begin("--watch", "duo", stdout=theirs)
    os.close(theirs)
    said, until = b"", time.monotonic() + 60
    while said.count(b"instances serve") < 2 and time.monotonic() < until:
        if select.select([ours], [], [], 1)[0]:
            said += os.read(ours, 1 << 16)
    process.send_signal(signal.SIGINT)
    process.wait(30)
    os.close(ours)
    first, second, *_ = said.split(b"\x1b[H")[1:]
    assert first.rstrip().endswith(b"\x1b[J")
    assert all(line.endswith(b"\x1b[K") for line in first.split(b"\r\n")[:-1])
    assert b"\x1b[32mserves" in first
    assert b"\x1b[2J" not in said
    assert b"duo" in second


def test_a_slow_host_holds_the_others_once(fleet: Fleet) -> None:
    fleet.at("attic", "slow").touch()
    process = fleet.begin("--watch=1", "--json")
    assert process.stdout
    looks = [envelope(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    for look in looks:
        attic, duo = look["rigs"]
        assert attic["away"].startswith("it has not responded within 15 s")
        assert duo["instances"][0]["state"] == "serves"
    assert fleet.execs.count("attic") == 1
    assert fleet.execs.count("duo") >= 3


def test_a_page(fleet: Fleet) -> None:
    done = fleet.status("-o", "status.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    page = (fleet.folder / "status.html").read_text()
    assert "All serve" in page
    assert "<script" not in page
    assert KEY not in page
    done = fleet.status("-o", "other.html", "--json")
    assert envelope(done.stdout)["ok"]
    assert "All serve" in (fleet.folder / "other.html").read_text()
    done = fleet.status("-o", "status.txt")
    assert (done.returncode, "choose a file name with .html" in done.stderr) == (2, True)
    done = fleet.status("-o", "nowhere/status.html")
    assert (done.returncode, "cannot write" in done.stderr) == (2, True)


def test_a_page_is_kept_up_to_date_until_the_command_ends(fleet: Fleet) -> None:
    process = fleet.begin("--watch=1", "-o", "live.html")
    page, seen = fleet.folder / "live.html", list[str]()
    until = time.monotonic() + 60
    while len(seen) < 2 and time.monotonic() < until:
        if page.exists() and (text := page.read_text()) not in seen:
            seen.append(text)
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
    assert len(seen) == 2
    assert all('<meta http-equiv="refresh" content="5">' in text for text in seen)
    last = page.read_text()
    assert 'http-equiv="refresh"' not in last
    assert "This page is not updated any more" in last
    ended = fleet.status("--watch=1", "-o", "nowhere/live.html")
    assert (ended.returncode, ended.stderr.count("cannot write")) == (2, 1)


def test_the_gateway_is_asked_in_the_same_connection(fleet: Fleet) -> None:
    (fleet.folder / "fleet" / "fleet.yaml").write_text(
        f"gateway:\n  on: [duo]\n  port: {free_port()}\n  users: {{tom: {{key: {{env: A}}, streams: 9}}}}\n"
        "  models:\n    coder: {serve: [duo.one]}\n"
    )
    talk = fleet.at("duo", "gateway-talk")
    lines = ("model\tcoder\t3", "server\tcoder\tduo.one\tUP\t1\t2\t40", "user\ttom\t4\t9", "ending\t0")
    talk.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    talk.chmod(0o755)
    (fleet.at("duo", "bin") / "systemctl").write_text(
        '#!/bin/sh\n[ "$1" = list-units ] && exit\n' + UNIT.format(there=fleet.at("duo")).removeprefix("#!/bin/sh\n")
    )
    done = fleet.status()
    assert done.returncode == 0, done.stdout
    assert "duo      coder  3        duo.one  up     1 of 2   40" in done.stdout
    assert "duo      tom   4 of 9" in done.stdout
    assert fleet.execs == ["attic", "duo"]
    talk.unlink()
    done = fleet.status()
    assert (done.returncode, "duo: there is no gateway on its host; `herd up` installs it" in done.stdout) == (1, True)
    assert "duo    one       serves" in done.stdout


def test_an_inventory_that_cannot_be_used(fleet: Fleet) -> None:
    assert fleet.status("nobody").returncode == 2
    assert fleet.status("--watch", "0").returncode == 2
    (fleet.folder / "fleet" / "attic.yaml").write_text("rig: attic\nengines: none\n")
    assert fleet.status().returncode == 2
    assert fleet.execs == []


def test_a_shell_completes_rigs(fleet: Fleet) -> None:
    for words in (["status"], ["status", "--watch"], ["status", "--watch", "5"]):
        words = ["-i", str(fleet.folder / "fleet"), *words]
        names = [each.value for each in ShellComplete(main, {}, "herd", "_HERD_COMPLETE").get_completions(words, "d")]
        assert names == ["duo"]
