"""Find the GPUs of processes, by the driver's list and by the devices that processes hold open."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from llamaherd.onhost.system import System
from roles.serve.onhost.verified import GpuProcesses, GpusFound

_SECONDS = 30
"""Limit of nvidia-smi: a driver may hang."""
_DRIVER = "/proc/driver/nvidia/gpus"
_MINOR = re.compile(r"^Device Minor:\s*([0-9]{1,9})$", re.MULTILINE)
_DEVICE = re.compile("/dev/(?:nvidia|dxg).*")
_MOST_DEVICES = 1000


def find_gpus(system: System) -> GpusFound:
    """Return what the driver reports of GPUs and of the processes that use them."""
    return GpusFound(
        listed=_smi(("--query-gpu=pci.bus_id,uuid", "--format=csv,noheader"), system),
        processes=_smi(("--query-compute-apps=pid,gpu_uuid,used_memory", "--format=csv,noheader,nounits"), system),
        minors=dict(_minors(system)),
        namespace=system.target("/proc/self/ns/pid"),
        kernel=(system.read("/proc/sys/kernel/osrelease") or "").strip(),
    )


def find_gpu_processes(pid: str, system: System, *, swaps: bool, container: bool) -> GpuProcesses:
    """Return the processes of a server, by its first one, and the devices of GPUs that they hold open.

    The processes of a container are those of its PID namespace. A server that swaps runs each model in a child.
    """
    pids: Sequence[str] = [pid] if pid else []
    if pid and container:
        pids = _in_namespace_of(pid, system) or pids
    elif pid and swaps:
        pids = [pid, *_children(pid, system)]
    there = [each for each in pids if system.entry(f"/proc/{each}")]
    return GpuProcesses(tuple(there), tuple(sorted({*_devices(there, system)})[:_MOST_DEVICES]))


def _smi(words: Iterable[str], system: System) -> str:
    ended = system.run(["nvidia-smi", *words], seconds=_SECONDS)
    return (ended.out + ended.err).strip("\n")


def _minors(system: System) -> Iterator[tuple[str, int]]:
    for address in system.names(_DRIVER):
        found = _MINOR.search(system.read(f"{_DRIVER}/{address}/information") or "")
        if found:
            yield address.lower(), int(found[1])


def _in_namespace_of(pid: str, system: System) -> list[str]:
    space = system.target(f"/proc/{pid}/ns/pid")
    every = [name for name in system.names("/proc") if name.isdecimal()] if space else []
    return [each for each in every if system.target(f"/proc/{each}/ns/pid") == space]


def _children(pid: str, system: System) -> list[str]:
    tasks = system.names(f"/proc/{pid}/task")
    return [each for task in tasks for each in (system.read(f"/proc/{pid}/task/{task}/children") or "").split()]


def _devices(pids: Iterable[str], system: System) -> Iterator[str]:
    for pid in pids:
        for handle in system.names(f"/proc/{pid}/fd"):
            target = system.target(f"/proc/{pid}/fd/{handle}")
            if _DEVICE.fullmatch(target):
                yield target
