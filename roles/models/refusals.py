"""Whether what is planned has room, and whether models can lie where they are to: found before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.converge.models import missing_files
from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.text.units import show_size

_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "drvfs", "virtiofs", "ceph", "afs"})
"""Filesystems, by findmnt's names, where owners, locks and renames are another machine's."""


TOOLKIT_BYTES = 9 * 10**9
"""What a CUDA toolkit takes while it is installed: 5.3 GB of CUDA 13.0 were measured without Nsight Systems, and its
packages are fetched first."""


@dataclass(frozen=True)
class Refusal:
    """Why nothing may be done to this host: a sentence, and a way out. `about` is the row of preflight's table."""

    message: str
    help: str
    about: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.message}\n  help: {self.help}"


class Need(NamedTuple):
    """A folder, or its nearest parent that is there: bytes free in it, and bytes that are yet to go there."""

    folder: str
    free: int
    need: int


def disk(folder: str) -> str:
    """What preflight's table calls it."""
    return f"disk {folder}"


def disk_refusals(plan: Plan, seen: HostState, local_sizes: Mapping[str, int]) -> list[Refusal]:
    """What the disks lack. `local_sizes`: bytes of the controller's files, by sha256."""
    return [*_store_unfit(plan, seen), *_too_small(plan, seen, local_sizes)]


def _store_unfit(plan: Plan, seen: HostState) -> list[Refusal]:
    """A store that holds all that is planned may well be read-only."""
    if seen.store is None or not any(missing_files(model, seen) for model in plan.models):
        return []
    if seen.store.kind in _NETWORK:
        return [
            Refusal(
                f"{plan.store.path} is on another machine ({seen.store.kind}): servers map models into memory",
                "keep them on a disk of this host (`store: path:`), and name that folder in `store: from:`",
                disk(seen.store.folder),
            )
        ]
    if not seen.store.writable:
        return [
            Refusal(
                f"{plan.store.path} is on a filesystem that is mounted read-only",
                f"see why with `findmnt -T {seen.store.folder}` and `dmesg`; `mount -o remount,rw` if it was meant so",
                disk(seen.store.folder),
            )
        ]
    return []


def _too_small(plan: Plan, seen: HostState, local_sizes: Mapping[str, int]) -> list[Refusal]:
    return [problem for each in needs(plan, seen, local_sizes) for problem in _lacks(plan, seen, each)]


def needs(plan: Plan, seen: HostState, local_sizes: Mapping[str, int]) -> list[Need]:
    """What goes where: models, builds in the making and a toolkit are the bulk; what is kept of a build is small."""
    if seen.free is None or seen.store is None:
        return []
    builds = sum(build.disk for build in plan.builds if seen.builds.get(build.id) in (None, "damaged"))
    models = _models_need(plan, seen, local_sizes)
    wanted = [(*seen.free, builds), (seen.store.folder, seen.store.free, seen.store.device, models)]
    if seen.room:
        folder, free, device, begun = seen.room
        wanted.insert(0, (folder, free, device, max(0, TOOLKIT_BYTES - begun)))
    # Neighbours by name may be one disk: what all of them need is then asked of it together.
    together: dict[str, Need] = {}
    for folder, free, device, need in wanted:
        there = together.get(device)
        together[device] = Need(folder, free, need + (there.need if there else 0))
    return list(together.values())


def _models_need(plan: Plan, seen: HostState, local_sizes: Mapping[str, int]) -> int:
    missing = {file.sha256: file for model in plan.models for file in missing_files(model, seen)}
    need = 0
    for sha256, file in missing.items():
        size = file.size if file.size is not None else local_sizes.get(sha256, 0)
        here = seen.incoming.get(sha256, seen.incoming.get(f"{sha256}.part", 0))
        need += max(0, size - here)
    return need


def _lacks(plan: Plan, seen: HostState, each: Need) -> list[Refusal]:
    folder, free, need = each
    if need <= free:
        return []
    unused = sum(size for kept, size in seen.kept.items() if kept not in {model.folder for model in plan.models})
    prune = f"`herd models prune {plan.rig}` would free up to {show_size(unused)}; or " if unused else ""
    return [
        Refusal(
            f"{folder} has {show_size(free)} free, and up to {show_size(need)} are needed",
            f"{prune}free {show_size(need - free)} there, or mount a larger disk",
            disk(folder),
        )
    ]
