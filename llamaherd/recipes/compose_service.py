"""A service of a Compose file, with what it extends: its values, and where each is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamaherd.diagnostics.findings import Finding, InventoryError, Place
from llamaherd.inventory.yaml_file import Document, Path_, parse_yaml
from llamaherd.recipes.commands import Position, Text, positioned, without_jinja, yaml_text_at
from llamaherd.recipes.containers import Container, mount_target
from llamaherd.recipes.memory_limits import limit_bytes
from llamaherd.recipes.recipe import LARGEST, NOT_READ, ServerCommand
from llamaherd.text.numbers import whole_number
from llamaherd.text.textfile import UnreadableError, read_text

SHARED = 1 << 30
"""Bytes of shared or locked memory that are more than a container's default."""
_DEEPEST = 5
"""How many services a service may extend, one by one."""
_REPLACED = frozenset(("command", "entrypoint", "image", "build", "healthcheck"))
"""Keys whose value replaces that of an extended service as a whole."""


@dataclass(frozen=True)
class Source:
    """One mapping of a service: its own, or that of a service that it extends."""

    document: Document
    whole: Text
    path: Path_
    declared: Mapping[str, Any]
    elsewhere: Position | None = None
    """Where the checked file names another file that holds this mapping."""

    def at(self, *steps: str | int) -> Position:
        """Return the position of a value below."""
        place = self.document.value((*self.path, *steps))
        return self.elsewhere or (place.line, place.column)

    def text(self, value: str, *steps: str | int) -> Text:
        """Return a value below with the position of each of its characters, whether quoted, folded or plain."""
        if self.elsewhere:
            return Text(value, (self.elsewhere,) * len(value))
        return yaml_text_at(self.document, self.whole, (*self.path, *steps), value)


@dataclass(frozen=True)
class Service:
    """One service: its mappings, the last of which counts most, and its container and server if they are known."""

    name: str
    sources: tuple[Source, ...]
    container: Container | None = None
    server: ServerCommand | None = None
    complete: bool = True
    """False if a part of it is in a file that was not read."""

    @property
    def declared(self) -> dict[str, Any]:
        """All values together."""
        merged: dict[str, Any] = {}
        for source in self.sources:
            for key, value in source.declared.items():
                merged[key] = value if key in _REPLACED else _merged(merged.get(key), value)
        return merged

    def last(self, key: str) -> tuple[Source, Any] | None:
        """Return the value of a key that replaces others, and its source."""
        found = [(source, source.declared[key]) for source in self.sources if source.declared.get(key) is not None]
        return found[-1] if found else None

    def items(self, key: str) -> Iterator[tuple[Source, str | int, Any]]:
        """Yield the items of a list or mapping in all sources, each with its step."""
        for source in self.sources:
            value = source.declared.get(key)
            for step, item in value.items() if isinstance(value, dict) else enumerate(as_list(value)):
                yield source, step, item

    @property
    def at(self) -> Position:
        """The position of the service."""
        return self.sources[-1].at()

    @property
    def profiles(self) -> frozenset[str]:
        """The profiles with which it starts; empty for all."""
        return frozenset(map(str, as_list(self.declared.get("profiles"))))

    def may_run_with(self, other: Service) -> bool:
        """Return whether both may run at the same time."""
        return not self.profiles or not other.profiles or bool(self.profiles & other.profiles)


def _merged(before: Any, value: Any) -> Any:
    """Return two values of one key as Compose merges them (compose-spec/spec.md, "Merge")."""
    if isinstance(before, dict) and isinstance(value, dict):
        return {**before, **{key: _merged(before.get(key), each) for key, each in value.items()}}
    return [*before, *value] if isinstance(before, list) and isinstance(value, list) else value


def service_of(document: Document, whole: Text, name: str, *, files: bool) -> tuple[Service, list[Finding]]:
    """Return a service with those that it extends, and a finding for each that was not read.

    `files`: whether other files may be read.
    """
    declared = document.data["services"][name]
    own = Source(document, whole, ("services", name), as_mapping(declared))
    sources, found = [own], list[Finding]()
    while len(sources) <= _DEEPEST and (base := sources[0].declared.get("extends")):
        first = sources[0]
        wanted = base if isinstance(base, str) else str(as_mapping(base).get("service", ""))
        file = as_mapping(base).get("file")
        here, text, elsewhere = first.document, first.whole, first.elsewhere
        if isinstance(file, str):
            elsewhere = first.at("extends")
            other = _other_file(first.document.file.absolute().parent / file) if files and "$" not in file else None
            if other is None:
                message = f"`{name}` extends a service of `{file}`, which was not read: what it sets is unknown"
                way_out = "put the file next to this one, or check what `docker compose config` prints"
                found.append(NOT_READ.at(Place(document.file, *elsewhere), message, way_out))
                return Service(name, tuple(sources), complete=False), found
            here, text = other
        services = as_mapping(here.data.get("services"))
        if not isinstance(services.get(wanted), dict):
            return Service(name, tuple(sources), complete=False), found
        sources.insert(0, Source(here, text, ("services", wanted), services[wanted], elsewhere))
    return Service(name, tuple(sources)), found


def _other_file(path: Path) -> tuple[Document, Text] | None:
    try:
        text = without_jinja(read_text(path, LARGEST))
        return parse_yaml(path, text, merging=True), positioned(text)
    except (UnreadableError, InventoryError, OSError, ValueError):
        return None


def as_mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def mount_targets(service: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the mount paths in a container."""
    mounted = [
        found for key in ("volumes", "configs") for each in as_list(service.get(key)) if (found := _target(each, key))
    ]
    return (*mounted, "/run/secrets") if service.get("secrets") else tuple(mounted)


def _target(volume: Any, key: str) -> str | None:
    """Return the path in the container where a volume or a config is mounted."""
    if isinstance(volume, dict):
        return str(volume.get("target", "")) or None
    if key == "configs":
        return f"/{volume}"
    return mount_target(str(volume))


def variables_of(value: Any) -> dict[str, str]:
    """Return the variables of `environment:` in both its forms, without names whose value is from the shell."""
    if isinstance(value, dict):
        return {name: str(setting) for name, setting in value.items() if setting is not None}
    pairs = [str(item).partition("=") for item in as_list(value) if isinstance(item, str)]
    return {name: setting for name, equals, setting in pairs if equals}


def given_devices(service: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the devices that a service reserves by `deploy` or `gpus`."""
    resources = as_mapping(as_mapping(service.get("deploy")).get("resources"))
    devices = as_list(as_mapping(resources.get("reservations")).get("devices")) + as_list(service.get("gpus"))
    return [each for each in devices if isinstance(each, dict)]


def has_cards(service: Mapping[str, Any]) -> bool:
    """Return whether a GPU is given to a service."""
    given = service.get("runtime") == "nvidia" or "devices" in service or bool(service.get("gpus"))
    return given or bool(given_devices(service))


def given_cards(service: Mapping[str, Any]) -> int | None:
    """Return the number of GPUs that a service gets; None if it is not set."""
    devices = given_devices(service)
    counts = [len(as_list(each["device_ids"])) if "device_ids" in each else each.get("count") for each in devices]
    numbers = [number for count in counts if (number := whole_number(str(count), 999)) is not None]
    return sum(numbers) if counts and len(numbers) == len(counts) else None


def given_ids(service: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the GPUs that a service names."""
    return tuple(str(each) for device in given_devices(service) for each in as_list(device.get("device_ids")))


def may_lock(service: Mapping[str, Any]) -> bool:
    """Return whether a container may lock more memory than the default."""
    limit = as_mapping(service.get("ulimits")).get("memlock")
    limit = as_mapping(limit).get("soft", 0) if isinstance(limit, dict) else limit
    lifted = isinstance(limit, int) and (limit < 0 or limit >= SHARED)
    return lifted or "IPC_LOCK" in map(str, as_list(service.get("cap_add"))) or service.get("privileged") is True


def shares_memory(service: Mapping[str, Any]) -> bool:
    """Return whether a container has more shared memory than the default."""
    return "ipc" in service or (limit_bytes(str(service.get("shm_size"))) or 0) >= SHARED


def most_memory(service: Mapping[str, Any]) -> str:
    """Return the limit of a container's memory; empty for none."""
    limits = as_mapping(as_mapping(as_mapping(service.get("deploy")).get("resources")).get("limits"))
    limit = service.get("mem_limit", limits.get("memory", ""))
    return str(limit) if isinstance(limit, str | int) else ""
