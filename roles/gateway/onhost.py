"""The gateway's part of the program on hosts: apply HAProxy's configuration, and remove the gateway."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from llamaherd.layout import GATEWAY, GATEWAY_TALK, GATEWAY_UNIT, GATEWAY_USER, WRITTEN
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.files import WrittenFile
from llamaherd.onhost.services import (
    Service,
    ServiceState,
    apply_configuration,
    end_package_units,
    find_services,
    locked,
    remove_service,
    require_installed,
    restart_units,
    runs_unchanged,
)
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb

HAPROXY = "/usr/sbin/haproxy"
PACKAGE_UNIT = "haproxy.service"
How = Literal["restart", "reload", "maps"]
_TALK = str(GATEWAY_TALK)
_CHECK_SECONDS, _TALK_SECONDS, _RELOAD_SECONDS = 120, 60, 150
_MOST_LINES = 3

SERVICE = Service(
    name="the gateway",
    record="gateway",
    folder=str(GATEWAY),
    user=GATEWAY_USER,
    units=(GATEWAY_UNIT,),
    restored="what served before does again",
    restore="reload-or-restart",
    tries=40,
    pause=0.25,
    log_lines=20,
)


@dataclass(frozen=True)
class ApplyInput:
    """The planned gateway."""

    files: tuple[WrittenFile, ...]
    """What HAProxy reads: its configuration, and maps of users."""
    outside: tuple[WrittenFile, ...]
    """The unit, and the program that talks to the gateway."""
    spec: str
    """What HAProxy reports once it has read the configuration."""
    how: How
    """What makes it read: maps are sent while it runs, a reload ends no stream, a restart ends all."""
    idle_own: bool
    """Whether the unused unit of HAProxy's package runs."""


def apply(given: ApplyInput, system: System) -> None:
    """Apply the planned gateway. Raise FailedError if it does not run; the previous one is restored then."""
    with locked(system, "applying the gateway"):
        require_installed(system, "HAProxy", [HAPROXY], GATEWAY_USER)
        if given.idle_own:
            end_package_units(system, [PACKAGE_UNIT])
        fingerprints = [each.path for each in given.files]
        apply_configuration(system, SERVICE, Haproxy(given, system), given.files, given.outside, fingerprints)


def remove(_: NoInput, system: System) -> None:
    """Remove the gateway, with its keys."""
    with locked(system, "removing the gateway"):
        folders = [f"{GATEWAY}{each}" for each in ("", ".new", ".old")]
        remove_service(system, [GATEWAY_UNIT], [*folders, _TALK, f"{WRITTEN}/gateway"])


class Haproxy:
    """What HAProxy does with a new configuration."""

    def __init__(self, given: ApplyInput, system: System) -> None:
        self._given, self._system = given, system

    def check(self, folder: str) -> None:
        """Let HAProxy check a staged folder. Its output may contain a line with a key: only line numbers are shown."""
        words = [HAPROXY, "-c", "-q", "-C", folder, "-f", f"{folder}/haproxy.cfg"]
        ended = self._system.run(words, seconds=_CHECK_SECONDS)
        if not ended.ok:
            lines = re.findall(r"haproxy\.cfg:[0-9]*", ended.out + ended.err)
            message = "HAProxy rejects this configuration; the previous one still runs"
            help_ = "if `tls` names a certificate, check its files; otherwise report this as a fault in llamaherd"
            raise FailedError(message, help_, lines[:_MOST_LINES])

    def start(self) -> str:
        """Make HAProxy read the configuration. One that refuses new maps reads all again."""
        if self._given.how == "restart":
            return "" if restart_units(self._system, SERVICE.units) else "it does not start"
        if self._given.how == "maps" and self._system.run([_TALK, "maps"], seconds=_TALK_SECONDS).ok:
            return ""
        reloaded = systemctl(self._system, "reload", GATEWAY_UNIT, seconds=_RELOAD_SECONDS)
        return "" if reloaded.ok else "it cannot be reloaded"

    def has_read(self) -> bool:
        """Return whether the running HAProxy reports this configuration, and the users of its files."""
        ended = self._system.run([_TALK, "state"], seconds=_TALK_SECONDS)
        return ended.ok and ended.out.strip() == f"{self._given.spec} same"


@dataclass(frozen=True)
class InspectInput:
    """What to inspect: also on a host that the fleet's gateway has left."""

    planned: bool
    """Whether the plan has a gateway here."""


@dataclass(frozen=True)
class RunningState:
    """What the running process reports: its configuration's hash, its port, and whether its maps match the files."""

    spec: str
    port: int | None
    maps_are_read: bool


@dataclass(frozen=True)
class Found:
    """The gateway. `idle_own`: the distribution's unit runs by the configuration that its package brought."""

    unit: ServiceState | None = None
    running: RunningState | None = None
    idle_own: bool = False


def inspect(given: InspectInput, system: System) -> Found:
    """Inspect the gateway's unit, its process, and the distribution's own unit."""
    unit = find_services([GATEWAY_UNIT], system).get(GATEWAY_UNIT)
    if not given.planned:
        return Found(unit)
    idle = runs_unchanged("haproxy.service", "haproxy", "/etc/haproxy/haproxy.cfg", system)
    return Found(unit, _running(system) if unit and unit.spec else None, idle)


def _running(system: System) -> RunningState | None:
    """Return what the gateway's program prints about the process: `SPEC/PORT same`."""
    words = system.run([str(GATEWAY_TALK), "state"]).out.split()
    if len(words) != 2:
        return None
    spec, _, port = words[0].partition("/")
    return RunningState(spec, int(port) if port.isdigit() else None, words[1] == "same")


VERBS = {"inspect": Verb(InspectInput, inspect), "apply": Verb(ApplyInput, apply), "remove": Verb(NoInput, remove)}
