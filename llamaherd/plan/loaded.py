"""An instance of a group as an instance by itself: the group's server while it has that model loaded."""

from __future__ import annotations

from llamaherd.plan.instance import InstancePlan
from llamaherd.plan.member import MemberPlan


def loaded(group: InstancePlan, member: MemberPlan) -> InstancePlan:
    """What runs when one of a group's models is loaded: its own arguments, context and memory, at the group's port.

    `spec` and `file` stay those of the group's unit, which is what runs.
    """
    endpoint = group.endpoint.model_copy(update={"models": (member.model,), "streams": member.slots})
    update = {"name": member.name, "model": member.model, "arguments": member.arguments, "endpoint": endpoint}
    return group.model_copy(
        update={
            "name": member.name,
            "model": member.model,
            "model_folder": member.model_folder,
            "model_path": member.model_path,
            "context": member.context,
            "mtp": member.mtp,
            "draft_folder": member.draft_folder,
            "threads": member.threads,
            "server": group.server.model_copy(update=update),
            "expect": member.expect,
            "memory": member.memory,
            "members": (),
        }
    )


def instances_of(planned: InstancePlan) -> tuple[InstancePlan, ...]:
    """The declared instances that a planned server is: those of a group one by one, else itself."""
    return tuple(loaded(planned, member) for member in planned.members) or (planned,)
