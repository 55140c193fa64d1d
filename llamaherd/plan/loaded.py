"""Instances one by one: of a group each is its server while it has that model loaded."""

from __future__ import annotations

from llamaherd.diagnostics.findings import UserError
from llamaherd.plan.instance import InstancePlan
from llamaherd.plan.member import MemberPlan
from llamaherd.plan.plan import Plan


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


def names_of(plan: Plan) -> list[str]:
    """The declared instances of a rig."""
    return [each.name for server in plan.instances for each in instances_of(server)]


def not_one(plan: Plan, name: str | None) -> UserError:
    """Say that no instance, or not one alone, is meant by a name, or by none."""
    names = names_of(plan)
    if not names:
        return UserError(f"{plan.rig} has no instance", "declare one: `herd explain inventory` shows how")
    about = f"{plan.rig} has no instance `{name}`" if name else f"{plan.rig} has {len(names)} instances"
    return UserError(about, f"name one of {', '.join(names)}")
