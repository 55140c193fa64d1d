"""Monitoring's part of the program on hosts: apply the exporter, Prometheus and Alertmanager, and remove them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from llamaherd.layout import (
    ALERTMANAGER_PORT,
    ALERTMANAGER_UNIT,
    EXPORTER_UNIT,
    EXPORTER_USER,
    FIGURES_DATA,
    FIGURES_FILE,
    FIGURES_PROGRAM,
    FIGURES_TIMER,
    FIGURES_UNIT,
    MONITORING,
    MONITORING_USER,
    PROMETHEUS_PORT,
    PROMETHEUS_UNIT,
    UNITS,
    WRITTEN,
)
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.files import WrittenFile, write_files
from llamaherd.onhost.services import (
    Service,
    ServiceState,
    apply_configuration,
    enable_units,
    end_package_units,
    find_services,
    journal,
    locked,
    remove_service,
    require_installed,
    restart_units,
    runs_unchanged,
)
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb

PROMTOOL, AMTOOL, EXPORTER = "/usr/bin/promtool", "/usr/bin/amtool", "/usr/bin/prometheus-node-exporter"
_BAD_REQUEST = 400
_HTTP_SECONDS, _MOST_BYTES = 5, 8 << 20
_CHECK_SECONDS, _RELOAD_SECONDS = 120, 150
_MOST_LINES, _LINE, _LOG_LINES = 5, 300, 10
_RULES = "/api/v1/rules?type=record"
_SPEC = re.compile(r'"spec":"([0-9a-f]*)"')

SERVICE = Service(
    name="monitoring",
    record="monitoring",
    folder=str(MONITORING),
    user=MONITORING_USER,
    units=(PROMETHEUS_UNIT, ALERTMANAGER_UNIT),
    restored="the configuration before is used again",
    restore="restart",
    # Prometheus reads all that it has stored before it responds.
    tries=240,
    pause=0.5,
    log_lines=_LOG_LINES,
    start_seconds=300,
    folders=("keys",),
)

DISTRIBUTIONS = {
    EXPORTER_UNIT: "prometheus-node-exporter",
    PROMETHEUS_UNIT: "prometheus",
    ALERTMANAGER_UNIT: "prometheus-alertmanager",
}
"""The package whose program each service runs, which is also the name of the distribution's own unit."""

UNITS_OF_OURS = (FIGURES_TIMER, *DISTRIBUTIONS)


@dataclass(frozen=True)
class Response:
    """What a service responds."""

    status: int
    text: str


Fetch = Callable[[int, str], Response | None]
"""Requests a path of a port of this host. None where nothing responds."""


@dataclass(frozen=True)
class WatcherInput:
    """The planned Prometheus and Alertmanager."""

    files: tuple[WrittenFile, ...]
    """What both read, with the keys."""
    keys: tuple[str, ...]
    """The paths of files that are made of keys."""
    units: tuple[WrittenFile, ...]
    restart: tuple[str, ...]
    """Units that are restarted. Alertmanager reads its configuration as it starts."""
    reload: bool
    """Whether Prometheus reads its configuration again."""
    spec: str
    """What a rule of Prometheus contains once it has read the configuration."""
    idle: tuple[str, ...]
    """Units that came with packages and watch nothing of this fleet."""


@dataclass(frozen=True)
class ExporterInput:
    """The planned exporter of a host."""

    files: tuple[WrittenFile, ...]
    """Its unit, and what writes further figures."""
    restart: bool
    timer: bool
    """Whether a timer writes further figures."""
    data: bool
    """Whether the exporter reads figures of `herd diff`."""
    idle: tuple[str, ...]


@dataclass(frozen=True)
class RemoveInput:
    """Units that are not declared any more. What Prometheus has stored stays."""

    units: tuple[str, ...]


def apply(given: WatcherInput, system: System, fetch: Fetch | None = None) -> None:
    """Apply the planned Prometheus and Alertmanager. Raise FailedError if they do not run."""
    with locked(system, "applying monitoring"):
        require_installed(system, "Prometheus, Alertmanager", [PROMTOOL, AMTOOL], MONITORING_USER)
        end_package_units(system, given.idle)
        apply_configuration(
            system, SERVICE, Watcher(given, system, fetch or fetch_local), given.files, given.units, given.keys
        )


def apply_exporter(given: ExporterInput, system: System) -> None:
    """Apply the exporter. Raise FailedError if it does not run afterwards."""
    with locked(system, "applying the exporter"):
        require_installed(system, "the exporter's package", [EXPORTER], EXPORTER_USER)
        end_package_units(system, given.idle)
        write_files(system, given.files)
        if given.data:
            # The exporter reads the folder as it starts, before anything has been written there.
            system.folder(str(FIGURES_DATA))
        enable_units(system, [EXPORTER_UNIT])
        if given.timer:
            enable_units(system, [FIGURES_TIMER])
            if not systemctl(system, "restart", FIGURES_TIMER).ok:
                raise FailedError(f"{FIGURES_TIMER} does not start", f"see `systemctl status {FIGURES_TIMER}`")
        if given.restart:
            _restart_exporter(system)


def _restart_exporter(system: System) -> None:
    """Restart the exporter. Raise FailedError where it does not run a second later."""
    started = restart_units(system, [EXPORTER_UNIT])
    system.sleep(1)
    if not started or not systemctl(system, "-q", "is-active", EXPORTER_UNIT).ok:
        log = journal(system, [EXPORTER_UNIT], _LOG_LINES)
        raise FailedError("the exporter does not run", f"see `journalctl -u {EXPORTER_UNIT}`", log)


def remove(given: RemoveInput, system: System) -> None:
    """Remove units and what belongs to them. Their files go last."""
    paths: list[str] = []
    if PROMETHEUS_UNIT in given.units:
        paths += [*(f"{MONITORING}{each}" for each in ("", ".new", ".old")), f"{WRITTEN}/monitoring"]
    if FIGURES_TIMER in given.units:
        paths += map(str, (UNITS / FIGURES_UNIT, FIGURES_PROGRAM, FIGURES_FILE))
    if EXPORTER_UNIT in given.units:
        paths.append(str(FIGURES_DATA))
    with locked(system, "removing monitoring"):
        remove_service(system, given.units, paths)


class Watcher:
    """What Prometheus and Alertmanager do with a new configuration."""

    def __init__(self, given: WatcherInput, system: System, fetch: Fetch) -> None:
        self._given, self._system, self._fetch = given, system, fetch

    def check(self, folder: str) -> None:
        """Let the tools of both check a staged folder."""
        self._check("Prometheus", [PROMTOOL, "check", "config", f"{folder}/prometheus.yml"])
        self._check("Alertmanager", [AMTOOL, "check-config", f"{folder}/alertmanager.yml"])

    def _check(self, name: str, words: Sequence[str]) -> None:
        ended = self._system.run(words, seconds=_CHECK_SECONDS)
        if not ended.ok:
            lines = [each[:_LINE] for each in (ended.out + ended.err).splitlines() if "success" not in each.lower()]
            message = f"{name} rejects this configuration; the previous one still runs"
            raise FailedError(message, "report this as a fault in llamaherd", lines[:_MOST_LINES])

    def start(self) -> str:
        """Restart what has another unit or configuration, and make Prometheus read its configuration again."""
        if self._given.restart and not restart_units(self._system, self._given.restart, SERVICE.start_seconds):
            return "it does not start"
        if self._given.reload and not systemctl(self._system, "reload", PROMETHEUS_UNIT, seconds=_RELOAD_SECONDS).ok:
            return "it cannot be reloaded"
        return ""

    def has_read(self) -> bool:
        """Return whether Prometheus has read this configuration, and Alertmanager responds."""
        rules = self._fetch(PROMETHEUS_PORT, _RULES)
        found = _SPEC.search(rules.text) if rules else None
        if found is None or found[1] != self._given.spec:
            return False
        ready = self._fetch(ALERTMANAGER_PORT, "/-/ready")
        return ready is not None and ready.status < _BAD_REQUEST


def fetch_local(port: int, path: str) -> Response | None:
    """Request a path of a port of this host. Return None where nothing responds."""
    # It loads ssl and email, which no command on the controller needs of this module.
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_HTTP_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Response(response.status, response.read(_MOST_BYTES).decode(errors="replace"))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


@dataclass(frozen=True)
class InspectInput:
    """What to inspect: also where nothing is declared any more."""

    watcher: bool
    """Whether Prometheus is planned here."""
    units: tuple[str, ...]
    """The units that are planned here."""


@dataclass(frozen=True)
class Found:
    """Monitoring. `idle`: packages whose own unit runs with the configuration that came with it."""

    units: Mapping[str, ServiceState] = field(default_factory=dict)
    read: str = ""
    """The spec of the configuration that Prometheus has read."""
    idle: tuple[str, ...] = ()


def inspect(given: InspectInput, system: System) -> Found:
    """Inspect llamaherd's units, what Prometheus has read, and the distribution's own units."""
    read = fetch_local(PROMETHEUS_PORT, _RULES) if given.watcher else None
    spec = _SPEC.search(read.text) if read else None
    packages = [DISTRIBUTIONS[unit] for unit in given.units if unit in DISTRIBUTIONS]
    return Found(
        units=find_services(UNITS_OF_OURS, system),
        read=spec[1] if spec else "",
        idle=tuple(each for each in packages if runs_unchanged(f"{each}.service", each, "/etc/", system)),
    )


VERBS = {
    "inspect": Verb(InspectInput, inspect),
    "apply": Verb(WatcherInput, apply),
    "apply_exporter": Verb(ExporterInput, apply_exporter),
    "remove": Verb(RemoveInput, remove),
}
