"""The driver's lines of `herd plan`."""

from __future__ import annotations

from collections.abc import Mapping

from llamaherd.plan import Estimate, Plan
from llamaherd.role.repositories import NVIDIA


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> list[str]:
    """Which packages it is, where they come from, and what keeps it."""
    driver = plan.driver
    if driver is None:
        return []
    origin = next((each.url for each in plan.repositories if each.name == NVIDIA), "the distribution")
    signed = f" {driver.prebuilt}-<kernel>" if driver.prebuilt else ""
    wanted = f"version {driver.version}" if driver.version else f"the newest of branch {driver.branch}, then kept"
    reboot = "where only that loads it" if driver.reboot else "never"
    return [
        f"  driver     {driver.branch}, {driver.modules} modules: {wanted}",
        f"             {' '.join(driver.packages)}{signed}",
        f"             from {origin if driver.source == 'nvidia' else 'the distribution'}",
        *(f"             pinned by {file.path}" for file in driver.files[:1]),
        f"             rebooted {reboot}",
    ]
