"""The planned gateway of a fleet, its virtual address and its chat page; contains the places of keys, never a key."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from llamaherd.inventory.schema import Secret
from llamaherd.plan.base import Planned, TextFile


class VirtualAddressPlan(Planned):
    """What one of the two has of it. `own` and `peer` are where the two hosts find each other.

    Where nobody has the address, the higher `priority` takes it. `files` are `config`, by which the host makes
    keepalived's configuration, `unit`, which runs it, and `program`, which knows the host's interfaces.
    """

    address: str
    own: str
    peer: str
    peer_rig: str
    priority: int
    config: TextFile
    unit: TextFile
    program: TextFile

    @property
    def files(self) -> tuple[TextFile, ...]:
        """All that lies on the host."""
        return (self.config, self.unit, self.program)

    @property
    def length(self) -> int:
        """The length of its prefix: it is one address, and no network of its own."""
        return ip_address(self.address).max_prefixlen


PAGE_ASKS: dict[str, str] = {
    "BYPASS_MODEL_ACCESS_CONTROL": "true",
    "DEFAULT_MODEL_METADATA": '{"capabilities": {"builtin_tools": false}}',
    "ENABLE_FOLLOW_UP_GENERATION": "false",
    "ENABLE_TAGS_GENERATION": "false",
    "ENABLE_TITLE_GENERATION": "false",
}
"""What has Open WebUI ask a gateway as the people do who chat on it (0.12.4).

The gateway says which models there are, so everybody sees those: else a model is the administrator's alone until it is
shared by hand. A message is one request of what somebody has written: a title, tags and follow-ups would be three more,
the first of them before the answer, and each takes a slot. Tools of its own would be 21 KB before each message, which
is more than the context of a small model; an administrator may give them to a model all the same.
"""


class ChatPlan(Planned):
    """The page of a gateway: a container of this image, which asks with one user's key.

    `root` is the file of the controller with the certificate by which it knows the gateway. `number` is the user that
    it is in its container and on the host. `spec` hashes the text of `file`, all but itself.
    """

    image: str
    listen: str
    port: int
    user: str
    key: Secret
    gateway: str
    model: str
    root: Path | None = None
    number: str
    spec: str
    file: TextFile


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
