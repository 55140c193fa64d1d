"""Processes of this host by /proc: what they started, where they listen, and what they computed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

ROOT = Path("/")
"""Above /proc and /sys. Tests have files of their own there."""
Address = IPv4Address | IPv6Address


def valid_pids(pids: Iterable[str]) -> tuple[str, ...]:
    """Return ids of processes, without those that are none: systemd reports 0 for a unit that does not run."""
    return tuple(pid for pid in pids if pid.isascii() and pid.isdecimal() and pid != "0")


def every_process(root: Path) -> set[str]:
    """Return the ids of all processes. Raise OSError."""
    return {each.name for each in (root / "proc").iterdir() if each.name.isdecimal()}


def family(pids: Iterable[str], root: Path) -> set[str]:
    """Return processes and all that they started. Raise OSError."""
    parents = {pid: words[1] for pid in every_process(root) if len(words := _stat(pid, root)) > 1}
    found = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _stat(pid: str, root: Path) -> list[str]:
    """Return the words of a process's `stat` after its name, which may contain blanks; nothing where it has ended."""
    with suppress(OSError):
        return (root / "proc" / pid / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return []


@dataclass(frozen=True)
class Load:
    """Ticks of the kernel: those of all processors since the boot, and those computed for other processes."""

    ticks: int = 0
    others: int = 0


def read_load(pids: Iterable[str], root: Path) -> Load:
    """Return what all processors did until now, where `pids` are a server's own."""
    try:
        with (root / "proc/stat").open(encoding="utf-8") as stat:
            user, nice, system, idle, waiting, *more = map(int, stat.readline().split()[1:9])
    except (OSError, ValueError):
        return Load()
    busy = user + nice + system + sum(more)
    return Load(busy + idle + waiting, busy - sum(_computed(pid, root) for pid in pids))


def _computed(pid: str, root: Path) -> int:
    words = _stat(pid, root)
    return int(words[11]) + int(words[12]) if len(words) > 12 else 0


def listening(pids: Iterable[str], root: Path) -> set[tuple[Address, int]]:
    """Return the TCP addresses and ports of processes and those that they started, on this host's own network."""
    own = _network("self", root)
    sockets = {each for pid in family(pids, root) if _network(pid, root) == own for each in _open_files(pid, root)}
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (root / "proc/self/net" / table).read_text(encoding="utf-8").splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                    address, _, port = words[1].partition(":")
                    found.add((_kernel_address(address), int(port, 16)))
    return found


def _open_files(pid: str, root: Path) -> list[str]:
    found = []
    with suppress(OSError):
        for each in (root / "proc" / pid / "fd").iterdir():
            with suppress(OSError):
                found.append(str(each.readlink()))
    return found


def _network(pid: str, root: Path) -> str:
    with suppress(OSError):
        return str((root / "proc" / pid / "ns/net").readlink())
    return ""


def _kernel_address(text: str) -> Address:
    """Return an IP address of /proc/net/tcp: words of 32 bits in this machine's order."""
    words = [int(text[n : n + 8], 16).to_bytes(4, sys.byteorder) for n in range(0, len(text), 8)]
    return ip_address(b"".join(words))
