"""One address for people, as it must be on the host that has it: never a key, only where keys are."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from llamaherd.inventory.schema import Secret
from llamaherd.plan.base import Planned, TextFile


class GatewayServer(Planned):
    """A server behind the gateway: `RIG.INSTANCE`, where the gateway finds it, and how much it takes.

    `patient`: while it reads a prompt it may not say for long whether it is well.
    """

    name: str
    address: str
    port: int
    streams: int
    health_path: str
    patient: bool = False


class GatewayModel(Planned):
    """A model as people know it. `key` is where the key of its servers is, which clients never see."""

    name: str
    aliases: tuple[str, ...]
    servers: tuple[GatewayServer, ...]
    key: Secret | None = None
    fallback: str | None = None
    sticky: Literal["session", "user"] | None = None
    backend: str = ""
    """The names of all models whose one server swaps, with colons between, where it is such a one."""

    @property
    def queue(self) -> str:
        """What it waits in with those that have the same server; its own, if it has its own."""
        return self.backend or self.name

    @property
    def names(self) -> tuple[str, ...]:
        """All that it is called."""
        return (self.name, *self.aliases)

    @property
    def streams(self) -> int:
        """Requests that all its servers together answer at once."""
        return sum(server.streams for server in self.servers)


class GatewayUser(Planned):
    """Who may use it: where the key is, how many requests at once, and which models, by their own names."""

    name: str
    key: Secret
    streams: int
    models: tuple[str, ...]


class GatewayFigures(Planned):
    """Where the gateway tells its figures, and the only address that may ask for them from beyond its host."""

    listen: str
    port: int
    asker: str | None = None


class GatewayPlan(Planned):
    """The gateway of a rig. `wait` is in seconds, `length` in requests, `body` in bytes.

    `certificate` and `private_key` are files of the controller, or `authority` is the folder there of a CA, which signs
    one for `names`. `unit` runs it, and `talk` is what asks it.
    `figures` is there where something watches it. `virtual_address` is one that it has in turn with another gateway.
    """

    rig: str
    listen: str
    port: int
    certificate: Path | None = None
    private_key: Path | None = None
    authority: Path | None = None
    names: tuple[str, ...] = ()
    wait: int
    length: int
    body: int
    models: tuple[GatewayModel, ...]
    users: tuple[GatewayUser, ...]
    unit: TextFile
    talk: TextFile
    figures: GatewayFigures | None = None
    virtual_address: str | None = None

    @property
    def secure(self) -> bool:
        """Whether nobody can read on the way."""
        return self.certificate is not None or self.authority is not None

    @property
    def most_connections(self) -> int:
        """What it takes at once: all that is answered and waits, and as many again that only begin or end."""
        return sum(model.streams + self.length for model in self.queues) + SPARE_CONNECTIONS

    @property
    def queues(self) -> tuple[GatewayModel, ...]:
        """A model of each queue."""
        found: dict[str, GatewayModel] = {}
        for model in self.models:
            found.setdefault(model.queue, model)
        return tuple(found.values())

    @property
    def for_others(self) -> bool:
        """Whether other machines are to use it."""
        return not ip_address(self.listen).is_loopback

    def may_use(self, model: str) -> GatewayUser | None:
        """Somebody who may use a model."""
        return next((user for user in self.users if model in user.models), None)


SPARE_CONNECTIONS = 256
"""For clients that keep a connection, ask what models there are, or are refused."""
