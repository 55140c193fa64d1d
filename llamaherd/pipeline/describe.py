"""A plan, as people read it: the lines of every role, one part under the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llamaherd.plan import Estimate, Plan
from llamaherd.role.role import Role


def show_plan(plan: Plan, roles: Sequence[Role], asked: Mapping[str, Estimate | str] | None = None) -> str:
    """The whole plan; `asked` is what the engines said of the instances' memory, by name."""
    lines = (line for role in roles for line in role.describe(plan, asked or {}))
    return "\n".join([f"rig {plan.rig} ({plan.os})", *lines]) + "\n"
