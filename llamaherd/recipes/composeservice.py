"""A service of a Compose file: what its mapping declares, in whichever of its forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llamaherd.inventory.yamlfile import Path_
from llamaherd.recipes.containers import Container
from llamaherd.recipes.memorylimit import bytes_of
from llamaherd.recipes.programs import ServerCommand
from llamaherd.text.numbers import whole

SHARED = 1 << 30
"""Bytes of shared or locked memory that are more than a container's default."""


@dataclass(frozen=True)
class Service:
    """One service: as it is declared, and what it runs where that is known."""

    path: Path_
    declared: Mapping[str, Any]
    container: Container | None = None
    server: ServerCommand | None = None

    @property
    def name(self) -> str:
        """What the file calls it."""
        return str(self.path[-1])

    @property
    def profiles(self) -> frozenset[str]:
        """With which profiles it starts; with every one where there is none."""
        given = self.declared.get("profiles")
        return frozenset(map(str, given)) if isinstance(given, list) else frozenset()

    def beside(self, other: Service) -> bool:
        """Whether both may run at one time."""
        return not self.profiles or not other.profiles or bool(self.profiles & other.profiles)


def as_mapping(value: Any) -> dict[str, Any]:
    """The value, if it is a mapping."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """The value, if it is a list."""
    return value if isinstance(value, list) else []


def target(volume: Any) -> str | None:
    """The path in the container where a volume or a config is mounted."""
    if isinstance(volume, dict):
        return str(volume.get("target", "")) or None
    parts = re.sub(r"\$\{[^}]*\}|^[A-Za-z]:(?=[\\/])", "", str(volume)).split(":")
    return parts[1] if len(parts) > 1 else parts[0]


def mounts(service: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The paths in a container where something is mounted; None where other files may say more."""
    if "extends" in service:
        return None
    mounted = [found for key in ("volumes", "configs") for each in listed(service.get(key)) if (found := target(each))]
    return (*mounted, "/run/secrets") if service.get("secrets") else tuple(mounted)


def variables_of(value: Any) -> dict[str, str]:
    """`environment:` in both its forms; a name alone passes on what the shell has."""
    if isinstance(value, dict):
        return {name: str(setting) for name, setting in value.items() if setting is not None}
    pairs = [str(item).partition("=") for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return {name: setting for name, equals, setting in pairs if equals}


def reserved(service: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The devices that a service reserves."""
    resources = as_mapping(as_mapping(service.get("deploy")).get("resources"))
    devices = as_mapping(resources.get("reservations")).get("devices")
    return [each for each in devices if isinstance(each, dict)] if isinstance(devices, list) else []


def has_cards(service: Mapping[str, Any]) -> bool:
    """Whether a GPU is reserved by `deploy` or `gpus`."""
    return bool(reserved(service)) or bool(service.get("gpus"))


def given_cards(service: Mapping[str, Any]) -> int | None:
    """How many GPUs a service is given; None where that is not told."""
    devices = reserved(service) + [each for each in listed(service.get("gpus")) if isinstance(each, dict)]
    counts = [len(listed(each["device_ids"])) if "device_ids" in each else each.get("count") for each in devices]
    numbers = [number for count in counts if (number := whole(str(count), 999)) is not None]
    return sum(numbers) if counts and len(numbers) == len(counts) else None


def may_lock(service: Mapping[str, Any]) -> bool:
    """Whether a container may lock more memory than a little."""
    limit = as_mapping(service.get("ulimits")).get("memlock")
    limit = as_mapping(limit).get("soft", 0) if isinstance(limit, dict) else limit
    lifted = isinstance(limit, int) and (limit < 0 or limit >= SHARED)
    return lifted or "IPC_LOCK" in map(str, listed(service.get("cap_add"))) or service.get("privileged") is True


def shares_memory(service: Mapping[str, Any]) -> bool:
    """Whether a container shares more memory than a little."""
    return "ipc" in service or (bytes_of(str(service.get("shm_size"))) or 0) >= SHARED


def most_memory(service: Mapping[str, Any]) -> str:
    """The limit of a container's memory; empty for none."""
    limits = as_mapping(as_mapping(as_mapping(service.get("deploy")).get("resources")).get("limits"))
    limit = service.get("mem_limit", limits.get("memory", ""))
    return str(limit) if isinstance(limit, str | int) else ""
