"""The processes that hold ports of planned servers, by the kernel's own lists: ss may not be installed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from llamaherd.layout import UNITS
from llamaherd.onhost.clients import query_docker
from llamaherd.onhost.serving import Holder
from llamaherd.onhost.system import System, UnknownStateError
from roles.serve.onhost.inspected import HeldPort
from roles.serve.onhost.process_state import environment

_LISTENS = "0A"
_UNIT = re.compile(r".*/(llama-[^/]*)\.service")
_CONTAINER = re.compile("[0-9a-f]{64}")
_PROXY = "docker-proxy"


def inspect_ports(ports: Iterable[int], ours: Collection[int], system: System, *, docker: bool) -> list[HeldPort]:
    """Return who holds ports, without those that servers of ours are known to have. `docker`: whether it responds.

    Raise UnknownStateError where that may be a container of ours.
    """
    listening = _listening(set(ports) - set(ours), system)
    pids = _pids({inode for inodes in listening.values() for inode in inodes}, system)
    held = {(port, pids[inode]) for port, inodes in listening.items() for inode in inodes if inode in pids}
    return [_held(port, pid, system, docker=docker) for port, pid in sorted(held)]


def _listening(ports: Collection[int], system: System) -> dict[int, list[str]]:
    """Return the inodes of sockets that listen at ports."""
    found: dict[int, list[str]] = {}
    for table in ("tcp", "tcp6"):
        for line in (system.read(f"/proc/net/{table}") or "").split("\n"):
            words = line.split()
            if len(words) > 9 and words[3] == _LISTENS:
                port = int(words[1].rpartition(":")[2], 16)
                if port in ports:
                    found.setdefault(port, []).append(words[9])
    return found


def _pids(inodes: Collection[str], system: System) -> dict[str, int]:
    """Return the first process that has each socket open."""
    if not inodes:
        return {}
    found: dict[str, int] = {}
    sockets = {f"socket:[{each}]": each for each in inodes}
    for pid in sorted(int(each) for each in system.names("/proc") if each.isdecimal()):
        for handle in system.names(f"/proc/{pid}/fd"):
            inode = sockets.get(system.target(f"/proc/{pid}/fd/{handle}"))
            if inode:
                found.setdefault(inode, pid)
    return found


def _held(port: int, pid: int, system: System, *, docker: bool) -> HeldPort:
    groups = system.read(f"/proc/{pid}/cgroup") or ""
    program = (system.read(f"/proc/{pid}/comm") or "").strip("\n").replace("\t", "")
    unit = _own_unit(groups, pid, system)
    if unit:
        return HeldPort(port, unit, Holder(pid, program, ""))
    inside = _CONTAINER.search(groups)
    container = ""
    if docker:
        container = _container(port, inside[0] if inside else "", system)
    elif program.startswith(_PROXY) or (inside and re.search(f"docker[-/]{inside[0]}", groups)):
        # It may be one of ours, which only Docker reports.
        raise UnknownStateError("Docker")
    return HeldPort(port, "", Holder(pid, program, container))


def _own_unit(groups: str, pid: int, system: System) -> str:
    """Return the unit of ours whose control group a process is in."""
    found = _UNIT.search(groups)
    if not found:
        return ""
    text = system.read(f"{UNITS}/{found[1]}.service") or ""
    written = re.search(r"^# Written by llamaherd", text, re.MULTILINE)
    return found[1] if written or "LLAMAHERD_SPEC" in (environment(str(pid), system) or {}) else ""


def _container(port: int, inside: str, system: System) -> str:
    """Return the name of the container that a port is of: by the process in it, or as one that publishes it."""
    if inside:
        ended = query_docker(system, "inspect", "--type", "container", "--format", "{{.Name}}", inside)
    else:
        ended = query_docker(system, "ps", "--filter", f"publish={port}", "--format", "{{.Names}}")
    return ended.out.partition("\n")[0].lstrip("/")
