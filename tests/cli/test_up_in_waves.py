"""`herd up --canary` and `--waves`: an `ssh` of the test's own is the way to three hosts; pyinfra and all else is real.

Each wave is a run of pyinfra of its own, in one process: what one leaves behind, the next would show.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from llamaherd.cli.herd import main
from llamaherd.host.protocol import BEGIN, END
from tests.support.ours import plans
from tests.support.rigs import converged

HERD = str(Path(sys.executable).parent / "herd")
PROGRAM = "/opt/llamaherd/libexec/started"
RIGS = {"attic": 2301, "duo": 2302, "six": 2303}
SSH = f"""#!{sys.executable}
import os, pathlib, sys

there = pathlib.Path(__file__).parent / sys.argv[sys.argv.index("-p") + 1]
sys.stdin.readline()
print("llamaherd: a shell is there", flush=True)
script = ""
for line in sys.stdin:
    script += line
    if line.strip() == "echo 'llamaherd: it is yours'":
        print("llamaherd: it is yours", flush=True)  # and then until nobody is at the other end
if script and "llamaherd: it is yours" not in script:
    asks = {BEGIN!r} in script
    with open(there.parent / "log", "a") as log:
        print(there.name, "looked" if asks else "changed", file=log)
    if asks:
        world = there / ("after" if (there / "done").exists() else "before")
        print({BEGIN!r}, world.read_text(), {END!r}, sep="\\n")
    elif (there / "broken").exists():
        sys.exit("it broke")
    elif not (there / "stuck").exists():
        (there / "done").touch()
"""


@dataclass(frozen=True)
class Hosts:
    """Three hosts that lack a program of ours, and what becomes of them."""

    folder: Path

    def mark(self, name: str, what: str) -> None:
        """Have a host be `done` already, `broken`, or `stuck` as it is though all that is run there ends well."""
        (self.folder / str(RIGS[name]) / what).touch()

    def up(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`herd up`, to its end."""
        return subprocess.run(
            [HERD, "-i", str(self.folder / "fleet"), "up", *words],
            env=os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def log(self) -> list[tuple[str, str]]:
        """Which host was looked at or changed, in that order."""
        names = {str(port): name for name, port in RIGS.items()}
        log = self.folder / "log"
        words = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [(names[port], what) for port, what in words]

    @property
    def turns(self) -> list[str]:
        """The hosts in the order in which they were changed."""
        return [name for name, _ in groupby(name for name, what in self.log if what == "changed")]


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    (tmp_path / "fleet").mkdir()
    for name, port in RIGS.items():
        rig = {"rig": name, "connect": {"host": "127.0.0.1", "port": port}, "engines": {}, "models": {}}
        rig |= {"host": {"os": "debian-13", "cpu": {"cores": 2}, "ram": "4GB"}, "instances": {}}
        (tmp_path / "fleet" / f"{name}.yaml").write_text(json.dumps(rig))
    for name, (_, plan) in plans(tmp_path / "fleet").items():
        after = converged(plan, {})
        folder = tmp_path / str(RIGS[name])
        folder.mkdir()
        (folder / "after").write_text("\n".join(after))
        (folder / "before").write_text("\n".join(line for line in after if PROGRAM not in line))
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    return Hosts(tmp_path)


def test_a_canary_and_then_one_at_a_time(hosts: Hosts) -> None:
    ended = hosts.up("--canary", "duo", "--waves", "1")
    assert ended.returncode == 0, ended.stderr
    assert hosts.turns == ["duo", "attic", "six"]
    assert [line for line in ended.stderr.splitlines() if "Wave" in line] == [
        "--> Wave 1 of 3, the canary: duo",
        "--> Wave 2 of 3: attic",
        "--> Wave 3 of 3: six",
    ]
    for name in RIGS:
        assert ended.stderr.count(f"[{name}] Connected") == 1, "what one run leaves behind, the next says again"
        assert f"{name}: 1 change\n" in ended.stdout
    assert ended.stderr.count("Grand total") == 3
    # All are looked at before; then nobody before his turn.
    assert sorted(hosts.log[:3]) == [(name, "looked") for name in RIGS]
    assert [name for name, _ in groupby(name for name, what in hosts.log[6:])] == ["duo", "attic", "six"]


def test_all_at_once_without_either(hosts: Hosts) -> None:
    ended = hosts.up()
    assert ended.returncode == 0, ended.stderr
    assert "Wave" not in ended.stderr
    assert "again" not in ended.stderr
    assert ended.stderr.count("Grand total") == 1
    assert set(hosts.turns) == set(RIGS)


def test_the_others_are_left_alone_where_one_fails(hosts: Hosts) -> None:
    hosts.mark("six", "broken")
    ended = hosts.up("--canary", "six", "--waves", "2")
    assert ended.returncode == 1
    assert "left alone, as six failed: attic, duo\n" in ended.stderr
    assert hosts.turns == ["six"]


def test_the_last_wave_leaves_nobody_alone(hosts: Hosts) -> None:
    hosts.mark("six", "broken")
    ended = hosts.up("--waves", "2")
    assert ended.returncode == 1
    assert "left alone" not in ended.stderr
    assert "not every host is as planned" in ended.stderr
    assert set(hosts.turns) == set(RIGS)


def test_one_that_did_not_fail_must_be_as_planned(hosts: Hosts) -> None:
    hosts.mark("attic", "stuck")
    ended = hosts.up("--waves", "2")
    assert ended.returncode == 1
    assert "left alone, as attic is not as planned: six\n" in ended.stderr
    assert ended.stdout.count(f"update programs {PROGRAM}: {PROGRAM} is not there") == len(RIGS) + 1
    assert set(hosts.turns) == {"attic", "duo"}


def test_a_canary_with_nothing_to_do(hosts: Hosts) -> None:
    hosts.mark("duo", "done")
    ended = hosts.up("--canary", "duo")
    assert ended.returncode == 0, ended.stderr
    assert "duo: as planned, nothing to do\n" in ended.stdout
    assert "duo is the canary, and as planned: the others follow\n" in ended.stderr
    assert set(hosts.turns) == {"attic", "six"}


def test_named_rigs_come_as_they_are_named(hosts: Hosts) -> None:
    ended = hosts.up("six", "duo", "--waves", "1")
    assert ended.returncode == 0, ended.stderr
    assert hosts.turns == ["six", "duo"]


def test_all_tasks_are_gone_through_in_waves_too(hosts: Hosts) -> None:
    """With -v nobody is looked at before."""
    ended = hosts.up("-v", "duo", "six", "--canary", "six")
    assert ended.returncode == 0, ended.stderr
    assert hosts.turns == ["six", "duo"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--canary", "dua"), "--canary: there is no rig `dua`\n  help: did you mean `duo`?\n"),
        (("-v", "--canary", "dua"), "--canary: there is no rig `dua`\n  help: did you mean `duo`?\n"),
        (("six", "attic", "--canary", "sixx"), "none of the rigs that are named; did you mean `six`?\n"),
        (("six", "attic", "--canary", "duo"), "none of the rigs that are named; known here: attic, six\n"),
        (("--waves", "0"), "--waves"),
        (("--waves", "few"), "--waves"),
    ],
)
def test_what_makes_no_sense_touches_no_host(hosts: Hosts, words: tuple[str, ...], said: str) -> None:
    ended = hosts.up(*words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert hosts.log == []


def test_a_shell_completes_the_canary(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERD_INVENTORY", str(hosts.folder / "fleet"))
    found = ShellComplete(main, {}, "herd", "_HERD_COMPLETE").get_completions(["up", "--canary"], "d")
    assert [each.value for each in found] == ["duo"]
