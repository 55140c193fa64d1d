"""Docker as it is on a host, and what gives GPUs to its containers: see `templates/container_runtime/inspect.sh.j2`."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.host.answers import mapping
from llamaherd.host.state import HostState, StatePart
from llamaherd.layout import UNDO_RUN
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.text.numbers import parse_json, parse_whole

PACKAGES = (
    *("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
    *("libnvidia-container-tools", "libnvidia-container1"),
)
"""NVIDIA's container toolkit: all four go together at one version only (its installation guide)."""

_ENGINES = ("podman-docker", "docker-ce", "docker.io")
DOCKER_PACKAGES = (*_ENGINES, "docker-compose", "docker-compose-v2", "docker-compose-plugin")
"""Packages of engines and of Compose, as Debian, Ubuntu and Docker call theirs."""

DockerVersion = tuple[int, ...]


class SettingsState(NamedTuple):
    """Docker's daemon.json: octal mode, and its bytes."""

    mode: str
    content: bytes


class EngineUnitState(NamedTuple):
    """A unit of Docker's: whether it may not be started, whether it is up; `enabled` is in systemd's words.

    `needs` are units that it has started before it; none are known of one that is masked.
    """

    masked: bool
    active: bool
    enabled: str
    needs: set[str]


_NO_UNIT = EngineUnitState(False, False, "", set())
_SERVICE = "docker.service"


@dataclass
class DockerState(StatePart):
    """What is there of it; nothing of it where all is empty."""

    origin: str = ""
    """Whose it is: `docker.io`, `docker-ce`, `snap`, `podman-docker`; empty for another's."""
    version: DockerVersion = ()
    """Of the engine: (26, 1, 5)."""
    compose: DockerVersion = ()
    """Of `docker compose`; empty where there is none of version 2."""
    units: dict[str, EngineUnitState] = field(default_factory=dict)
    """Docker's own, its socket and containerd's, by name."""
    answers: bool = False
    """Whether its daemon does."""
    live_restore: bool = False
    """Whether containers go on while the daemon is restarted."""
    runtimes: frozenset[str] = frozenset()
    running: list[str] = field(default_factory=list)
    """Names of all containers that run."""
    cdi: bool = False
    """Whether the daemon that runs gives devices by CDI."""
    settings: SettingsState | None = None
    toolkit: dict[str, str] = field(default_factory=dict)
    """Versions of those of the toolkit's packages that are installed."""
    refresh: dict[str, str] = field(default_factory=dict)
    """By unit that describes GPUs for CDI: whether it is enabled, in systemd's words."""
    devices: set[str] = field(default_factory=set)
    """Names that CDI has for GPUs now."""
    armed: bool = False
    """Whether the host takes back what a run has done to Docker, as nobody has logged in anew since."""

    @property
    def there(self) -> bool:
        """Whether there is a Docker at all."""
        return bool(self.version or self.origin)

    @property
    def active(self) -> bool:
        """Whether it runs."""
        return self.units.get(_SERVICE, _NO_UNIT).active

    @property
    def enabled(self) -> bool:
        """Whether it runs after the next boot."""
        return self.units.get(_SERVICE, _NO_UNIT).enabled == "enabled"

    @property
    def masked(self) -> dict[str, str]:
        """Units that keep it from being started now or at the next boot, and how they are masked, in systemd's words.

        What it does without while it runs, it does not need.
        """
        service = self.units.get(_SERVICE, _NO_UNIT)
        return {
            name: unit.enabled
            for name, unit in self.units.items()
            if unit.masked and (service.masked or (name in service.needs and (unit.active or not service.active)))
        }

    def tell(self, what: str, fields: Sequence[str]) -> None:
        """Take in one line of the answer. Raises ValueError on one that cannot have been printed."""
        match what, fields:
            case "armed", []:
                self.armed = True
            case "snap", []:
                self.origin = "snap"
            case "package", [package, version]:
                if package in _ENGINES:
                    self.origin = self.origin or package
                else:
                    self.compose = max(self.compose, _version(version))
            case "compose", [version]:
                self.compose = _version(version)
            case "info", [text]:
                info = mapping(parse_json(text))
                self.answers, self.version = True, _version(str(info["ServerVersion"]))
                self.live_restore = bool(info.get("LiveRestoreEnabled"))
                self.runtimes, self.cdi = frozenset(mapping(info.get("Runtimes"))), bool(info.get("CDISpecDirs"))
            case "silent", [version]:
                self.version = _version(version)
            case "unit", [name, load, active, enabled, needs]:
                self.units[name] = EngineUnitState(load == "masked", active == "active", enabled, set(needs.split()))
            case "running", [name]:
                self.running.append(name)
            case "settings", [mode, content]:
                self.settings = SettingsState(mode, base64.b64decode(content))
            case "toolkit", [package, version, status]:
                if status == "installed":
                    self.toolkit[package] = version
            case "refresh", [unit, enabled]:
                self.refresh[unit] = enabled
            case "device", [name]:
                self.devices.add(name)
            case _:
                raise ValueError(what)


def _version(text: str) -> DockerVersion:
    """`26.1.5+dfsg1` as (26, 1, 5); nothing for what is no version."""
    match = re.match(r"(?:[0-9]+:)?v?([0-9]+(?:\.[0-9]+)*)", text)
    return tuple(parse_whole(number) for number in match[1].split(".")) if match else ()


def inspect(plan: Plan) -> str:
    """Ask whose Docker it is, what it can do, and what runs under it."""
    if plan.runtime is None:
        return ""
    return render(
        "container_runtime/inspect.sh.j2",
        runtime=plan.runtime,
        toolkit_packages=PACKAGES,
        docker_packages=DOCKER_PACKAGES,
        undos=UNDO_RUN,
    )


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    if kind != "docker" or not fields:
        return False
    DockerState.within(state).tell(fields[0], fields[1:])
    return True
