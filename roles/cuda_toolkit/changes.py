"""The CUDA toolkit: what is at its place and runs is used, whoever brought it; what is missing is installed."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.reference.drivers import NEVER
from llamaherd.role.changes import Change, RunVerb, differences, write_on_host
from llamaherd.role.refusal import Need, Refusal
from llamaherd.role.repositories import repository_changes
from roles.cuda_toolkit.onhost import InstallInput
from roles.cuda_toolkit.plan import DRIVER
from roles.cuda_toolkit.state import ToolkitState

TOOLKIT_BYTES = 9 * 10**9
"""What a CUDA toolkit takes while it is installed: 5.3 GB of CUDA 13.0 were measured without Nsight Systems, and its
packages are fetched first."""


def toolkit_changes(plan: Plan, state: HostState) -> list[Change]:
    """Keep drivers out first, then let NVIDIA's repository in, then install."""
    toolkit = plan.toolkit
    if toolkit is None:
        return []
    missing = ToolkitState.of(state).version != toolkit.version
    repository = toolkit.repository
    ours = repository.sources.path in state.files
    changes = []
    why = differences([toolkit.preferences], state)
    if why and (missing or ours or repository.name in state.repositories):
        put = write_on_host([toolkit.preferences], "writing preferences of apt")
        changes.append(Change("update", "preferences", toolkit.preferences.path, why, put))
    if missing or ours:
        changes += repository_changes(repository, state)
    if not missing:
        return changes
    given = InstallInput(
        version=toolkit.version,
        package=toolkit.package,
        compiler=f"cuda-nvcc-{toolkit.version.replace('.', '-')}",
        nvcc=toolkit.nvcc,
        driver=(*NEVER, *DRIVER),
    )
    how = RunVerb("cuda_toolkit.install", given, f"installing {toolkit.package}")
    return [*changes, Change("install", "toolkit", toolkit.package, (f"{toolkit.nvcc} is not there",), how)]


def toolkit_refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """Another toolkit where this one is to be."""
    toolkit, found = plan.toolkit, ToolkitState.of(state).version
    if toolkit is None or not found or found == toolkit.version:
        return []
    message = f"{toolkit.nvcc} says that it is CUDA {found}, the inventory says {toolkit.version}"
    way = f'write `cuda: "{found}"`, or move /usr/local/cuda-{toolkit.version} away'
    return [Refusal(message, way, "CUDA toolkit")]


def toolkit_needs(_: Plan, state: HostState, __: Mapping[str, int]) -> list[Need]:
    """Room for the toolkit, while its compiler is not there."""
    room = ToolkitState.of(state).room
    return [Need(room.folder, room.free, room.device, max(0, TOOLKIT_BYTES - room.begun))] if room else []
