"""All that a plan holds together, and the part of it that a run may be for alone."""

from __future__ import annotations

from pydantic import Field, JsonValue

from llamaherd.inventory.schema import Backend
from llamaherd.layout import ACCOUNTS, GATEWAY_USER
from llamaherd.plan.base import Planned, TextFile
from llamaherd.plan.chat import ChatPlan
from llamaherd.plan.engines import BuildPlan, ImagePlan
from llamaherd.plan.gateway import GatewayPlan
from llamaherd.plan.instance import InstancePlan
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
from llamaherd.plan.models import ModelPlan, StorePlan
from llamaherd.plan.monitoring import MonitoringPlan
from llamaherd.plan.virtual_address import VirtualAddressPlan


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
