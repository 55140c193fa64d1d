"""What watches a fleet, as it must be on one host: an exporter of its figures, and on one rig Prometheus and
Alertmanager. Never a key, only where keys are."""

from __future__ import annotations

from llamaherd.inventory.schema import Secret
from llamaherd.plan.base import Planned, TextFile


class MonitoredHost(Planned):
    """A rig that is watched, and where its exporter is asked."""

    rig: str
    address: str


class MonitoredServer(Planned):
    """A server whose figures are read: `RIG.INSTANCE`, where it is asked, with which key, and how fast it must be.

    `decode` is in tokens a second, for one request. `waits`: it does not answer while it reads a prompt.
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
    waits: bool = False


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


class ExporterPlan(Planned):
    """What tells the figures of a host: where it listens, and its unit. `asker` is the only address that may ask it
    from beyond its host."""

    listen: str
    asker: str | None
    unit: TextFile


class MonitoringPlan(Planned):
    """Both, on the rigs that have them. With neither, what is left of them goes."""

    exporter: ExporterPlan | None = None
    watcher: WatcherPlan | None = None

    @property
    def units(self) -> tuple[TextFile, ...]:
        """All units that are to run."""
        exporter = (self.exporter.unit,) if self.exporter else ()
        return (*exporter, *(self.watcher.units if self.watcher else ()))
