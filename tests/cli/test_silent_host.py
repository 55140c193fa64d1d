"""A host that prints half of a response, and then nothing or a letter a second, costs the others 35 s at most."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.ssh_hosts import HERD, Hosts, three_hosts

pytestmark = pytest.mark.rare

STARTS = 20
"""Seconds that a command takes beside all waiting, on a machine that is busy."""


def lines_of(hosts: Hosts, *words: str) -> list[tuple[float, str]]:
    """The lines of a command, each with the second that it came in, and the second in which it ended."""
    began = time.monotonic()
    process = subprocess.Popen(
        [HERD, "-i", str(hosts.folder / "fleet"), *words],
        cwd=hosts.folder,
        env=os.environ | {"PATH": f"{hosts.folder}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout
    lines = [(time.monotonic() - began, line) for line in process.stdout]
    process.wait()
    return [*lines, (time.monotonic() - began, f"exit code {process.returncode}")]


@pytest.mark.parametrize("drips", [False, True])
def test_it_is_waited_for_no_longer_and_the_others_are_shown_before(tmp_path: Path, drips: bool) -> None:
    hosts = three_hosts(tmp_path)
    for mark in ("half", *(["drips"] if drips else [])):
        hosts.mark("attic", mark)
    commands = (["diff"], ["preflight"], ["up", "--yes"])
    with ThreadPoolExecutor() as pool:
        every = pool.map(lambda words: lines_of(hosts, *words), commands)
        found = dict(zip(map(" ".join, commands), every, strict=True))
    for command, lines in found.items():
        text = "".join(line for _, line in lines)
        assert "127.0.0.1 port 2301 did not finish within 33 s" in text, f"{command}: {text}"
        assert lines[-1][1] == "exit code 1"
        assert lines[-1][0] < 35 + STARTS, f"{command}: {text}"
    for command, other in (("diff", "duo: "), ("preflight", "six")):
        assert next(at for at, line in found[command] if other in line) < 5 + STARTS, found[command]
    # What could be done was done.
    assert set(hosts.turns) == {"duo", "six"}
