"""Base's line of `herd plan`."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.plan import Estimate, Plan


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """Its packages."""
    return [f"  packages   {' '.join(plan.packages)}"]
