"""What is wrong between the lines of a Compose file: services beside each other, and what one needs around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from llamaherd.diagnostics.findings import Finding, Place, Severity
from llamaherd.diagnostics.rule import Rule
from llamaherd.inventory.yamlfile import Document, Path_
from llamaherd.recipes.compose_rules import (
    KEY_IN_COMPOSE,
    NETWORK_MODE,
    REFUSED_BY_COMPOSE,
    RESTART_POLICY,
    WAITS_IN_VAIN,
    WANTED_TWICE,
)
from llamaherd.recipes.composeservice import Service, as_mapping, listed, reserved
from llamaherd.recipes.programs import ServerCommand
from llamaherd.recipes.servers import is_loopback
from llamaherd.recipes.unitrules import SECRET_NAME
from llamaherd.reference import images
from llamaherd.text.numbers import parse_real, whole

_RESTARTS = re.compile(r"no|false|always|unless-stopped|on-failure(?::\d+)?")
_MOST_CARDS = 16
"""What `all` stands for when two services are compared."""


def check(document: Document, services: list[Service]) -> Iterator[Finding]:
    """Everything wrong between the lines."""
    rules = _Rules(document, services)
    for service in services:
        yield from rules.network(service)
        yield from rules.dependencies(service)
        yield from rules.devices(service)
        yield from rules.restart(service)
        yield from rules.secrets(service)
        yield from rules.alone(service)
    for first, second in combinations(services, 2):
        if first.beside(second):
            yield from rules.together(first, second)


@dataclass(frozen=True)
class _Rules:
    document: Document
    services: list[Service]

    def _said(self, rule: Rule, path: Path_, message: str, way_out: str, severity: Severity | None = None) -> Finding:
        return rule.at(self.document.value(path), message, way_out, severity)

    def network(self, service: Service) -> Iterator[Finding]:
        """Keys that a network mode rules out."""
        mode = service.declared.get("network_mode")
        if mode is not None and service.declared.get("networks"):
            message = "Compose refuses `network_mode` and `networks` in one service"
            yield self._said(NETWORK_MODE, (*service.path, "networks"), message, "keep one of them")
        if mode == "host" and service.declared.get("ports"):
            message = "with `network_mode: host` no port is published: the server listens on the host itself"
            way_out = "leave `ports` out, and choose address and port by `--host` and `--port`"
            yield self._said(NETWORK_MODE, (*service.path, "ports"), message, way_out, "warning")

    def dependencies(self, service: Service) -> Iterator[Finding]:
        """What `depends_on` waits for."""
        conditions = _wanted(service)
        others = {each.name: each for each in self.services}
        for name, condition in conditions.items():
            other = others.get(name)
            path = (*service.path, "depends_on", name)
            if other is None and "include" not in self.document.data:
                message = f"`{name}` is no service of this file, and Compose refuses it"
                yield self._said(WAITS_IN_VAIN, path, message, f"services here: {', '.join(sorted(others))}")
            elif other and as_mapping(condition).get("condition") == "service_healthy" and not _has_health(other):
                message = f"`{service.name}` waits for `{name}` to be healthy, and `{name}` has no health check"
                yield self._said(WAITS_IN_VAIN, path, message, f"give `{name}` a `healthcheck`")
            elif name == service.name:
                message = f"`{name}` would wait for itself, and Compose refuses that"
                yield self._said(WAITS_IN_VAIN, path, message, "leave it out")
            elif other and name > service.name and service.name in _wanted(other):
                message = f"`{service.name}` and `{name}` wait for each other, and Compose refuses that"
                yield self._said(WAITS_IN_VAIN, path, message, "leave out one of the two")
            elif other and (not service.beside(other) or (other.profiles and not service.profiles)):
                message = f"`{name}` starts with other profiles than `{service.name}`, which depends on it"
                yield self._said(WAITS_IN_VAIN, path, message, "give both a profile in common", "warning")

    def devices(self, service: Service) -> Iterator[Finding]:
        """Reservations that contradict themselves."""
        for index, device in enumerate(reserved(service.declared)):
            path = (*service.path, "deploy", "resources", "reservations", "devices", index)
            if "count" in device and "device_ids" in device:
                message = "Compose refuses `count` beside `device_ids`"
                yield self._said(
                    REFUSED_BY_COMPOSE, (*path, "count"), message, "leave `count` out: the ids say how many"
                )
            kinds = device.get("capabilities")
            if isinstance(kinds, list) and "driver" not in device and "gpu" not in kinds:
                message = "this reserves no GPU: `gpu` is not among its capabilities"
                yield self._said(REFUSED_BY_COMPOSE, (*path, "capabilities"), message, "write `capabilities: [gpu]`")

    def restart(self, service: Service) -> Iterator[Finding]:
        """Policies that Docker refuses."""
        policy = service.declared.get("restart")
        if isinstance(policy, str) and "$" not in policy and not _RESTARTS.fullmatch(policy):
            message = f"Docker knows no restart policy `{policy}`"
            way_out = "write `unless-stopped`, `always`, `on-failure` or `no`"
            yield self._said(RESTART_POLICY, (*service.path, "restart"), message, way_out)

    def alone(self, service: Service) -> Iterator[Finding]:
        """What one service says twice, or wants once for several containers."""
        resources = as_mapping(as_mapping(service.declared.get("deploy")).get("resources"))
        limit, other = service.declared.get("mem_limit"), as_mapping(resources.get("limits")).get("memory")
        if limit is not None and other is not None and str(limit).lower() != str(other).lower():
            message = f"`mem_limit: {limit}` and `deploy.resources.limits.memory: {other}` contradict each other"
            yield self._said(
                REFUSED_BY_COMPOSE, (*service.path, "mem_limit"), f"{message}, and Compose refuses that", "keep one"
            )
        replicas = as_mapping(service.declared.get("deploy")).get("replicas", service.declared.get("scale"))
        several = isinstance(replicas, int) and replicas > 1
        if several and service.declared.get("container_name"):
            message = f"{replicas} containers cannot have one name, and Compose refuses that"
            yield self._said(WANTED_TWICE, (*service.path, "container_name"), message, "leave `container_name` out")
        elif several and service.container and any(whole(port.host) is not None for port in service.container.ports):
            message = f"{replicas} containers want one port of the host: the second does not start"
            yield self._said(
                WANTED_TWICE, (*service.path, "ports"), message, "a service for each, with a port of its own"
            )

    def secrets(self, service: Service) -> Iterator[Finding]:
        """Keys that stand in the file."""
        environment = service.declared.get("environment")
        pairs: list[tuple[str | int, str, Any]] = [
            (name, name, value) for name, value in as_mapping(environment).items()
        ]
        for index, item in enumerate(listed(environment)):
            name, _, value = str(item).partition("=")
            pairs.append((index, name, value))
        for step, name, value in pairs:
            text = "" if value is None else str(value)
            if SECRET_NAME.search(name) and text and "$" not in text and not text.startswith("/"):
                message = f"the value of `{name}` stands in this file, for everybody who reads or copies it"
                way_out = f"put `{name}=…` into a file of mode 0600, and name that in `env_file`"
                yield self._said(KEY_IN_COMPOSE, (*service.path, "environment", step), message, way_out)

    def together(self, first: Service, second: Service) -> Iterator[Finding]:
        """What two services both want."""
        yield from self._ports(first, second)
        name = second.declared.get("container_name")
        if name and name == first.declared.get("container_name"):
            message = f"`{first.name}` and `{second.name}` both want to be the container `{name}`"
            yield self._said(WANTED_TWICE, (*second.path, "container_name"), message, "give each a name of its own")
        both = [each.server for each in (first, second) if each.server and each.server.program == "vllm"]
        shares = [utilization(server) for server in both]
        cards = _cards(first) & _cards(second)
        if len(both) == 2 and cards and sum(shares) > 1:
            message = f"`{first.name}` takes {shares[0]:g} of a GPU, and `{second.name}` {shares[1]:g} of the same one"
            way_out = "give each a GPU by `device_ids`, or shares that add up to less than 1"
            yield self._said(WANTED_TWICE, second.path, f"{message}: the second does not start", way_out)

    def _ports(self, first: Service, second: Service) -> Iterator[Finding]:
        if first.container is None or second.container is None:
            return
        for port in second.container.ports:
            for other in first.container.ports:
                same = (
                    port.host == other.host and whole(port.host) is not None and _overlap(port.address, other.address)
                )
                if same and port.text.endswith("/udp") == other.text.endswith("/udp"):
                    message = f"port {port.host} of the host is `{first.name}`'s already: the second does not start"
                    place = Place(self.document.file, *port.start)
                    yield WANTED_TWICE.at(place, message, "publish each on a port of its own")


def _wanted(service: Service) -> dict[str, Any]:
    """What a service waits for, with the condition where one is given."""
    wanted = service.declared.get("depends_on")
    return {str(name): None for name in wanted} if isinstance(wanted, list) else as_mapping(wanted)


def _overlap(first: str, second: str) -> bool:
    everywhere = {"", "0.0.0.0", "::", "[::]"}
    return first in everywhere or second in everywhere or first == second or (is_loopback(first) and first == second)


def _has_health(service: Service) -> bool:
    """Whether a container can be healthy: by the file, or by its image, which is known of some alone."""
    declared = service.declared.get("healthcheck")
    if isinstance(declared, dict):
        return declared.get("disable") is not True and declared.get("test") not in ("NONE", ["NONE"])
    if service.container is None:
        return True
    if service.container.repository in images.VLLM:
        return False
    return not service.container.official or service.container.tag.startswith("server")


def utilization(server: ServerCommand) -> float:
    """The share of a GPU that a vLLM takes."""
    word = server.value("--gpu-memory-utilization")
    try:
        return parse_real(str(word)) if word else 0.9  # vLLM 0.33.0, config/cache.py
    except ValueError:
        return 0.0


def _cards(service: Service) -> frozenset[str]:
    """Which GPUs a service sees: their ids; those that Docker counts off are the first ones."""
    devices = reserved(service.declared)
    gpus = service.declared.get("gpus")
    devices += [each for each in gpus if isinstance(each, dict)] if isinstance(gpus, list) else []
    environment = service.container.environment if service.container else {}
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        if name in environment and not environment[name].unknown and str(environment[name]) != "all":
            return frozenset(str(environment[name]).split(","))
    ids = [str(each) for device in devices for each in listed(device.get("device_ids"))]
    if ids:
        return frozenset(ids)
    counts = [str(device.get("count", "all")) for device in devices]
    numbers = [number for count in counts if (number := whole(count, _MOST_CARDS)) is not None]
    if counts and len(numbers) == len(counts):
        return frozenset(str(number) for number in range(sum(numbers)))
    return frozenset(map(str, range(_MOST_CARDS))) if devices or gpus else frozenset()
