"""Whether what is planned has room: found before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llamaherd.host.state import HostState
from llamaherd.pipeline.only import parts
from llamaherd.plan import Plan
from llamaherd.role.refusal import Need, Refusal, disk_row
from llamaherd.role.role import Role
from llamaherd.text.units import show_size


def disk_refusals(plan: Plan, state: HostState, roles: Sequence[Role], local_sizes: Mapping[str, int]) -> list[Refusal]:
    """What the disks lack. `local_sizes`: bytes of the controller's files, by sha256."""
    return [problem for each in needs(plan, state, roles, local_sizes) for problem in _lacks(plan, state, each)]


def needs(plan: Plan, state: HostState, roles: Sequence[Role], local_sizes: Mapping[str, int]) -> list[Need]:
    """What goes where: models, builds in the making and a toolkit are the bulk; what is kept of a build is small."""
    # Neighbours by name may be one disk: what all of them need is then asked of it together.
    combined: dict[str, Need] = {}
    for need in (need for role, part in parts(plan, roles) for need in role.needs(part, state, local_sizes)):
        there = combined.get(need.device)
        combined[need.device] = need._replace(need=need.need + (there.need if there else 0))
    return list(combined.values())


def _lacks(plan: Plan, state: HostState, each: Need) -> list[Refusal]:
    folder, free, _, need = each
    if need <= free:
        return []
    unused = sum(size for kept, size in state.kept.items() if kept not in {model.folder for model in plan.models})
    prune = f"`herd models prune {plan.rig}` would free up to {show_size(unused)}; or " if unused else ""
    return [
        Refusal(
            f"{folder} has {show_size(free)} free, and up to {show_size(need)} are needed",
            f"{prune}free {show_size(need - free)} there, or mount a larger disk",
            disk_row(folder),
        )
    ]
