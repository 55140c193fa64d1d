"""`Plan`, the desired state of one host, the part of it that a run is limited to, and its instances by name."""

from __future__ import annotations

from pydantic import Field, JsonValue

from llamaherd.diagnostics.findings import UserError
from llamaherd.inventory.schema import Backend
from llamaherd.layout import ACCOUNTS, GATEWAY_USER
from llamaherd.plan.artifacts import BuildPlan, ImagePlan, ModelPlan, Planned, StorePlan, TextFile
from llamaherd.plan.fleet import ChatPlan, GatewayPlan, MonitoringPlan, VirtualAddressPlan
from llamaherd.plan.instance import InstancePlan, MemberPlan
from llamaherd.plan.machine import (
    DriverPlan,
    GpuPlan,
    GpuPower,
    PowerPlan,
    RepositoryPlan,
    RuntimePlan,
    SuspendPlan,
    ToolkitPlan,
    WslPlan,
)


class Only(Planned):
    """The part of a rig to which a run is limited: instances, with what they need, and roles. The rest stays unchanged.

    `needs` is the plan of what the instances need. `fields` are the fields of the plan that the roles fill.
    """

    instances: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    needs: Plan | None = None
    fields: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the instances and roles."""
        return (*self.instances, *self.roles)


class Plan(Planned):
    """All that must be true on one host; with `only`, a run applies only this part.

    `ram` are the declared bytes. `has_cards`: the host sets the power of its GPUs itself. `windows_power` are settings
    of GPUs under WSL, which Windows applies. `of_fleet`: there is a `fleet.yaml`, so the host may have been a gateway.
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
    cores: int | None = None
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
    suspend: SuspendPlan | None = None
    of_fleet: bool = False
    gateway: GatewayPlan | None = None
    virtual_address: VirtualAddressPlan | None = None
    chat: ChatPlan | None = None
    monitoring: MonitoringPlan | None = None
    parts: dict[str, JsonValue] = Field(default_factory=dict)
    """The plans of the fleet's own roles, by name."""
    only: Only | None = None

    def whole(self, role: str) -> bool:
        """Return whether a run applies all of a role's plan. Otherwise, whatever it does not apply stays unchanged."""
        return self.only is None or role in self.only.roles

    @property
    def chosen(self) -> tuple[InstancePlan, ...]:
        """The instances that a run applies."""
        if self.only is None or self.whole("serve"):
            return self.instances
        return tuple(instance for instance in self.instances if instance.name in self.only.instances)

    @property
    def accounts(self) -> tuple[str, ...]:
        """The users that must exist: those of every host, one for each unit, those of a gateway and of monitoring."""
        own = (GATEWAY_USER,) if self.gateway else ()
        watching = self.monitoring.accounts if self.monitoring else ()
        return (*ACCOUNTS, *(instance.server.user for instance in self.of("systemd")), *own, *watching)

    def of(self, backend: Backend) -> tuple[InstancePlan, ...]:
        """Return the instances of one backend."""
        return tuple(instance for instance in self.instances if instance.backend == backend)


def loaded_instance(group: InstancePlan, member: MemberPlan) -> InstancePlan:
    """Return the instance that runs while one of a group's models is loaded: its own arguments at the group's port.

    `spec` and `file` stay those of the group's unit, which is the one that runs.
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
    """Return the declared instances of a planned server: those of a group one by one, otherwise itself."""
    return tuple(loaded_instance(planned, member) for member in planned.members) or (planned,)


def instance_names(plan: Plan) -> list[str]:
    """Return the names of the declared instances of a rig."""
    return [each.name for server in plan.instances for each in instances_of(server)]


def instance_name_error(plan: Plan, name: str | None) -> UserError:
    """Return the error of a name that is no instance, or of a missing name if there are several instances."""
    names = instance_names(plan)
    if not names:
        return UserError(f"{plan.rig} has no instance", "declare one: `herd explain inventory` shows how")
    about = f"{plan.rig} has no instance `{name}`" if name else f"{plan.rig} has {len(names)} instances"
    return UserError(about, f"name one of {', '.join(names)}")
