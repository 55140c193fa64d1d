"""The page's lines of `herd plan`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llamaherd.plan import Estimate, Plan


def describe(plan: Plan, _: Mapping[str, Estimate | str]) -> Iterator[str]:
    """Where it is reached, and what it is."""
    if plan.chat:
        made = plan.chat
        yield f"  chat page  http on {made.listen}:{made.port}, as user {made.user}, {made.model} first"
        yield f"             {made.image}"
