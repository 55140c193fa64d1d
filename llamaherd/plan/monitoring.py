"""The planned monitoring of one host: an exporter of its metrics, and on one rig Prometheus and Alertmanager. Contains
the places of keys, never a key."""

from __future__ import annotations

from llamaherd.inventory.schema import Secret
from llamaherd.layout import EXPORTER_USER, MONITORING_USER
from llamaherd.plan.base import Planned, TextFile
from llamaherd.plan.instance import lowest_speed


class LimitedGpu(Planned):
    """A GPU with a power limit in watts. In its metrics, the label `label` has this `value`."""

    label: str
    value: str
    limit: int


class MonitoredHost(Planned):
    """A monitored rig: its address, whether it has a gateway, the number of its GPUs, and the GPUs with a limit."""

    rig: str
    address: str
    gateway: bool = False
    gpus: int = 0
    limits: tuple[LimitedGpu, ...] = ()


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
