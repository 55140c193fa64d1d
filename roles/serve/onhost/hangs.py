"""Servers that hang: stopped, or without any response while they do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from llamaherd.onhost.system import System
from roles.serve.onhost.inspected import Probed
from roles.serve.onhost.probes import Probes

STOPPED = "its process is stopped (SIGSTOP)"
SILENT = "it answers nobody, and does nothing"
_FIRST_SECONDS = 1
_MORE_SECONDS = (4, 2)
_PAUSE = 0.5
_IDLE_TICKS = 2
"""Processor time that a process may take while it does nothing."""
_AT_ONCE = 32


def find_hangs(servers: Sequence[Probed], system: System, probes: Probes) -> dict[str, str]:
    """Return why servers hang, by service, for those that do. All are probed side by side."""
    if not servers:
        return {}
    with ThreadPoolExecutor(min(len(servers), _AT_ONCE)) as pool:
        reasons = pool.map(lambda each: hangs(each, system, probes), servers)
        return {each.service: why for each, why in zip(servers, reasons, strict=True) if why}


def hangs(server: Probed, system: System, probes: Probes) -> str:
    """Return why a server surely hangs; empty where it does not. A server that computes may respond late."""
    if _stat(f"/proc/{server.pid}", system)[:1] == ["T"]:
        return STOPPED
    if probes.responds(server.url, _FIRST_SECONDS):
        return ""
    before = _progress(server.pid, system)
    for seconds in _MORE_SECONDS:
        if probes.responds(server.url, seconds):
            return ""
        system.sleep(_PAUSE)
    after = _progress(server.pid, system)
    if before is None or after is None or _waits(server.pid, system):
        return ""
    return SILENT if after[0] == before[0] and after[1] - before[1] <= _IDLE_TICKS else ""


def _stat(folder: str, system: System) -> list[str]:
    """Return the words of a process's or thread's `stat` after its name, which may contain blanks."""
    return (system.read(f"{folder}/stat") or "").rpartition(") ")[2].split()


def _progress(pid: str, system: System) -> tuple[int, int] | None:
    """Return how much a process has done: pages read from disk, and ticks of processors. None where it has ended."""
    words = _stat(f"/proc/{pid}", system)
    return (int(words[9]), int(words[11]) + int(words[12])) if len(words) > 12 else None


def _waits(pid: str, system: System) -> bool:
    """Return whether a thread waits for a processor or for a disk, which others may have."""
    threads = (_stat(f"/proc/{pid}/task/{each}", system) for each in system.names(f"/proc/{pid}/task"))
    return any(words[:1] in (["R"], ["D"]) for words in threads)
