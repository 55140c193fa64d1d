"""Find programs that listen on a host, by the kernel's tables of sockets and by the open files of processes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from llamaherd.onhost.system import System
from roles.serve.onhost.verified import Listening

_MOST = 100
"""Programs that are returned."""
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"
_LOOPBACK = re.compile("[0-9A-F]*7F|0+1000000")
"""127.0.0.0/8, also in an address of IPv6, and ::1: in words of 32 bits, as x86 and ARM write them."""
_GROUP = re.compile(r"^(?:0:|1:name=systemd):.*/([^/\n]+)$", re.MULTILINE)


@dataclass(frozen=True)
class _Socket:
    address: str
    port: int
    inode: str


def find_listening(system: System) -> tuple[Listening, ...]:
    """Return each program that listens for other hosts, by port."""
    sockets = [each for each in _sockets(system) if not _LOOPBACK.fullmatch(each.address)]
    pids = _owners({each.inode for each in sockets}, system)
    held = sorted({(each.port, pids.get(each.inode, 0)) for each in sockets})
    return tuple(_listening(port, pid, system) for port, pid in held[:_MOST])


def find_holder(port: int, system: System) -> str:
    """Return the process that listens at a port, as `python3 (process 7)`; empty if none is found."""
    inodes = {each.inode for each in _sockets(system) if each.port == port}
    pid = min(_owners(inodes, system).values(), default=0)
    return f"{_program(pid, system)} (process {pid})" if pid else ""


def _sockets(system: System) -> Iterator[_Socket]:
    for table in _TABLES:
        for line in (system.read(table) or "").splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTENS:
                address, _, port = words[1].partition(":")
                yield _Socket(address, int(port, 16), words[9])


def _owners(inodes: Collection[str], system: System) -> dict[str, int]:
    """Return the first process that has each socket open."""
    found: dict[str, int] = {}
    links = {f"socket:[{inode}]": inode for inode in inodes}
    for pid in sorted(int(name) for name in system.names("/proc") if name.isdecimal()) if links else ():
        for handle in system.names(f"/proc/{pid}/fd"):
            if inode := links.get(system.target(f"/proc/{pid}/fd/{handle}")):
                found.setdefault(inode, pid)
    return found


def _program(pid: int, system: System) -> str:
    return (system.read(f"/proc/{pid}/comm") or "").strip()


def _listening(port: int, pid: int, system: System) -> Listening:
    group = _GROUP.search(system.read(f"/proc/{pid}/cgroup") or "") if pid else None
    return Listening(port, pid, _program(pid, system) if pid else "", group[1] if group else "")
