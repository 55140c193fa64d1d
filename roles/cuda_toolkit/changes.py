"""The CUDA toolkit: what is at its place and runs is used, whoever brought it; what is missing is installed."""

from __future__ import annotations

from llamaherd.converge.disks import Refusal
from llamaherd.converge.packages import LOCK_SECONDS
from llamaherd.converge.repositories import repository_steps
from llamaherd.converge.steps import RunScript, differs, put_files
from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.planner.toolkit import DRIVER
from llamaherd.reference.drivers import NEVER
from llamaherd.text.render import render


def toolkit_steps(plan: Plan, seen: HostState) -> list[RunScript]:
    """Keep drivers out first, then let NVIDIA's repository in, then install."""
    toolkit = plan.toolkit
    if toolkit is None:
        return []
    missing = seen.toolkit != toolkit.version
    repository = toolkit.repository
    ours = repository.sources.path in seen.files
    steps = []
    if (missing or ours or repository.name in seen.repositories) and differs(toolkit.preferences, seen):
        steps.append(RunScript(put_files([toolkit.preferences])))
    if missing or ours:
        steps += repository_steps(repository, seen)
    if not missing:
        return steps
    script = render(
        "steps/toolkit.sh.j2",
        t=toolkit,
        compiler=f"cuda-nvcc-{toolkit.version.replace('.', '-')}",
        driver=(*NEVER, *DRIVER),
        wait=LOCK_SECONDS,
    )
    return [*steps, RunScript(script, f"installing {toolkit.package}")]


def toolkit_refusals(plan: Plan, seen: HostState) -> list[Refusal]:
    """Another toolkit where this one is to be."""
    toolkit = plan.toolkit
    if toolkit is None or not seen.toolkit or seen.toolkit == toolkit.version:
        return []
    message = f"{toolkit.nvcc} says that it is CUDA {seen.toolkit}, the inventory says {toolkit.version}"
    return [Refusal(message, f'write `cuda: "{seen.toolkit}"`, or move /usr/local/cuda-{toolkit.version} away')]
