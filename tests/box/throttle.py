"""A server that computes for a part of the time alone: as a GPU does that is too hot, or an engine that is slower."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from tests.box.bench import Bench

_THROTTLED = """
import os, signal, subprocess, sys, time
from pathlib import Path

service, arguments, on, off = *sys.argv[1:3], *map(float, sys.argv[3:])

def main_pid():
    while True:
        show = ["systemctl", "show", "-P", "MainPID", service]
        pid = int(subprocess.run(show, capture_output=True).stdout)
        if pid and arguments.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\\0", b" "):
            return pid
        time.sleep(0.02)

pid = 0
while True:
    try:
        if not pid:
            pid = main_pid()
        os.kill(pid, signal.SIGCONT)
        time.sleep(on)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(off)
    except OSError:
        pid = 0
"""
"""One process that sleeps nearly all the time: it is on time on a busy machine, too."""


@contextmanager
def throttled(bench: Bench, service: str, arguments: str = "", *, on: float, off: float) -> Iterator[None]:
    """Let a service compute for `on` seconds and stand still for `off`, in turns, if it has these arguments."""
    program = ["python3", "-I", "/run/throttle.py", service, arguments, str(on), str(off)]
    bench.sh(f"cat >/run/throttle.py <<'END'{_THROTTLED}END\nsystemd-run -q --unit=throttle {shlex.join(program)}")
    try:
        yield
    finally:
        bench.sh(f"systemctl stop throttle; systemctl kill -s CONT {service}", check=False)
