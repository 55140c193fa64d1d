"""A rig with its model store, and the fleet of all rigs."""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, field_validator

from llamaherd.inventory.schema.base import Declared, Name, Port
from llamaherd.inventory.schema.machine import Connect, Gpus, Host, Suspend, Wake
from llamaherd.inventory.schema.serving import Instance
from llamaherd.inventory.schema.software import Engine, Model
from llamaherd.layout import DEFAULT_STORE
from llamaherd.text.characters import Line
from llamaherd.text.numbers import parse_data_rate, parse_hours

HUB = "hub"
"""The word in `from` for a model's hub; no rig can have this name."""
SHARE_PORT = 8970
"""The port on which a rig shares models."""


def _absolute(path: str) -> str:
    if ".." in path.split("/") or not path.startswith("/"):
        raise ValueError(f"`{path}` is not an absolute path of the host, such as {DEFAULT_STORE}")
    return "/" + posixpath.normpath(path).lstrip("/")


def _origin(value: Any) -> Any:
    """Parse `hub`, the name of a rig, or a folder of the host. Raise ValueError."""
    if isinstance(value, str) and re.fullmatch(r"/[^\x00-\x1f\x7f]*", value):
        return _absolute(value)
    if isinstance(value, str) and not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,39}", value):
        raise ValueError(f"`{value}` is neither `{HUB}`, nor the name of a rig, nor an absolute folder of the host")
    return value


# Units, Compose files and the shell are given this path: what one of them reads otherwise is left out.
StorePath = Annotated[
    str, StringConstraints(pattern=r"^/[A-Za-z0-9._+/-]*$", max_length=200), AfterValidator(_absolute)
]
StoreOrigin = Annotated[Line, BeforeValidator(_origin, json_schema_input_type=str)]
DataRate = Annotated[int, BeforeValidator(parse_data_rate, json_schema_input_type=str | int), Field(gt=0)]
Hours = Annotated[str, BeforeValidator(parse_hours, json_schema_input_type=str)]
Address = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:][A-Za-z0-9.:_-]*$")]


class Bandwidth(Declared):
    """A limit for downloading models, perhaps for some hours."""

    limit: DataRate
    """The most bytes per second, of all connections together."""
    hours: Hours | None = None
    """The hours of the limit in the host's time, such as `07:00-23:00`. Default: always."""

    @property
    def span(self) -> tuple[str, str]:
        """Return the begin and end, as `HH:MM`; equal times mean always."""
        begin, _, end = (self.hours or "00:00-00:00").partition("-")
        return begin, end


class Sharing(Declared):
    """Where other rigs of the fleet reach this rig, to copy models from it."""

    address: Address | None = None
    """Name or address in the LAN. Default: what `connect` has as `host`."""
    port: Port = SHARE_PORT
    """The port, open only while another rig fetches."""


class Store(Declared):
    """The model store on the host, and the sources of models."""

    path: StorePath = str(DEFAULT_STORE)
    """The folder on the host."""
    mount: bool = False
    """Whether the folder is on a disk that is mounted: then servers start after it, and stop without it."""
    from_: Annotated[tuple[StoreOrigin, ...], Field(alias="from")] = (HUB,)
    """The sources of models, in order: `hub`, rigs of the fleet, folders of the host."""
    bandwidth: tuple[Bandwidth, ...] = ()
    """Limits for downloads: one limit, one with its hours, or several of these."""
    connections: Annotated[int, Field(ge=1, le=32)] = 8
    """Parallel connections."""
    share: Sharing = Sharing()
    """Where other rigs reach this rig, to copy models from it."""

    @field_validator("from_", mode="before", json_schema_input_type=StoreOrigin | list[StoreOrigin])
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("bandwidth", mode="before", json_schema_input_type=DataRate | Bandwidth | list[Bandwidth])
    @classmethod
    def _limit_alone(cls, value: Any) -> Any:
        if isinstance(value, str | int):
            return [{"limit": value}]
        return [value] if isinstance(value, dict) else value

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders of the host that may already contain models."""
        return tuple(origin for origin in self.from_ if origin.startswith("/"))

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Return the rigs that models may come from."""
        return tuple(origin for origin in self.from_ if origin != HUB and not origin.startswith("/"))


LOCAL = "@local"
"""The host of `connect: local`, and pyinfra's name for its own machine."""


class Rig(Declared):
    """A host as declared."""

    rig: Name
    """The name of the rig in commands."""
    connect: Connect
    """How to reach the host. `connect: local` is the machine on which `herd` runs."""
    host: Host
    """The hardware and system of the host."""
    gpus: Gpus | None = None
    """Its GPUs. Leave it out for a rig without GPUs."""
    wake: Wake | None = None
    """How the gateway wakes the host when it sleeps."""
    suspend: Suspend | None = None
    """When the host sleeps by itself."""
    engines: dict[Name, Engine]
    """The engines: built on the host, or images."""
    store: Store = Store()
    """The model store on the host, and the sources of models."""
    models: dict[Name, Model]
    """The models."""
    instances: dict[Name, Instance]
    """The server instances."""

    @property
    def address(self) -> str:
        """Return the address for other machines: that of its store, else that of `connect`."""
        return self.store.share.address or self.connect.host

    @property
    def used_models(self) -> set[str]:
        """Return the names of the models that instances use: served models, draft models, and those that a search
        tries."""
        drafts = {each.draft.model for each in self.instances.values() if each.draft and each.draft.model}
        tried = {name for each in self.instances.values() for name in each.tried_models}
        return {each.model for each in self.instances.values()} | drafts | tried

    @property
    def servers(self) -> dict[str, tuple[str, ...]]:
        """Return servers by name, each with its instances: a group is one server of the group's name."""
        found: dict[str, tuple[str, ...]] = {}
        for name in self.instances:
            server = self.server_of(name)
            found[server] = (*found.get(server, ()), name)
        return found

    def server_of(self, instance: str) -> str:
        """Return the name of an instance's server."""
        return self.instances[instance].group or instance

    @field_validator("connect", mode="before", json_schema_input_type=Connect | str)
    @classmethod
    def _local(cls, value: Any) -> Any:
        return {"host": LOCAL} if value == "local" else value


class Fleet(Declared):
    """All rigs, by name."""

    rigs: dict[Name, Rig]
