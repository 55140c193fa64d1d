"""Read what each server process takes: GPU memory by GPU, RAM and processor time, besides the state of the host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from llamaherd.onhost.hardware import parse_number
from llamaherd.onhost.status import PROGRAM_SECONDS, HostStatus, StatusInput, inspect_processes
from llamaherd.onhost.system import System
from llamaherd.onhost.verbs import Verb

_APPS = ("--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv,noheader,nounits")
_MOST_APPS = 256
_MOST_NAME = 60
_RSS = re.compile(r"^VmRSS:\s+([0-9]{1,15}) kB$", re.MULTILINE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class GpuUse:
    """A process on a GPU: MiB, None if the driver does not report it. `service` is empty for other programs."""

    uuid: str
    pid: int
    used: float | None
    name: str
    service: str = ""


@dataclass(frozen=True)
class ProcessUse:
    """The first process of a server: bytes of RAM, and seconds of processor time since its start."""

    pid: int
    memory: int | None = None
    computed: float = 0.0


@dataclass(frozen=True)
class TopStatus:
    """The state of a host at a time of its own clock, its server processes by service, and the processes on GPUs."""

    clock: float
    host: HostStatus
    processes: Mapping[str, ProcessUse] = field(default_factory=dict)
    apps: tuple[GpuUse, ...] = ()


def inspect(given: StatusInput, system: System) -> TopStatus:
    """Return the state of the host, as far as it is known within some seconds. Nothing is changed."""
    apps: list[GpuUse] = []
    more = [lambda: apps.extend(_apps(system))] if given.gpus else []
    host, pids = inspect_processes(given, system, *more)
    groups = {name: _group(pid, system) for name, pid in pids.items()}
    return TopStatus(
        clock=system.now(),
        host=host,
        processes={name: _process(pid, system) for name, pid in pids.items()},
        apps=tuple(_of_service(each, pids, groups, system) for each in apps),
    )


def _apps(system: System) -> Iterator[GpuUse]:
    """Yield the processes on GPUs, as the driver reports them."""
    ended = system.run(["nvidia-smi", *_APPS], seconds=PROGRAM_SECONDS)
    for line in ended.out.splitlines()[:_MOST_APPS]:
        match [_CONTROL.sub(" ", each) for each in line.split(", ", 3)]:
            case [uuid, pid, used, name] if uuid.startswith("GPU-") and pid.isascii() and pid.isdecimal():
                yield GpuUse(uuid, int(pid[:10]), parse_number(used), name.rpartition("/")[2][:_MOST_NAME])


def _of_service(app: GpuUse, pids: Mapping[str, int], groups: Mapping[str, str], system: System) -> GpuUse:
    """Return a process with the server that it belongs to, by its number or its control group."""
    group = _group(app.pid, system)
    service = next((name for name in pids if app.pid == pids[name] or (group and group == groups[name])), "")
    return GpuUse(app.uuid, app.pid, app.used, app.name, service)


def _group(pid: int, system: System) -> str:
    """Return the control groups of a process; empty in the root of all groups."""
    text = (system.read(f"/proc/{pid}/cgroup") or "").strip()
    return "" if all(line.endswith(":/") for line in text.splitlines()) else text


def _process(pid: int, system: System) -> ProcessUse:
    found = _RSS.search(system.read(f"/proc/{pid}/status") or "")
    return ProcessUse(pid, int(found[1]) << 10 if found else None, system.computed(pid))


VERBS = {"inspect": Verb(StatusInput, inspect)}
