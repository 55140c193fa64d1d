"""The virtual address's line of `herd plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llamaherd.plan import Estimate, Plan


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> Iterator[str]:
    """Which one it is, and who else has it."""
    made = plan.virtual_address
    if made:
        yield f"  address    {made.address}, in turn with {made.peer_rig} ({made.peer}), by VRRP from {made.own}"
