"""End programs that `Host` has started and that take too long, and read the processor time of servers."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from threading import Thread

MOST_OUTPUT = 1 << 20
"""Bytes of a program's output that are kept: its last ones."""
PIPE_SECONDS = 5


def ended_by_force(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Kill a program and all programs that it has started, and return what they have written."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        out, err = process.communicate(timeout=PIPE_SECONDS)
    except subprocess.TimeoutExpired as late:
        # A program in a session of its own may still hold the pipes, or a program may hang in a driver, where no signal
        # ends it. Such a program is left behind.
        out, err = late.stdout or b"", late.stderr or b""
        Thread(target=process.wait, daemon=True).start()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()
    return text_of(out), text_of(err)


def text_of(data: bytes | None) -> str:
    """Return the last output of a program as text."""
    return (data or b"")[-MOST_OUTPUT:].decode(errors="replace")


def processor_seconds(pid: int) -> float:
    """Return the seconds of processor time of all processes in the control group of a process."""
    used = 0
    with suppress(OSError):
        group = Path("/proc", str(pid), "cgroup").read_text(encoding="utf-8")
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError, IndexError):
                if (process / "cgroup").read_text(encoding="utf-8") == group:
                    words = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                    used += int(words[11]) + int(words[12])
    return used / os.sysconf("SC_CLK_TCK")
