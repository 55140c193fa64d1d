"""A rig, and the fleet of all rigs."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator

from llamaherd.inventory.schema.base import Declared, Name
from llamaherd.inventory.schema.gpus import Gpus
from llamaherd.inventory.schema.machine import Connect, Host
from llamaherd.inventory.schema.serving import Instance
from llamaherd.inventory.schema.software import Engine, Model
from llamaherd.inventory.schema.store import Store

LOCAL = "@local"
"""The host of `connect: local`, and pyinfra's name for the machine that it runs on."""


class Rig(Declared):
    """One host as declared."""

    rig: Name
    """What the rig is called in commands."""
    connect: Connect
    """How to reach the host. `connect: local` is the machine that `herd` runs on."""
    host: Host
    """What the host is."""
    gpus: Gpus | None = None
    """Its GPUs. Leave it out where there are none."""
    engines: dict[Name, Engine]
    """Engines to build or run as images."""
    store: Store = Store()
    """Where models are kept on the host, and where they come from."""
    models: dict[Name, Model]
    """Models to keep."""
    instances: dict[Name, Instance]
    """Servers to run."""

    @property
    def address(self) -> str:
        """Where other machines reach it: as its store says, else as we do."""
        return self.store.share.address or self.connect.host

    @property
    def used_models(self) -> set[str]:
        """Names of the models that instances read: those that they serve, those that draft, and those that a search
        tries."""
        drafts = {each.draft.model for each in self.instances.values() if each.draft and each.draft.model}
        tried = {name for each in self.instances.values() for name in each.tried_models}
        return {each.model for each in self.instances.values()} | drafts | tried

    @property
    def servers(self) -> dict[str, tuple[str, ...]]:
        """Servers by name, each with its instances: those of a group are one, which is called as the group is."""
        found: dict[str, tuple[str, ...]] = {}
        for name in self.instances:
            server = self.server_of(name)
            found[server] = (*found.get(server, ()), name)
        return found

    def server_of(self, instance: str) -> str:
        """The name of an instance's server."""
        return self.instances[instance].group or instance

    @field_validator("connect", mode="before", json_schema_input_type=Connect | str)
    @classmethod
    def _local(cls, value: Any) -> Any:
        return {"host": LOCAL} if value == "local" else value


class Fleet(Declared):
    """All rigs, by name."""

    rigs: dict[Name, Rig]
