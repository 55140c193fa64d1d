"""Compilers that a build lacks. What is not known of a machine is no problem."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import BuildPlan, Plan
from llamaherd.role.refusal import Refusal

_COMPILERS = ("CMAKE_CUDA_HOST_COMPILER", "CMAKE_CXX_COMPILER")


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Compilers that a build is to use, which are not installed and are not going to be."""
    if not state.machine.kernel:
        return
    for build in plan.builds:
        if state.builds.get(build.id) in (None, "damaged"):
            for version in sorted(own_compilers(build) - {*state.machine.gcc}):
                package = f"g++-{version}"
                if package not in plan.packages:
                    message = f"engine `{build.engine}` must be compiled with {package}, which is not installed"
                    help_ = f"`apt-get install {package}` on the host, or name another compiler in its `options`"
                    yield Refusal(message, help_, "compilers")


def own_compilers(build: BuildPlan) -> set[int]:
    """The versions of g++ that a build is to use besides the host's own, as its options name them."""
    said = (re.fullmatch(r"(?:/usr/bin/)?g\+\+-(\d+)", build.options.get(option, "")) for option in _COMPILERS)
    return {int(each[1]) for each in said if each}
