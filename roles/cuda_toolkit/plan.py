"""The CUDA toolkit that engines are built with, and the compiler that goes with it. Pure, as all of the plan."""

from __future__ import annotations

from llamaherd.checks.building import built_with_cuda, host_compiler
from llamaherd.inventory.schema import Rig
from llamaherd.plan import TextFile, ToolkitPlan
from llamaherd.reference.drivers import FAMILIES, NEVER
from llamaherd.role.repositories import nvidia_repository
from llamaherd.role.role import Planning, PlanPart

PREFERENCES = "/etc/apt/preferences.d/llamaherd-cuda"

DRIVER = (*FAMILIES, "nvidia-imex*", "nvidia-fabricmanager*")
"""What NVIDIA's repositories have of a driver, with what goes with one of data centres."""


def plan(planning: Planning) -> PlanPart:
    """The toolkit and its repository."""
    toolkit = plan_toolkit(planning.rig)
    return PlanPart(repositories=(toolkit.repository,) if toolkit else (), fields={"toolkit": toolkit})


def plan_toolkit(rig: Rig) -> ToolkitPlan | None:
    """The toolkit of a rig; None where nothing is built with it."""
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
    """Where the driver is the distribution's, Windows' or by hand, NVIDIA's repository is to bring no part of it."""
    declared = rig.gpus.driver if rig.gpus else None
    text = (
        f"# Written by llamaherd for rig `{rig.rig}`: change the inventory, not this file.\n"
        "# What would drag a driver in, or a part of one that these cards refuse.\n"
        f"Package: {' '.join(NEVER)}\nPin: version *\nPin-Priority: -1\n"
    )
    if declared and declared.from_ == "nvidia" and rig.host.wsl is None:
        return text
    return (
        f"{text}\n# The driver does not come from NVIDIA's repository here, and parts of two do not go together.\n"
        f"Package: {' '.join(DRIVER)}\nPin: release l=NVIDIA CUDA\nPin-Priority: -1\n"
    )
