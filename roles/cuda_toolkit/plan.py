"""The CUDA toolkit that engines are built with, and the compiler that goes with it. Pure, as all of the plan."""

from __future__ import annotations

from llamaherd.checks.building import built_with_cuda
from llamaherd.inventory.schema import Engine, Rig
from llamaherd.plan import TextFile, ToolkitPlan
from llamaherd.planner.repositories import nvidia_repository
from llamaherd.reference import toolchains
from llamaherd.reference.drivers import FAMILIES, NEVER

PREFERENCES = "/etc/apt/preferences.d/llamaherd-cuda"

DRIVER = (*FAMILIES, "nvidia-imex*", "nvidia-fabricmanager*")
"""What NVIDIA's repositories have of a driver, with what goes with one of data centres."""


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


def host_compiler(rig: Rig, engine: Engine) -> str | None:
    """The program for the host's part of CUDA code, where that is not the distribution's own g++ and nobody said so."""
    declared = toolchains.release(rig.gpus.cuda) if rig.gpus else None
    flags = str(engine.options.get("CMAKE_CUDA_FLAGS", ""))
    if declared is None or "CMAKE_CUDA_HOST_COMPILER" in engine.options or "-allow-unsupported-compiler" in flags:
        return None
    beside = toolchains.beside_gcc(rig.host.os, declared)
    return f"/usr/bin/g++-{beside}" if beside else None


def host_compilers(rig: Rig) -> set[str]:
    """The distribution's packages of these programs."""
    compilers = (host_compiler(rig, engine) for engine in built_with_cuda(rig).values())
    return {compiler.rpartition("/")[2] for compiler in compilers if compiler}


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
