"""The variables that a server is told its GPUs by, and those that are declared."""

from __future__ import annotations

from llamaherd.engines import DIALECTS
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.plan.devices import device_ids, visible_devices
from llamaherd.plan.engines import BuildPlan


def environment(rig: Rig, declared: Instance, build: BuildPlan | None) -> dict[str, str]:
    """GPUs by name and order; none for a server on the CPU whose engine could use one."""
    assigned: dict[str, str] = {}
    if declared.on:
        assigned["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        ids = device_ids(rig, declared)
        if ids:
            assigned["CUDA_VISIBLE_DEVICES"] = visible_devices(ids, given=_given(rig, declared))
        if rig.host.wsl:
            assigned["LD_LIBRARY_PATH"] = "/usr/lib/wsl/lib"
    elif build and build.cuda:
        assigned["CUDA_VISIBLE_DEVICES"] = ""
    if home := DIALECTS[rig.engines[declared.engine].kind].home:
        assigned["HOME"] = home
    return assigned | declared.environment


def _given(rig: Rig, declared: Instance) -> bool:
    """Whether it is given its own GPUs and no others: a container is, but under WSL."""
    return declared.backend == "compose" and rig.host.wsl is None
