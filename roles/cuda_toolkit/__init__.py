"""CUDA toolkit: the version that engines are built with, installed without any part of a driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llamaherd.checks.toolkit import built_with_cuda, host_compiler
from llamaherd.host.state import HostState, StatePart
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.verification import Probe
from llamaherd.plan import Estimate, Plan, TextFile, ToolkitPlan
from llamaherd.reference.packages import DRIVER_FAMILIES, NEVER_INSTALLED
from llamaherd.role.apt import nvidia_repository, repository_changes
from llamaherd.role.changes import Change, RunVerb, file_differences, write_on_host
from llamaherd.role.preflight import DiskNeed, Refusal
from llamaherd.role.report import Check
from llamaherd.role.role import Inspection, Judging, Planning, PlanPart, Role, Task, Verified
from roles.cuda_toolkit.onhost import Found, InspectInput, InstallInput

PREFERENCES = "/etc/apt/preferences.d/llamaherd-cuda"

DRIVER = (*DRIVER_FAMILIES, "nvidia-imex*", "nvidia-fabricmanager*")
"""What NVIDIA's repositories have of a driver, with what goes with one of data centres."""

TOOLKIT_BYTES = 9 * 10**9
"""What a CUDA toolkit takes while it is installed: 5.3 GB of CUDA 13.0 were measured without Nsight Systems, and its
packages are fetched first."""

PREPROCESSED = "__CUDACC_VER_MAJOR__.__CUDACC_VER_MINOR__"
"""What nvcc has a compiler read: its own version comes out, unless it does not take that compiler."""

# $1 is the program that it reads, and then come nvcc and its arguments.
_PREPROCESS = """\
probe=$(mktemp -d) && printf '%s\\n' "$1" >"$probe/probe.cu" && shift && "$@" -E "$probe/probe.cu" 2>&1
rm -rf "$probe"
"""


def plan(planning: Planning) -> PlanPart:
    """Return the toolkit and its repository."""
    toolkit = plan_toolkit(planning.rig)
    return PlanPart(repositories=(toolkit.repository,) if toolkit else (), fields={"toolkit": toolkit})


def plan_toolkit(rig: Rig) -> ToolkitPlan | None:
    """Return the toolkit of a rig; None if no build uses it."""
    if rig.gpus is None or not built_with_cuda(rig):
        return None
    version = rig.gpus.cuda
    compilers = {host_compiler(rig, engine) for engine in built_with_cuda(rig).values()}
    return ToolkitPlan(
        version=version,
        package=f"cuda-toolkit-{version.replace('.', '-')}",
        repository=nvidia_repository(rig),
        preferences=TextFile(path=PREFERENCES, text=_preferences(rig)),
        compiler=max(filter(None, compilers), default=None),
    )


def _preferences(rig: Rig) -> str:
    """Return apt's preferences: NVIDIA's repository brings no part of a driver that comes from elsewhere."""
    declared = rig.gpus.driver if rig.gpus else None
    text = (
        f"# Written by llamaherd for rig `{rig.rig}`: change the inventory, not this file.\n"
        "# What would drag a driver in, or a part of one that these cards refuse.\n"
        f"Package: {' '.join(NEVER_INSTALLED)}\nPin: version *\nPin-Priority: -1\n"
    )
    if declared and declared.from_ == "nvidia" and rig.host.wsl is None:
        return text
    return (
        f"{text}\n# The driver does not come from NVIDIA's repository here, and parts of two do not go together.\n"
        f"Package: {' '.join(DRIVER)}\nPin: release l=NVIDIA CUDA\nPin-Priority: -1\n"
    )


@dataclass(frozen=True)
class ToolkitState(Found, StatePart):
    """The version that the planned toolkit's compiler prints, empty if it does not run; else the room for it."""


def inspection_input(plan: Plan) -> InspectInput | None:
    """Return what to inspect."""
    return InspectInput(plan.toolkit.version, plan.toolkit.nvcc) if plan.toolkit else None


def toolkit_changes(plan: Plan, state: HostState) -> list[Change]:
    """Keep drivers out first, then let NVIDIA's repository in, then install."""
    toolkit = plan.toolkit
    if toolkit is None:
        return []
    missing = ToolkitState.of(state).version != toolkit.version
    repository = toolkit.repository
    ours = repository.sources.path in state.files
    changes = []
    why = file_differences([toolkit.preferences], state)
    if why and (missing or ours or repository.name in state.system.repositories):
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
        driver=(*NEVER_INSTALLED, *DRIVER),
    )
    how = RunVerb("cuda_toolkit.install", given, f"installing {toolkit.package}")
    return [*changes, Change("install", "toolkit", toolkit.package, (f"{toolkit.nvcc} is not there",), how)]


def toolkit_refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """Return the refusal of another toolkit at the same place."""
    toolkit, found = plan.toolkit, ToolkitState.of(state).version
    if toolkit is None or not found or found == toolkit.version:
        return []
    message = f"{toolkit.nvcc} is of CUDA {found}, but the inventory declares {toolkit.version}"
    way = f'write `cuda: "{found}"`, or move /usr/local/cuda-{toolkit.version} away'
    return [Refusal(message, way, "CUDA toolkit")]


def toolkit_needs(_: Plan, state: HostState, __: Mapping[str, int]) -> list[DiskNeed]:
    """Return the room for the toolkit, while its compiler is missing."""
    room = ToolkitState.of(state).room
    return [DiskNeed(room.folder, room.free, room.device, max(0, TOOLKIT_BYTES - room.begun))] if room else []


def probes(plan: Plan) -> Iterator[Probe]:
    """Yield the probe of nvcc with the host's compiler."""
    if plan.toolkit:
        compiler = ("-ccbin", plan.toolkit.compiler) if plan.toolkit.compiler else ()
        nvcc = (plan.toolkit.nvcc, *compiler)
        yield Probe("nvcc", "", ("sh", "-c", _PREPROCESS, "sh", PREPROCESSED, *nvcc), seconds=60)


def judge(judging: Judging) -> Verified:
    """Return the check of the toolkit."""
    toolkit = judging.plan.toolkit
    return Verified(checks=(_toolkit(toolkit.version, judging.outputs.get(("nvcc", ""), "")),) if toolkit else ())


def _toolkit(version: str, output: str) -> Check:
    last = output.strip().splitlines()[-1:] or ["it does not run"]
    found = re.sub(r"\s", "", last[0])
    if found == version:
        return Check("CUDA", True, f"nvcc {version} takes the host's compiler")
    if re.fullmatch(r"\d+\.\d+", found):
        return Check("CUDA", False, f"nvcc is {found}, declared is {version}")
    wrong = next((line.strip() for line in output.splitlines() if "error" in line), last[0].strip())
    return Check("CUDA", False, f"nvcc {version} and the host's compiler do not go together: {wrong[:200]}")


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """Return the CUDA toolkit, and the compiler that it uses."""
    toolkit = plan.toolkit
    if toolkit is None:
        return []
    lines = [f"  cuda       {toolkit.version}: {toolkit.package}, unless {toolkit.nvcc} is there"]
    compiler = (toolkit.compiler or "").rpartition("/")[2]
    return [*lines, f"             with {compiler} for the host's part"] if compiler else lines


def tasks(plan: Plan) -> Iterator[Task]:
    """Yield the toolkit's task, before engines, which are compiled with it."""
    if plan.toolkit:
        yield Task(f"CUDA {plan.toolkit.version}", lambda state, _: toolkit_changes(plan, state))


ROLE = Role(
    name="cuda_toolkit",
    summary="The CUDA toolkit that engines are built with is installed and supports the host's compiler.",
    for_instances=True,
    plan=plan,
    files=lambda plan: (plan.toolkit.preferences.path,) if plan.toolkit else (),
    inspection=Inspection("cuda_toolkit.inspect", inspection_input, ToolkitState),
    refusals=toolkit_refusals,
    needs=toolkit_needs,
    tasks=tasks,
    probes=probes,
    judge=judge,
    describe=describe,
)
