"""The planned gateway, virtual address, chat page and monitoring of a fleet, with the places of keys, never a key."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from llamaherd.inventory.schema import Secret, Task
from llamaherd.layout import EXPORTER_USER, MONITORING_USER
from llamaherd.plan.artifacts import Planned, TextFile
from llamaherd.plan.instance import lowest_speed


class VirtualAddressPlan(Planned):
    """The virtual address on one of its two hosts. `own` and `peer` are the addresses of this host and of the other.

    If neither host has the address, the host with the higher `priority` takes it. From `config` and the interfaces of
    the host, `program` makes keepalived's configuration; `unit` runs keepalived.
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
        """The length of its prefix: that of a single address."""
        return ip_address(self.address).max_prefixlen


PAGE_ASKS: dict[str, str] = {
    "BYPASS_MODEL_ACCESS_CONTROL": "true",
    "DEFAULT_MODEL_METADATA": '{"capabilities": {"builtin_tools": false}}',
    "ENABLE_FOLLOW_UP_GENERATION": "false",
    "ENABLE_TAGS_GENERATION": "false",
    "ENABLE_TITLE_GENERATION": "false",
}
"""Settings with which Open WebUI sends a gateway only the requests of its users (0.12.4).

Every user of the page gets all models of the gateway: by default a model is the administrator's alone until it is
shared by hand. Each message is one request: a title, tags and follow-ups would be three more, the first of them before
the response, and each takes a slot. The page's own tools would be 21 KB before each message, which is more than the
context of a small model; an administrator may still add them to a model.
"""


class ChatPlan(Planned):
    """The chat page of a gateway: a container of this image, which sends requests with one user's key.

    `root` is a file of the controller: the certificate with which the page verifies the gateway. `number` is its user
    id in its container and on the host. `spec` hashes the text of `file` without the spec itself.
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
    """A server behind the gateway: `RIG.INSTANCE`, its address, and how many requests it takes.

    `patient`: it may not respond to health checks for long while it reads a prompt. `wakes` is its rig, if the gateway
    can wake that rig; empty otherwise.
    """

    name: str
    address: str
    port: int
    streams: int
    health_path: str
    patient: bool = False
    wakes: str = ""


class GatewayModel(Planned):
    """A model under the name that clients use. `key` is the place of its servers' key, which clients never get.

    `task` is what its servers declare with `serve`.
    """

    name: str
    aliases: tuple[str, ...]
    servers: tuple[GatewayServer, ...]
    key: Secret | None = None
    fallback: str | None = None
    sticky: Literal["session", "user"] | None = None
    task: Task = "chat"
    backend: str = ""
    """The names of all models of a server that swaps, joined by colons; empty for other servers."""

    @property
    def queue(self) -> str:
        """The name of its queue, which models of the same server share."""
        return self.backend or self.name

    @property
    def wakes(self) -> tuple[GatewayServer, ...]:
        """Its servers on rigs that the gateway can wake."""
        return tuple(server for server in self.servers if server.wakes)

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its aliases."""
        return (self.name, *self.aliases)

    @property
    def streams(self) -> int:
        """The number of requests that all its servers together process at once."""
        return sum(server.streams for server in self.servers)


class GatewayUser(Planned):
    """A user: the place of the key, the most requests at once, and the models, by their own names."""

    name: str
    key: Secret
    streams: int
    models: tuple[str, ...]


class WakeRig(Planned):
    """A rig that a gateway can wake, and the address of its network card."""

    rig: str
    mac: str


class GatewayFigures(Planned):
    """The address of the gateway's metrics, and the only address that may read them from another host."""

    listen: str
    port: int
    asker: str | None = None


class GatewayPlan(Planned):
    """The gateway of a rig. `wait` is in seconds, `length` in requests, `body` in bytes.

    `certificate` and `private_key` are files of the controller; or `authority` is the folder of a CA there, which signs
    a certificate for `names`. `unit` runs the gateway, and `talk` is the program that queries it. `figures` is set if
    it is monitored. `virtual_address` is shared with another gateway. `wakes` are the rigs that it can wake.
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
    wakes: tuple[WakeRig, ...] = ()

    @property
    def secure(self) -> bool:
        """Return whether its connections are encrypted."""
        return self.certificate is not None or self.authority is not None

    @property
    def most_connections(self) -> int:
        """The most connections at once: for all requests that run and wait, and some that only begin or end."""
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
        """Return whether other machines may use it."""
        return not ip_address(self.listen).is_loopback

    def may_use(self, model: str) -> GatewayUser | None:
        """Return a user with access to a model; None if there is none."""
        return next((user for user in self.users if model in user.models), None)


SPARE_CONNECTIONS = 256
"""For clients that keep a connection open, list the models, or are refused."""


class LimitedGpu(Planned):
    """A GPU with a power limit in watts. In its metrics, the label `label` has this `value`."""

    label: str
    value: str
    limit: int


class MonitoredHost(Planned):
    """A monitored rig: its address, whether it has a gateway, the number of its GPUs, and the GPUs with a limit.

    `wakes`: a gateway can wake it, so that it may sleep.
    """

    rig: str
    address: str
    gateway: bool = False
    gpus: int = 0
    limits: tuple[LimitedGpu, ...] = ()
    wakes: bool = False


class MonitoredServer(Planned):
    """A server whose metrics are read: `RIG.INSTANCE`, its address, its key, and how fast it must be.

    `decode` is the declared speed, and `measured` the result of `herd bench`, in tokens per second of one request.
    `waits`: it does not respond while it reads a prompt. `group`, `RIG.GROUP`: other models share the server, which
    reports metrics of a model while it is loaded.
    """

    name: str
    rig: str
    address: str
    port: int
    path: str
    model: str
    engine: str
    key: Secret | None = None
    decode: float | None = None
    measured: float | None = None
    waits: bool = False
    group: str | None = None

    @property
    def floor(self) -> float | None:
        """The tokens per second below which it is too slow; None without any figure."""
        return lowest_speed(self.decode, self.measured)


class AlertKey(Planned):
    """A key with which alerts are sent, and its receiver: `mail`, `ntfy` or `webhook`."""

    way: str
    key: Secret


class WatcherPlan(Planned):
    """Prometheus and Alertmanager: their configuration, and the `units` of both, in this order."""

    hosts: tuple[MonitoredHost, ...]
    servers: tuple[MonitoredServer, ...]
    keys: tuple[AlertKey, ...]
    spec: str
    files: tuple[TextFile, ...]
    units: tuple[TextFile, TextFile]


class FiguresPlan(Planned):
    """A program with its service and timer: it writes metrics that the exporter lacks, every half a minute."""

    program: TextFile
    service: TextFile
    timer: TextFile

    @property
    def files(self) -> tuple[TextFile, ...]:
        """All files."""
        return (self.program, self.service, self.timer)


class ExporterPlan(Planned):
    """The exporter of a host's metrics: its address, and its unit. `asker` is the only address that may read it from
    another host. `told`: `herd diff --tell` writes metrics there."""

    listen: str
    asker: str | None
    unit: TextFile
    figures: FiguresPlan | None = None
    told: bool = False


class MonitoringPlan(Planned):
    """The exporter and the watcher of a rig. With neither, what an earlier run left of them is removed."""

    exporter: ExporterPlan | None = None
    watcher: WatcherPlan | None = None

    @property
    def units(self) -> tuple[TextFile, ...]:
        """The units of all services."""
        exporter = (self.exporter.unit,) if self.exporter else ()
        return (*exporter, *(self.watcher.units if self.watcher else ()))

    @property
    def brought(self) -> tuple[TextFile, ...]:
        """All files that every user may read."""
        figures = self.exporter.figures.files if self.exporter and self.exporter.figures else ()
        return (*self.units, *figures)

    @property
    def accounts(self) -> tuple[str, ...]:
        """The users of both services, one for each."""
        return (*(EXPORTER_USER,) * bool(self.exporter), *(MONITORING_USER,) * bool(self.watcher))
