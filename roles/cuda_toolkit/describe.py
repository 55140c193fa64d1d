"""The CUDA toolkit's lines of `herd plan`."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.plan import Estimate, Plan


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """The CUDA toolkit, and the compiler beside it."""
    toolkit = plan.toolkit
    if toolkit is None:
        return []
    lines = [f"  cuda       {toolkit.version}: {toolkit.package}, unless {toolkit.nvcc} is there"]
    compiler = (toolkit.compiler or "").rpartition("/")[2]
    return [*lines, f"             with {compiler} for the host's part"] if compiler else lines
