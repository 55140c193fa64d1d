"""A run of pyinfra that a signal ends: it prints a sentence and ends at once, while a remote step still runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from llamaherd.deploy.run import INTERRUPTED
from llamaherd.host.signals import END_SIGNALS
from tests.support.rigs import ROOT, cpu_rig

PROGRAM = """
import signal, sys, time
from pathlib import Path
from llamaherd.deploy.run import pyinfra_hosts
if "ignored" in sys.argv:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
print(len(pyinfra_hosts(Path(sys.argv[1]))), flush=True)
sys.stdin.read()
"""


def begun(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start a program that has read the hosts, and waits for the end of its stdin."""
    (folder / "box.yaml").write_text(yaml.safe_dump(cpu_rig() | {"engines": {}, "models": {}, "instances": {}}))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    return process


@pytest.mark.parametrize("ending", END_SIGNALS)
def test_a_signal_ends_a_run_with_a_sentence(tmp_path: Path, ending: signal.Signals) -> None:
    with begun(tmp_path) as process:
        process.send_signal(ending)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + ending
    assert errors == INTERRUPTED
    assert max(map(len, errors.splitlines())) < 80


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    with begun(tmp_path, "ignored") as process:
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
