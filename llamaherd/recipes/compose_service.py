"""A service of a Compose file, with what it extends: its values, and where each is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamaherd.diagnostics.findings import Finding, InventoryError, Place
from llamaherd.inventory.yaml_file import Path_
from llamaherd.recipes.commands import (
    Position,
    Text,
    YamlFile,
    interpolated,
    placed,
    without_dollars,
    without_jinja,
    yaml_file,
)
from llamaherd.recipes.containers import Container, ContainerOption
from llamaherd.recipes.recipe import NOT_READ, ServerCommand, text_of

_DEEPEST = 5
"""How many services a service may extend, one by one."""
_REPLACED = frozenset(("command", "entrypoint", "image", "build", "healthcheck"))
"""Keys whose value replaces that of an extended service as a whole."""


@dataclass(frozen=True)
class Source:
    """One mapping of a service: its own, or that of a service that it extends."""

    file: YamlFile
    path: Path_
    declared: Mapping[str, Any]
    elsewhere: Position | None = None
    """Where the checked file names another file that holds this mapping."""

    def at(self, *steps: str | int) -> Position:
        """Return the position of a value below."""
        return self.elsewhere or self.file.at((*self.path, *steps))

    def text(self, value: Any, *steps: str | int) -> Text:
        """Return a value below with the position of each of its characters."""
        if self.elsewhere:
            return placed(str(value), self.elsewhere)
        return self.file.value((*self.path, *steps), str(value))


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


def service_of(file: YamlFile, name: str, *, files: bool) -> tuple[Service, list[Finding]]:
    """Return a service with those that it extends, and a finding for each that was not read.

    `files`: whether other files may be read.
    """
    declared = file.document.data["services"][name]
    sources, found = [Source(file, ("services", name), as_mapping(declared))], list[Finding]()
    while len(sources) <= _DEEPEST and (base := sources[0].declared.get("extends")):
        first = sources[0]
        wanted = base if isinstance(base, str) else str(as_mapping(base).get("service", ""))
        named = as_mapping(base).get("file")
        here, elsewhere = first.file, first.elsewhere
        if isinstance(named, str):
            elsewhere = first.at("extends")
            other = _other_file(first.file.document.file.absolute().parent / named) if files else None
            if other is None:
                message = f"`{name}` extends a service of `{named}`, which was not read: what it sets is unknown"
                way_out = "put the file next to this one, or check what `docker compose config` prints"
                found.append(NOT_READ.at(Place(file.document.file, *elsewhere), message, way_out))
                return Service(name, tuple(sources), complete=False), found
            here = other
        services = as_mapping(here.document.data.get("services"))
        if not isinstance(services.get(wanted), dict):
            return Service(name, tuple(sources), complete=False), found
        sources.insert(0, Source(here, ("services", wanted), services[wanted], elsewhere))
    return Service(name, tuple(sources)), found


def _other_file(path: Path) -> YamlFile | None:
    text = text_of(path)
    try:
        return yaml_file(path, without_jinja(text), merging=True) if text is not None else None
    except InventoryError:
        return None


def as_mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def options_of(service: Service, outside: Mapping[str, str], *, files: bool) -> Iterator[ContainerOption]:
    """Yield the options of `docker run` for the same container. `files`: whether files of variables may be read."""
    for key, name in _LISTS.items():
        for source, step, item in service.items(key):
            for value in _values(key, step, item):
                yield _option(name, value, source.at(key, step), outside)
    declared = service.declared
    if declared.get("secrets"):
        yield _option("--mount", "target=/run/secrets", service.at, outside)
    for key, name in _SINGLE.items():
        if found := service.last(key):
            yield _option(name, str(found[1]), found[0].at(key), outside)
    if declared.get("privileged") is True:
        yield _option("--privileged", "", service.at, outside)
    resources = as_mapping(as_mapping(declared.get("deploy")).get("resources"))
    limit = as_mapping(resources.get("limits")).get("memory")
    if limit is not None and "mem_limit" not in declared:
        yield _option("--memory", str(limit), service.at, outside)
    limit = as_mapping(declared.get("ulimits")).get("memlock")
    limit = as_mapping(limit).get("soft") if isinstance(limit, dict) else limit
    yield _option("--ulimit", f"memlock={limit}", service.at, outside)
    reserved = as_list(as_mapping(resources.get("reservations")).get("devices"))
    for device in (each for each in (*reserved, *as_list(declared.get("gpus"))) if isinstance(each, dict)):
        yield _option("--gpus", gpus_of(device), service.at, outside)
    if isinstance(declared.get("gpus"), str | int):
        yield _option("--gpus", str(declared["gpus"]), service.at, outside)
    owner, named = service.last("env_file") or (service.sources[-1], None)
    for each in ([named] if isinstance(named, str | dict) else as_list(named)) if files else ():
        yield _option("--env-file", str(as_mapping(each).get("path", each)), owner.at("env_file"), outside)


_LISTS = {
    "ports": "--publish",
    "volumes": "--volume",
    "configs": "--mount",
    "environment": "--env",
    "devices": "--device",
    "cap_add": "--cap-add",
}
_SINGLE = {
    "network_mode": "--network",
    "runtime": "--runtime",
    "ipc": "--ipc",
    "shm_size": "--shm-size",
    "mem_limit": "--memory",
    "cpuset": "--cpuset-cpus",
}
"""The options of `docker run` by keys of a service with several values, and with one."""


def _option(name: str, value: str, at: Position, outside: Mapping[str, str]) -> ContainerOption:
    return ContainerOption(name, without_dollars(interpolated(placed(value, at), outside)), at)


def _values(key: str, step: str | int, item: Any) -> Iterator[str]:
    """Yield the value of an option for an item of a list or mapping."""
    given = as_mapping(item)
    if key == "environment":
        pair = f"{step}={item}" if isinstance(step, str) and item is not None else str(item)
        if "=" in pair:
            yield pair
    elif key == "ports" and given:
        inside = str(given.get("target", ""))
        parts = (given.get("host_ip"), given.get("published", inside), inside)
        protocol = "/udp" if given.get("protocol") == "udp" else ""
        yield ":".join(str(each) for each in parts if each is not None) + protocol
    elif key == "configs":
        yield f"target={given.get('target', '') if given else f'/{item}'}"
    elif given:
        yield f"source={given.get('source', '')},target={given.get('target', '')}"
    elif isinstance(item, str | int):
        yield str(item)


def gpus_of(device: Mapping[str, Any]) -> str:
    """Return the value of `--gpus` for a device that Compose or Ansible reserves."""
    ids = device.get("device_ids")
    return f"device={','.join(map(str, ids))}" if isinstance(ids, list) else str(device.get("count", "all"))
