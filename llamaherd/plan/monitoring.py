"""What watches a fleet, as it must be on one host: an exporter of its figures, and on one rig Prometheus and
Alertmanager. Never a key, only where keys are."""

from __future__ import annotations

from llamaherd.inventory.schema import Secret
from llamaherd.layout import EXPORTER_USER, MONITORING_USER
from llamaherd.plan.base import Planned, TextFile
from llamaherd.plan.instance import lowest_speed


class LimitedGpu(Planned):
    """A GPU that is held to a power limit in watts; `label` says how it is found among figures: by `value` of that."""

    label: str
    value: str
    limit: int


class MonitoredHost(Planned):
    """A rig that is watched: where it is asked, whether it has a gateway, how many GPUs, and those with a limit."""

    rig: str
    address: str
    gateway: bool = False
    gpus: int = 0
    limits: tuple[LimitedGpu, ...] = ()


class MonitoredServer(Planned):
    """A server whose figures are read: `RIG.INSTANCE`, where it is asked, with which key, and how fast it must be.

    `decode` is what its owner expects, and `measured` what `herd bench` has found: tokens a second, for one request.
    `waits`: it does not answer while it reads a prompt. `group`, `RIG.GROUP`: others have the same server in turn with
    it, which tells its figures while its model is loaded.
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
        """Tokens a second below which it is too slow, where that is known."""
        return lowest_speed(self.decode, self.measured)


class AlertKey(Planned):
    """A key that alerts are sent with, and what for: `mail`, `ntfy` or `webhook`."""

    way: str
    key: Secret


class WatcherPlan(Planned):
    """Prometheus and Alertmanager, what they read and what runs them. `units` are of both, in this order.

    `files` are Prometheus' configuration and rules; `alerts` is Alertmanager's, which names where alerts go.
    """

    hosts: tuple[MonitoredHost, ...]
    servers: tuple[MonitoredServer, ...]
    keys: tuple[AlertKey, ...]
    spec: str
    files: tuple[TextFile, ...]
    units: tuple[TextFile, TextFile]


class FiguresPlan(Planned):
    """What writes figures that the exporter has no name for, every half a minute."""

    program: TextFile
    service: TextFile
    timer: TextFile

    @property
    def files(self) -> tuple[TextFile, ...]:
        """All of it."""
        return (self.program, self.service, self.timer)


class ExporterPlan(Planned):
    """What tells the figures of a host: where it listens, and its unit. `asker` is the only address that may ask it
    from beyond its host. `told`: `herd diff --tell` writes figures there."""

    listen: str
    asker: str | None
    unit: TextFile
    figures: FiguresPlan | None = None
    told: bool = False


class MonitoringPlan(Planned):
    """Both, on the rigs that have them. With neither, what is left of them goes."""

    exporter: ExporterPlan | None = None
    watcher: WatcherPlan | None = None

    @property
    def units(self) -> tuple[TextFile, ...]:
        """All services that are to run."""
        exporter = (self.exporter.unit,) if self.exporter else ()
        return (*exporter, *(self.watcher.units if self.watcher else ()))

    @property
    def brought(self) -> tuple[TextFile, ...]:
        """All files of everybody's that are to be there."""
        figures = self.exporter.figures.files if self.exporter and self.exporter.figures else ()
        return (*self.units, *figures)

    @property
    def accounts(self) -> tuple[str, ...]:
        """The users that both need: none of them is the other's."""
        return (*(EXPORTER_USER,) * bool(self.exporter), *(MONITORING_USER,) * bool(self.watcher))
