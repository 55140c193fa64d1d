"""`Plan`, the desired state of one host, the part of it that a run is limited to, and its instances by name."""

from __future__ import annotations

from pydantic import Field, JsonValue

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Backend
from llamaherd.layout import ACCOUNTS, GATEWAY_USER
from llamaherd.plan.artifacts import BuildPlan, ImagePlan, ModelPlan, StorePlan
from llamaherd.plan.base import Planned, TextFile
from llamaherd.plan.gateway import ChatPlan, GatewayPlan, VirtualAddressPlan
from llamaherd.plan.instance import InstancePlan, MemberPlan
from llamaherd.plan.machine import (
    DriverPlan,
    GpuPlan,
    GpuPower,
    PowerPlan,
    RepositoryPlan,
    RuntimePlan,
    ToolkitPlan,
    WslPlan,
)
from llamaherd.plan.monitoring import MonitoringPlan


class Only(Planned):
    """A part of a rig that a run is for alone: instances, with what they need, and roles. The rest stays as it is.

    `needs` is what the instances need. `fields` are those of the plan that the roles fill.
    """

    instances: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    needs: Plan | None = None
    fields: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Both."""
        return (*self.instances, *self.roles)


class Plan(Planned):
    """All that must be true on one host; with `only`, a part of it is to be made so.

    `ram`: bytes, as declared. `has_cards`: there are GPUs whose power is this system's to set. `windows_power` is what
    is declared of GPUs under WSL, where it is Windows' to set. `of_fleet`: there is a `fleet.yaml`, so that the host
    may have been a gateway.
    """

    rig: str
    os: str
    packages: tuple[str, ...]
    files: tuple[TextFile, ...]
    builds: tuple[BuildPlan, ...]
    store: StorePlan = StorePlan()
    models: tuple[ModelPlan, ...]
    images: tuple[ImagePlan, ...]
    instances: tuple[InstancePlan, ...]
    ram: int | None = None
    amx: bool = False
    has_cards: bool = False
    cards: tuple[GpuPlan, ...] = ()
    repositories: tuple[RepositoryPlan, ...] = ()
    driver: DriverPlan | None = None
    toolkit: ToolkitPlan | None = None
    runtime: RuntimePlan | None = None
    power: PowerPlan | None = None
    windows_power: tuple[GpuPower, ...] = ()
    wsl: WslPlan | None = None
    of_fleet: bool = False
    gateway: GatewayPlan | None = None
    virtual_address: VirtualAddressPlan | None = None
    chat: ChatPlan | None = None
    monitoring: MonitoringPlan | None = None
    parts: dict[str, JsonValue] = Field(default_factory=dict)
    """What roles of the fleet's own have planned, by their names."""
    only: Only | None = None

    def whole(self, role: str) -> bool:
        """Whether all of a role's is to be made so: else what is of others stays as it is."""
        return self.only is None or role in self.only.roles

    @property
    def chosen(self) -> tuple[InstancePlan, ...]:
        """The instances that are to run as planned."""
        if self.only is None or self.whole("serve"):
            return self.instances
        return tuple(instance for instance in self.instances if instance.name in self.only.instances)

    @property
    def accounts(self) -> tuple[str, ...]:
        """The users that must be there: those of every host, and one for each unit, a gateway, and what watches."""
        own = (GATEWAY_USER,) if self.gateway else ()
        watching = self.monitoring.accounts if self.monitoring else ()
        return (*ACCOUNTS, *(instance.server.user for instance in self.of("systemd")), *own, *watching)

    def of(self, backend: Backend) -> tuple[InstancePlan, ...]:
        """The instances of one backend."""
        return tuple(instance for instance in self.instances if instance.backend == backend)


def loaded_instance(group: InstancePlan, member: MemberPlan) -> InstancePlan:
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
    return tuple(loaded_instance(planned, member) for member in planned.members) or (planned,)


def instance_names(plan: Plan) -> list[str]:
    """The declared instances of a rig."""
    return [each.name for server in plan.instances for each in instances_of(server)]


def instance_name_error(plan: Plan, name: str | None) -> UserError:
    """Say that no instance, or not one alone, is meant by a name, or by none."""
    names = instance_names(plan)
    if not names:
        return UserError(f"{plan.rig} has no instance", "declare one: `herd explain inventory` shows how")
    about = f"{plan.rig} has no instance `{name}`" if name else f"{plan.rig} has {len(names)} instances"
    return UserError(about, f"name one of {', '.join(names)}")
