"""The state of Docker on a host, and of what gives GPUs to its containers."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.host.state import HostState, StatePart
from llamaherd.plan import Plan
from llamaherd.text.numbers import parse_whole
from roles.container_runtime import daemon
from roles.container_runtime.onhost import Found, Question, UnitFound

PACKAGES = (
    *("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
    *("libnvidia-container-tools", "libnvidia-container1"),
)
"""NVIDIA's container toolkit: all four go together at one version only (its installation guide)."""

_ENGINES = ("podman-docker", "docker-ce", "docker.io")
DOCKER_PACKAGES = (*_ENGINES, "docker-compose", "docker-compose-v2", "docker-compose-plugin")
"""Packages of engines and of Compose, as Debian, Ubuntu and Docker call theirs."""

DockerVersion = tuple[int, ...]


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
    settings: bytes | None = None
    """Docker's settings, if it has any."""
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


def _version(text: str) -> DockerVersion:
    """`26.1.5+dfsg1` as (26, 1, 5); nothing for what is no version."""
    match = re.match(r"(?:[0-9]+:)?v?([0-9]+(?:\.[0-9]+)*)", text)
    return tuple(parse_whole(number) for number in match[1].split(".")) if match else ()


def question(plan: Plan) -> Question | None:
    """Return what to inspect."""
    if plan.runtime is None:
        return None
    return Question(DOCKER_PACKAGES, PACKAGES, daemon.PATH) if plan.runtime.toolkit else Question(DOCKER_PACKAGES)


def take(state: HostState, found: Found) -> None:
    """Add what was found to the host's state. Raise ValueError for an invalid version or settings."""
    engines = [name for name in found.packages if name in _ENGINES]
    compose = [version for name, version in found.packages.items() if "compose" in name]
    docker = DockerState(
        origin="snap" if found.is_snap else next(iter(engines), ""),
        version=_version(found.daemon.version if found.daemon else found.program),
        compose=max(map(_version, compose or [found.compose])),
        units={name: _unit(each) for name, each in found.units.items()},
        settings=base64.b64decode(found.settings.text, validate=True) if found.settings else None,
        toolkit={name: version for name, version in found.packages.items() if name in PACKAGES},
        refresh=dict(found.refresh),
        devices=set(found.devices),
        armed=found.armed,
    )
    if found.daemon:
        docker.answers = True
        docker.live_restore, docker.cdi = found.daemon.live_restore, found.daemon.cdi
        docker.runtimes, docker.running = frozenset(found.daemon.runtimes), [*found.daemon.running]
    DockerState.keep(state, docker)


def _unit(found: UnitFound) -> EngineUnitState:
    return EngineUnitState(found.load == "masked", found.active == "active", found.enabled, set(found.needs))
