"""The screens of `herd up` as hosts of the tests have them: in a pipe, on a terminal, and where a host fails."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.ssh_hosts import HERD, Hosts, three_hosts

SECONDS = re.compile(r"\d+\.\d s")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """Three hosts with something to do."""
    return three_hosts(tmp_path)


def on_a_terminal(hosts: Hosts, columns: int, *words: str, **environment: str) -> str:
    """Run a command on a terminal so wide, and return what that was sent."""
    terminal, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    paths = {"PATH": f"{hosts.folder}:{os.environ['PATH']}", "TERM": "xterm"}
    with subprocess.Popen(
        [HERD, "-i", str(hosts.folder / "fleet"), *words],
        cwd=hosts.folder,
        env=os.environ | paths | environment,
        stdin=its,
        stdout=its,
        stderr=its,
    ) as process:
        os.close(its)
        shown = b""
        with suppress(OSError):  # as Linux has it once nobody has the other end open
            while part := os.read(terminal, 1 << 16):
                shown += part
        process.wait(timeout=60)
    os.close(terminal)
    return shown.decode()


def test_in_a_pipe(hosts: Hosts) -> None:
    ended = hosts.herd("up", "duo")
    assert ended.returncode == 0, ended.stderr
    assert SECONDS.sub("N s", ended.stdout).splitlines() == [
        "duo: 1 change",
        "  ~ programs started  started is not there",
        "duo ✓ N s",
        "next: herd verify duo",
    ]
    assert ended.stderr.splitlines() == ["--> Inspecting 1 host...", "duo: update programs started"]


def test_a_quiet_run_prints_the_result_and_errors_alone(hosts: Hosts) -> None:
    hosts.mark("six", "broken")
    ended = hosts.herd("up", "--limit", "duo,six", "-q", "--force")
    assert ended.returncode == 1
    assert SECONDS.sub("N s", ended.stdout) == "duo ✓ N s\n"
    assert ended.stderr.splitlines() == [
        "six: what was done could not be written down there: it broke",
        "six ✗ accounts and files: it broke",
    ]


def test_a_dry_run_is_a_plan_that_ends_well(hosts: Hosts) -> None:
    plan, dry = hosts.herd("plan", "duo"), hosts.herd("up", "duo", "--dry-run")
    assert (plan.returncode, dry.returncode) == (2, 0)
    assert (dry.stdout, dry.stderr) == (plan.stdout, plan.stderr)
    assert dry.stdout.startswith("duo: 1 change\n")
    assert {what for _, what in hosts.log} == {"looked"}
    hosts.mark("duo", "gone")
    assert hosts.herd("up", "duo", "--dry-run").returncode == 1


def test_what_failed_is_what_is_read_last(hosts: Hosts) -> None:
    hosts.mark("six", "broken")
    ended = hosts.herd("up", "duo", "six")
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[-1].startswith("duo ✓ ")
    assert "next: " not in ended.stdout
    assert ended.stderr.splitlines()[-1] == "six ✗ accounts and files: it broke"


def test_a_host_that_went_away_is_named_with_a_fix(hosts: Hosts) -> None:
    hosts.mark("six", "gone")
    ended = hosts.herd("up", "six")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.splitlines()[1:] == [
        "six ✗ nothing listens for SSH at 127.0.0.1 port 2303: connection refused",
        "  help: check that the host is up, that sshd runs there, and that the SSH port is right",
    ]


@pytest.mark.parametrize("columns", [80, 100])
def test_on_a_terminal_each_host_has_a_live_line_that_goes(hosts: Hosts, columns: int) -> None:
    shown = on_a_terminal(hosts, columns, "up")
    assert re.search(r"attic\x1b\[0m +\d+ s  update programs started \(\d s\)", shown)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1, "the cursor comes back"
    (after,) = re.findall(r"\x1b\[\?25h(.*)", shown, re.DOTALL)
    lines = [line.strip() for line in re.split(r"[\r\n]+", CONTROL.sub("", after)) if line.strip()]
    assert [line.split()[:2] for line in lines[:-1]] == [[name, "✓"] for name in ("attic", "duo", "six")]
    assert lines[-1] == "next: herd verify attic duo six"
    assert max(len(line) for line in re.split(r"[\r\n]+", CONTROL.sub("", shown))) <= columns


def test_without_colour_nothing_is_coloured(hosts: Hosts) -> None:
    shown = on_a_terminal(hosts, 80, "plan", NO_COLOR="1")
    assert "  ~ programs started  started is not there" in shown
    assert "\x1b[" not in shown
    assert "\x1b[33m~" in on_a_terminal(hosts, 80, "plan")
