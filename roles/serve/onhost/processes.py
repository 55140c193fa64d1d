"""Compare a server's process in /proc with the plan, and its files with those at its start."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise
from pathlib import Path

from llamaherd.layout import STATE
from llamaherd.onhost.files import as_text, resolve
from llamaherd.onhost.servers import ServingState
from llamaherd.onhost.system import System
from roles.serve.onhost.model import PlannedUnit

ROOT = Path("/")
"""Above /proc and /sys. Tests have files of their own there."""
Address = IPv4Address | IPv6Address

_MOST_PORT = 65535
_LISTENS = "0A"

_UNSPECIFIED = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where a server that listens on all addresses of a kind is reached from its own host."""

CONTAINER_RECORDS = STATE / "started"
"""Docker starts containers by itself, also after a boot: a record stays."""

UNIT_RECORDS = "/run/llamaherd/started"
_SECRET = str(CONTAINER_RECORDS / ".secret")
_MANIFEST = ".manifest"
_MOST_RECORD = 8 << 20
_MOST_WORDS, _MOST_WORD = 512, 1024
"""Arguments of a process that are returned at most, and characters of each."""


def valid_pids(pids: Iterable[str]) -> tuple[str, ...]:
    """Return ids of processes, without those that are none: systemd reports 0 for a unit that does not run."""
    return tuple(pid for pid in pids if pid.isascii() and pid.isdecimal() and pid != "0")


def every_process(root: Path) -> set[str]:
    """Return the ids of all processes. Raise OSError."""
    return {each.name for each in (root / "proc").iterdir() if each.name.isdecimal()}


def process_family(pids: Iterable[str], root: Path) -> set[str]:
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
class ListeningSocket:
    """A TCP socket of this host that listens; `address` is in the kernel's words."""

    address: str
    port: int
    inode: str


def listening_sockets(system: System) -> Iterator[ListeningSocket]:
    """Yield the TCP sockets that listen."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (system.read(table, _MOST_RECORD) or "").split("\n"):
            words = line.split()
            if len(words) > 9 and words[3] == _LISTENS:
                address, _, port = words[1].partition(":")
                yield ListeningSocket(address, int(port, 16), words[9])


def socket_owners(inodes: Iterable[str], system: System) -> dict[str, int]:
    """Return the first process that has each socket open."""
    found: dict[str, int] = {}
    links = {f"socket:[{inode}]": inode for inode in inodes}
    for pid in sorted(int(name) for name in system.names("/proc") if name.isdecimal()) if links else ():
        for handle in system.names(f"/proc/{pid}/fd"):
            if inode := links.get(system.target(f"/proc/{pid}/fd/{handle}")):
                found.setdefault(inode, pid)
    return found


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


def listening_addresses(pids: Iterable[str], root: Path) -> set[tuple[Address, int]]:
    """Return the TCP addresses and ports of processes and those that they started, on this host's own network."""
    own = _network("self", root)
    sockets = {
        each for pid in process_family(pids, root) if _network(pid, root) == own for each in _open_files(pid, root)
    }
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (root / "proc/self/net" / table).read_text(encoding="utf-8").splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS and f"socket:[{words[9]}]" in sockets:
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


def valid_pid(text: str) -> str:
    """Return the id of a process; empty where there is none, which systemd and Docker report as 0."""
    return text if text.isascii() and text.isdecimal() and int(text) else ""


def process_arguments(pid: str, system: System) -> list[str]:
    """Return the arguments of a process; nothing where it has ended."""
    return (system.read(f"/proc/{pid}/cmdline") or "").split("\0")


def bounded_arguments(pid: str, system: System) -> tuple[str, ...]:
    """Return the program and the arguments of a process; nothing for one with more than a person would compare."""
    words = process_arguments(pid, system)[:-1]
    return tuple(as_text(word)[:_MOST_WORD] for word in words) if len(words) <= _MOST_WORDS else ()


def last_option(words: Sequence[str], name: str) -> str:
    """Return what a process was given as `--name`: the last one counts."""
    values = [value for word, value in pairwise(words) if word == f"--{name}"]
    return values[-1] if values else ""


def port_number(text: str) -> int | None:
    """Return the number of a port; None where a text is none."""
    number = int(text) if re.fullmatch("[0-9]{1,5}", text) else 0
    return number if 0 < number <= _MOST_PORT else None


def process_environment(pid: str, system: System) -> dict[str, str] | None:
    """Return the variables that a process was started with; None where it has ended."""
    text = system.read(f"/proc/{pid}/environ")
    if text is None:
        return None
    return {name: value for name, found, value in (each.partition("=") for each in text.split("\0")) if found}


def health_url(address: str, port: int, path: str) -> str:
    """Return the URL of a server's health, where it listens."""
    host = _UNSPECIFIED.get(address, address)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


def other_variables(pid: str, declared: Sequence[str], strange: str, system: System) -> str:
    """Return names of variables that a process has otherwise than declared, or should not have at all."""
    has = process_environment(pid, system)
    if has is None:
        return ""
    wanted = {name: value for name, _, value in (each.partition("=") for each in declared)}
    names = {name for name, value in wanted.items() if has.get(name) != value}
    names |= {name for name in has.keys() - wanted.keys() if strange and re.search(strange, name)}
    return " ".join(sorted(names))


def process_state(pid: str, unit: PlannedUnit, users: Mapping[str, str], system: System) -> ServingState:
    """Return how the process of a unit differs from the planned one; nothing where it has ended.

    `users` are numbers of accounts, by name.
    """
    text = system.read(f"/proc/{pid}/status")
    if not text:
        return ServingState()
    status = dict(line.split(":\t", 1) for line in text.split("\n") if ":\t" in line)
    number = next(iter(status.get("Uid", "").split()), "")
    own = next(iter(status.get("Gid", "").split()), "")
    return ServingState(
        argv=system.digest([f"/proc/{pid}/cmdline"]),
        arguments=bounded_arguments(pid, system),
        replaced="" if system.same_file(f"/proc/{pid}/exe", unit.program) else unit.program,
        # What it was given when it started stays its own.
        user=number if users.get(unit.user, number) != number else "",
        groups=" ".join(each for each in status.get("Groups", "").split() if each != own),
        variables=other_variables(pid, unit.variables, unit.strange_variables, system),
    )


def changed_since(
    record: str, run: str, files: Sequence[str], inputs: Sequence[str], system: System
) -> tuple[str, ...]:
    """Return what no longer is as a record contains it: paths, or the run. Where there is no record, return its path.

    `run` is systemd's id of the start or Docker's of the container, `files` are the unit and its drop-ins, and `inputs`
    the key's file or `-`, and the folders of models.
    """
    found = resolve(record, system)
    text = system.read(record, _MOST_RECORD) if found and found.kind == "file" else None
    if text is None:
        return (record,)
    now = {*_started_with(run, files, inputs, system)}
    return tuple(line.rpartition("\t")[2] for line in text.split("\n") if line and line not in now)


def _started_with(run: str, files: Sequence[str], inputs: Sequence[str], system: System) -> Iterator[str]:
    yield f"run\t{run}"
    for path in files:
        found = resolve(path, system)
        if found and found.kind == "file":
            yield f"file\t{system.digest([path])}\t{path}"
    key, *folders = inputs
    secret = system.entry(_SECRET)
    # With a secret of this host: who reads the hash cannot try keys.
    if key != "-" and secret and secret.size:
        yield f"key\t{system.digest([_SECRET, key])}\t{key}"
    for folder in folders:
        for line in filter(None, (system.read(f"{folder}/{_MANIFEST}", _MOST_RECORD) or "").split("\n")):
            fields = [*line.split("\t"), "", "", "", ""]
            yield f"model\t{fields[2]}\t{folder}/{fields[3]}"
        # A file that came again is another one, which only a new start reads.
        for path, number in _inodes(folder, system):
            yield f"inode\t{number}\t{path}"


def _inodes(folder: str, system: System) -> Iterator[tuple[str, int]]:
    for name in system.names(folder):
        path = f"{folder}/{name}"
        found = system.entry(path)
        if found and found.kind == "folder":
            yield from _inodes(path, system)
        elif found and found.kind == "file" and name != _MANIFEST:
            yield as_text(path), found.inode
