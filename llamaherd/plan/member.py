"""An instance of a group, as its plan has it: what the group's server runs when its model is asked for."""

from __future__ import annotations

from llamaherd.inventory.schema import Expect
from llamaherd.plan.base import Planned
from llamaherd.plan.memory import Estimate


class MemberPlan(Planned):
    """One of the instances that swap. `arguments` are those of its own server, if it had one.

    `model_folder` and `model_path` are where its model lies, `draft_folder` that of a model of its own that drafts.
    """

    name: str
    model: str
    model_folder: str
    model_path: str
    draft_folder: str | None = None
    drafts: bool = False
    mtp: int = 0
    context: int
    slots: int
    threads: int
    arguments: tuple[str, ...]
    expect: Expect | None = None
    memory: Estimate | None = None
