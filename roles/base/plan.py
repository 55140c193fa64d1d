"""What every host must have, whatever it serves."""

from __future__ import annotations

from llamaherd.role.role import Planning, PlanPart

PACKAGES = frozenset({"ca-certificates", "curl", "python3"})
"""Of the distribution: what our scripts and the fetcher stand on."""


def plan(_: Planning) -> PlanPart:
    """Packages that every host needs; other roles add theirs."""
    return PlanPart(packages=PACKAGES)
