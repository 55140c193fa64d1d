"""Whether models can lie where they are to, and the room that they take."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.role.refusal import Need, Refusal, disk_row
from llamaherd.store.missing import missing_files

_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "drvfs", "virtiofs", "ceph", "afs"})
"""Filesystems, by findmnt's names, where owners, locks and renames are another machine's."""


def refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """A store that holds all that is planned may well be read-only."""
    if state.store is None or not any(missing_files(model, state) for model in plan.models):
        return []
    if state.store.kind in _NETWORK:
        return [
            Refusal(
                f"{plan.store.path} is on another machine ({state.store.kind}): servers map models into memory",
                "keep them on a disk of this host (`store: path:`), and name that folder in `store: from:`",
                disk_row(state.store.folder),
            )
        ]
    if not state.store.writable:
        return [
            Refusal(
                f"{plan.store.path} is on a filesystem that is mounted read-only",
                f"see why with `findmnt -T {state.store.folder}` and `dmesg`; `mount -o remount,rw` if it was meant so",
                disk_row(state.store.folder),
            )
        ]
    return []


def needs(plan: Plan, state: HostState, local_sizes: Mapping[str, int]) -> list[Need]:
    """The room that missing files take. `local_sizes`: bytes of the controller's files, by sha256."""
    if state.store is None:
        return []
    return [Need(state.store.folder, state.store.free, state.store.device, _missing_bytes(plan, state, local_sizes))]


def _missing_bytes(plan: Plan, state: HostState, local_sizes: Mapping[str, int]) -> int:
    missing = {file.sha256: file for model in plan.models for file in missing_files(model, state)}
    need = 0
    for sha256, file in missing.items():
        size = file.size if file.size is not None else local_sizes.get(sha256, 0)
        here = state.incoming.get(sha256, state.incoming.get(f"{sha256}.part", 0))
        need += max(0, size - here)
    return need
