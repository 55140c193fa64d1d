"""Engines' row of preflight's table."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.reference.toolchains import NEWEST_GCC, release
from llamaherd.role.facts import Row
from roles.engines.refusals import own_compilers


def facts(plan: Plan, state: HostState) -> Iterator[Row]:
    """Compilers, where something is built."""
    if plan.builds:
        yield _compilers(plan, state)


def _compilers(plan: Plan, state: HostState) -> Row:
    newest = {cuda: NEWEST_GCC.get(release(build.cuda) or (0, 0)) for build in plan.builds if (cuda := build.cuda)}
    wanted = [f"up to g++ {gcc} for CUDA {cuda}" for cuda, gcc in sorted(newest.items()) if gcc]
    wanted += [f"g++-{each}" for each in sorted(set().union(*map(own_compilers, plan.builds)))]
    have = ", ".join(f"g++ {version}" for version in sorted(state.machine.gcc))
    return Row("compilers", have or ("g++" if "g++" in state.packages else "none yet"), "; ".join(wanted))
