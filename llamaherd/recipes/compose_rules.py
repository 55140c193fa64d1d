"""Rules for the services of a Compose file: shared ports and GPUs, health checks, calls between services."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from llamaherd.diagnostics.findings import Finding, Place, Rule, Severity
from llamaherd.inventory.yaml_file import Document, Path_
from llamaherd.recipes.compose_service import Service, as_list, as_mapping, reserved_devices
from llamaherd.recipes.recipe import ServerCommand
from llamaherd.recipes.servers import API_KEY_FLAGS, API_KEY_VARIABLES, PORTS, is_loopback
from llamaherd.recipes.unit_rules import SECRET_NAME, is_operator
from llamaherd.reference import images
from llamaherd.text.numbers import parse_real, whole_number

REFUSED_BY_COMPOSE = Rule(
    "LH200",
    "Compose refuses a file.",
    why="""
    llamaherd checks it by the JSON Schema that Compose itself uses, of compose-go 2.9.1: keys, types, and required
    keys.
    """,
    example="""
    services:
      server:
        image: example/llama.cpp
        deploy:
          resources:
            reservations:
              devices:
                - driver: nvidia
                  count: all
    """,
    fix="write the value that Compose requires there: here `capabilities: [gpu]`.",
)

WANTED_TWICE = Rule(
    "LH201",
    "Two services use the same thing.",
    why="""
    One port of the host, one name of a container, or more of one GPU than there is: vLLM takes 0.9 of it unless
    `--gpu-memory-utilization` is lower.
    """,
    example="""
    services:
      large:
        image: example/llama.cpp
        ports: ["127.0.0.1:8080:8080"]
      small:
        image: example/llama.cpp
        ports: ["127.0.0.1:8080:8080"]
    """,
    fix="give each its own.",
)

NETWORK_MODE = Rule(
    "LH205",
    "A network mode rules out other keys.",
    why="With `network_mode: host` nothing is published. Compose refuses `network_mode` together with `networks`.",
    example="""
    services:
      server:
        image: ghcr.io/ggml-org/llama.cpp:server
        network_mode: host
        ports: ["8080:8080"]
        volumes: ["/srv/models:/models:ro"]
        command: --model /models/qwen.gguf --host 127.0.0.1
    """,
    fix="leave out what does nothing.",
    sometimes=("warning",),
)


KEY_IN_COMPOSE = Rule(
    "LH202",
    "A key or token is in a Compose file.",
    why="Compose files are copied, committed and shown.",
    example="""
    services:
      server:
        image: example/llama.cpp
        environment:
          HF_TOKEN: hf_0123456789
    """,
    fix="put it into a file of mode 0600 that `env_file` names.",
    severity="warning",
)


WAITS_IN_VAIN = Rule(
    "LH206",
    "A service waits for something that never comes.",
    why="It depends on a service that is not there, or on the health of one without a health check.",
    example="""
    services:
      chat:
        image: example/chat
        depends_on: [server]
    """,
    fix="name a service of the file, and give it a `healthcheck` if its health is waited for.",
    sometimes=("warning",),
)


RESTART_POLICY = Rule(
    "LH208",
    "Docker has no such restart policy.",
    why="There are `no`, `always`, `on-failure`, which may have a number behind a colon, and `unless-stopped`.",
    example="""
    services:
      server:
        image: example/llama.cpp
        restart: on-error
    """,
    fix="write one of the four.",
)


_BEHIND_A_KEY = re.compile(r"/(?:v1/(?!health)|props|slots|metrics|models|completion)")
"""Paths that require a key, if one is set (llama.cpp b11434, tools/server/server-http.cpp:251; vLLM: all below /v1)."""


HEALTH_CHECK = Rule(
    "LH203",
    "A health check cannot run.",
    why="""
    It calls a program that the image does not hold. Or it is a list that begins with none of `CMD`, `CMD-SHELL` and
    `NONE`, or has an operator of the shell under `CMD`. Or it requests a path that needs a key, or accepts the 503 of
    loading as healthy.
    """,
    example="""
    services:
      server:
        image: ghcr.io/ggml-org/llama.cpp:server
        command: --model /models/qwen.gguf
        volumes: ["/srv/models:/models:ro"]
        healthcheck:
          test: wget -q http://localhost:8080/health
    """,
    fix="check by a program that the image has.",
    sometimes=("warning",),
)


def check_health(document: Document, service: Service) -> Iterator[Finding]:
    """Yield the faults of a service's health check."""
    test = as_mapping(service.declared.get("healthcheck")).get("test")
    path = (*service.path, "healthcheck", "test")
    place = document.value(path)

    def fault(message: str, way_out: str, severity: Severity = "error") -> Finding:
        return HEALTH_CHECK.at(place, message, way_out, severity)

    words = [str(each) for each in as_list(test)]
    if words and words[0] not in {"CMD", "CMD-SHELL", "NONE"}:
        message = f"Compose refuses this: a list begins with `CMD` or `CMD-SHELL`, and not with `{words[0]}`"
        yield fault(message, "put `CMD` before it, or write the check as one text")
        return
    operator = next((word for word in words[1:] if is_operator(word)), None)
    if words[:1] == ["CMD"] and operator:
        message = f"`CMD` runs no shell: `{operator}` and what follows reach {words[1]} as arguments"
        yield fault(message, f"write `[CMD, {', '.join(words[1 : words.index(operator)])}]`, or all as one text")
    elif words[:1] == ["CMD"] and len(words) == 2 and " " in words[1]:
        yield fault(f"`CMD` starts a program with the name `{words[1]}`", "write it as one text, without `CMD`")
    elif words[:1] == ["CMD-SHELL"] and len(words) > 2:
        message = f"`CMD-SHELL` takes one text, and runs `{words[1]}` without what follows"
        yield fault(message, f"write `CMD`, or `[CMD-SHELL, {' '.join(words[1:])!r}]`")
    elif service.container is not None and test is not None:
        for message, way_out, severity in _asked(service, " ".join(words) if words else str(test)):
            yield fault(message, way_out, severity)


def _asked(service: Service, called: str) -> Iterator[tuple[str, str, Severity]]:
    container, server = service.container, service.server
    assert container is not None
    for program in ("curl", "wget"):
        other = "wget" if program == "curl" else "curl"
        lacking = images.image_lacks(container.repository, container.tag, program)
        if re.search(rf"(?:^|[\s/;&|]){program}\s", called) and lacking and not re.search(rf"\b{other}\b", called):
            message = f"the image has no {program}: the container would stay `unhealthy`"
            yield message, "check with `curl -f http://localhost:PORT/health`, which the image has", "error"
    if server is None:
        return
    keyed = bool(server.has(*API_KEY_FLAGS)) or bool(API_KEY_VARIABLES & set(server.settings))
    path = re.search(r"https?://[^/\s\"']+(/[^\s\"']*)", called)
    asks = keyed and server.kind != "ik_llama.cpp" and "authorization" not in called.lower()
    if asks and path and _BEHIND_A_KEY.match(path[1]):
        message = f"`{path[1]}` requires the key, and the check sends none: the container would stay `unhealthy`"
        yield message, "request `/health`, which needs no key", "error"
    failing = re.search(r"(?:^|\s)(?:--fail\S*|-[a-zA-Z]*f[a-zA-Z]*)(?=\s|$)", called)
    if re.search(r"(?:^|[\s/])curl\s", called) and not failing and "|" not in called:
        message = "without `-f`, curl succeeds with every response, also the 503 of a server that still loads"
        yield message, "write `curl -f`", "warning"


_ADDRESS = re.compile(
    r"https?://(?P<host>localhost|127\.0\.0\.1|host\.docker\.internal|[\w-]+):(?P<port>\d{1,5})(?=[/;,\s]|$)"
)


@dataclass(frozen=True)
class _Called:
    """A server of the file: its service's name, and the port that it listens on inside."""

    name: str
    port: str
    published: frozenset[str]


ASKS_ITSELF = Rule(
    "LH267",
    "A container requests another service from itself.",
    why="""
    Inside a container, localhost is the container. Services find each other by name, on the port that is listened
    on, whatever the host publishes.
    """,
    example="""
    services:
      llm:
        image: ghcr.io/ggml-org/llama.cpp:server@sha256:0000000000000000000000000000000000000000000000000000000000000000
        command: -m /models/a.gguf
        volumes: ["/srv/models:/models:ro"]
        ports: ["127.0.0.1:8080:8080"]
      chat:
        image: ghcr.io/open-webui/open-webui:main
        environment: {OPENAI_API_BASE_URL: "http://localhost:8080/v1"}
    """,
    fix="use the service's name.",
)


def check_calls(document: Document, services: list[Service]) -> Iterator[Finding]:
    """Yield the addresses in variables of a service at which no server of the file is reachable."""
    servers = [called for each in services if (called := _called(each))]
    for service in services:
        if service.declared.get("network_mode"):
            continue
        environment = service.declared.get("environment")
        pairs: list[tuple[str | int, str]] = [(name, str(value)) for name, value in as_mapping(environment).items()]
        pairs += list(enumerate(map(str, as_list(environment))))
        for step, value in pairs:
            for found in _ADDRESS.finditer(value):
                if fault := _wrong(service, servers, found["host"], found["port"]):
                    yield ASKS_ITSELF.at(document.value((*service.path, "environment", step)), *fault)


def _called(service: Service) -> _Called | None:
    server, container = service.server, service.container
    if server is None or container is None or service.declared.get("network_mode"):
        return None
    given = server.value("--port") or server.settings.get("LLAMA_ARG_PORT")
    port = str(given) if given else PORTS.get(server.program, "")
    return _Called(service.name, port, frozenset(each.host for each in container.ports)) if whole_number(port) else None


def _wrong(service: Service, servers: list[_Called], host: str, port: str) -> tuple[str, str] | None:
    """Return the fault of calling a port of a host, and its help; None without a fault."""
    others = [each for each in servers if each.name != service.name]
    named = next((each for each in others if each.name == host), None)
    meant = next((each for each in others if port in {each.port, *each.published}), None)
    if named and named.port != port and port in named.published:
        message = f"`{host}` listens on {named.port} inside the network: {port} is the port of the host"
        return message, f"write `http://{host}:{named.port}`"
    if meant is None:
        return None
    if host in {"localhost", "127.0.0.1"}:
        message = f"inside a container, {host} is the container itself: nothing listens on {port} there"
        return message, f"write `http://{meant.name}:{meant.port}`"
    hosts = [str(each) for each in as_list(service.declared.get("extra_hosts"))]
    hosts += list(as_mapping(service.declared.get("extra_hosts")))
    if host == "host.docker.internal" and not any(each.startswith(host) for each in hosts):
        message = f"Docker on Linux does not resolve `{host}` unless `extra_hosts` names it"
        return message, f"write `http://{meant.name}:{meant.port}`"
    return None


_RESTARTS = re.compile(r"no|false|always|unless-stopped|on-failure(?::\d+)?")
_MOST_CARDS = 16
"""The number of GPUs that `all` means when two services are compared."""


def check_services(document: Document, services: list[Service]) -> Iterator[Finding]:
    """Yield the faults of services, and the conflicts between them."""
    rules = _Rules(document, services)
    for service in services:
        yield from rules.network(service)
        yield from rules.dependencies(service)
        yield from rules.devices(service)
        yield from rules.restart(service)
        yield from rules.secrets(service)
        yield from rules.alone(service)
    for first, second in combinations(services, 2):
        if first.may_run_with(second):
            yield from rules.together(first, second)


@dataclass(frozen=True)
class _Rules:
    document: Document
    services: list[Service]

    def _fault(self, rule: Rule, path: Path_, message: str, way_out: str, severity: Severity | None = None) -> Finding:
        return rule.at(self.document.value(path), message, way_out, severity)

    def network(self, service: Service) -> Iterator[Finding]:
        """Report keys that contradict the network mode."""
        mode = service.declared.get("network_mode")
        if mode is not None and service.declared.get("networks"):
            message = "Compose refuses `network_mode` and `networks` in one service"
            yield self._fault(NETWORK_MODE, (*service.path, "networks"), message, "keep one of them")
        if mode == "host" and service.declared.get("ports"):
            message = "with `network_mode: host` no port is published: the server listens on the host itself"
            way_out = "leave `ports` out, and choose address and port by `--host` and `--port`"
            yield self._fault(NETWORK_MODE, (*service.path, "ports"), message, way_out, "warning")

    def dependencies(self, service: Service) -> Iterator[Finding]:
        """Report services for which `depends_on` waits in vain."""
        conditions = _wanted(service)
        others = {each.name: each for each in self.services}
        for name, condition in conditions.items():
            other = others.get(name)
            path = (*service.path, "depends_on", name)
            if other is None and "include" not in self.document.data:
                message = f"`{name}` is no service of this file, and Compose refuses it"
                yield self._fault(WAITS_IN_VAIN, path, message, f"services here: {', '.join(sorted(others))}")
            elif other and as_mapping(condition).get("condition") == "service_healthy" and not _has_health(other):
                message = f"`{service.name}` waits for `{name}` to be healthy, and `{name}` has no health check"
                yield self._fault(WAITS_IN_VAIN, path, message, f"give `{name}` a `healthcheck`")
            elif name == service.name:
                message = f"`{name}` would wait for itself, and Compose refuses that"
                yield self._fault(WAITS_IN_VAIN, path, message, "leave it out")
            elif other and name > service.name and service.name in _wanted(other):
                message = f"`{service.name}` and `{name}` wait for each other, and Compose refuses that"
                yield self._fault(WAITS_IN_VAIN, path, message, "leave out one of the two")
            elif other and (not service.may_run_with(other) or (other.profiles and not service.profiles)):
                message = f"`{name}` starts with other profiles than `{service.name}`, which depends on it"
                yield self._fault(WAITS_IN_VAIN, path, message, "give both a profile in common", "warning")

    def devices(self, service: Service) -> Iterator[Finding]:
        """Report contradictory reservations of devices."""
        for index, device in enumerate(reserved_devices(service.declared)):
            path = (*service.path, "deploy", "resources", "reservations", "devices", index)
            if "count" in device and "device_ids" in device:
                message = "Compose refuses `count` together with `device_ids`"
                yield self._fault(
                    REFUSED_BY_COMPOSE, (*path, "count"), message, "leave `count` out: the ids set the number"
                )
            kinds = device.get("capabilities")
            if isinstance(kinds, list) and "driver" not in device and "gpu" not in kinds:
                message = "this reserves no GPU: `gpu` is not among its capabilities"
                yield self._fault(REFUSED_BY_COMPOSE, (*path, "capabilities"), message, "write `capabilities: [gpu]`")

    def restart(self, service: Service) -> Iterator[Finding]:
        """Report restart policies that Docker refuses."""
        policy = service.declared.get("restart")
        if isinstance(policy, str) and "$" not in policy and not _RESTARTS.fullmatch(policy):
            message = f"Docker has no restart policy `{policy}`"
            way_out = "write `unless-stopped`, `always`, `on-failure` or `no`"
            yield self._fault(RESTART_POLICY, (*service.path, "restart"), message, way_out)

    def alone(self, service: Service) -> Iterator[Finding]:
        """Report contradictory limits, and resources that several containers of a service cannot share."""
        resources = as_mapping(as_mapping(service.declared.get("deploy")).get("resources"))
        limit, other = service.declared.get("mem_limit"), as_mapping(resources.get("limits")).get("memory")
        if limit is not None and other is not None and str(limit).lower() != str(other).lower():
            message = f"`mem_limit: {limit}` and `deploy.resources.limits.memory: {other}` contradict each other"
            yield self._fault(
                REFUSED_BY_COMPOSE, (*service.path, "mem_limit"), f"{message}, and Compose refuses that", "keep one"
            )
        replicas = as_mapping(service.declared.get("deploy")).get("replicas", service.declared.get("scale"))
        several = isinstance(replicas, int) and replicas > 1
        if several and service.declared.get("container_name"):
            message = f"{replicas} containers cannot have one name, and Compose refuses that"
            yield self._fault(WANTED_TWICE, (*service.path, "container_name"), message, "leave `container_name` out")
        elif (
            several
            and service.container
            and any(whole_number(port.host) is not None for port in service.container.ports)
        ):
            message = f"{replicas} containers need the same port of the host: the second does not start"
            yield self._fault(
                WANTED_TWICE, (*service.path, "ports"), message, "a service for each, with a port of its own"
            )

    def secrets(self, service: Service) -> Iterator[Finding]:
        """Report secrets in the file."""
        environment = service.declared.get("environment")
        pairs: list[tuple[str | int, str, Any]] = [
            (name, name, value) for name, value in as_mapping(environment).items()
        ]
        for index, item in enumerate(as_list(environment)):
            name, _, value = str(item).partition("=")
            pairs.append((index, name, value))
        for step, name, value in pairs:
            text = "" if value is None else str(value)
            if SECRET_NAME.search(name) and text and "$" not in text and not text.startswith("/"):
                message = f"the value of `{name}` is in this file: every reader or copy of the file has it"
                way_out = f"put `{name}=…` into a file of mode 0600, and name that in `env_file`"
                yield self._fault(KEY_IN_COMPOSE, (*service.path, "environment", step), message, way_out)

    def together(self, first: Service, second: Service) -> Iterator[Finding]:
        """Report resources that two services cannot share."""
        yield from self._ports(first, second)
        name = second.declared.get("container_name")
        if name and name == first.declared.get("container_name"):
            message = f"`{first.name}` and `{second.name}` both name their container `{name}`"
            yield self._fault(WANTED_TWICE, (*second.path, "container_name"), message, "give each a name of its own")
        both = [each.server for each in (first, second) if each.server and each.server.program == "vllm"]
        shares = [gpu_utilization(server) for server in both]
        cards = _cards(first) & _cards(second)
        if len(both) == 2 and cards and sum(shares) > 1:
            message = f"`{first.name}` takes {shares[0]:g} of a GPU, and `{second.name}` {shares[1]:g} of the same one"
            way_out = "give each a GPU by `device_ids`, or shares that add up to less than 1"
            yield self._fault(WANTED_TWICE, second.path, f"{message}: the second does not start", way_out)

    def _ports(self, first: Service, second: Service) -> Iterator[Finding]:
        if first.container is None or second.container is None:
            return
        for port in second.container.ports:
            for other in first.container.ports:
                same = (
                    port.host == other.host
                    and whole_number(port.host) is not None
                    and _overlap(port.address, other.address)
                )
                if same and port.text.endswith("/udp") == other.text.endswith("/udp"):
                    message = f"port {port.host} of the host is `{first.name}`'s already: the second does not start"
                    place = Place(self.document.file, *port.start)
                    yield WANTED_TWICE.at(place, message, "publish each on a port of its own")


def _wanted(service: Service) -> dict[str, Any]:
    """Return the services for which a service waits, with their conditions."""
    wanted = service.declared.get("depends_on")
    return {str(name): None for name in wanted} if isinstance(wanted, list) else as_mapping(wanted)


def _overlap(first: str, second: str) -> bool:
    everywhere = {"", "0.0.0.0", "::", "[::]"}
    return first in everywhere or second in everywhere or first == second or (is_loopback(first) and first == second)


def _has_health(service: Service) -> bool:
    """Return whether a container has a health check, in the file or its image; true if that is unknown."""
    declared = service.declared.get("healthcheck")
    if isinstance(declared, dict):
        return declared.get("disable") is not True and declared.get("test") not in ("NONE", ["NONE"])
    if service.container is None:
        return True
    if service.container.repository in images.VLLM:
        return False
    return not service.container.official or service.container.tag.startswith("server")


def gpu_utilization(server: ServerCommand) -> float:
    """Return the share of a GPU that a vLLM server takes."""
    word = server.value("--gpu-memory-utilization")
    try:
        return parse_real(str(word)) if word else 0.9  # vLLM 0.33.0, config/cache.py
    except ValueError:
        return 0.0


def _cards(service: Service) -> frozenset[str]:
    """Return the ids of the GPUs of a service. A count means the first ones."""
    devices = reserved_devices(service.declared)
    gpus = service.declared.get("gpus")
    devices += [each for each in gpus if isinstance(each, dict)] if isinstance(gpus, list) else []
    environment = service.container.environment if service.container else {}
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        if name in environment and not environment[name].unknown and str(environment[name]) != "all":
            return frozenset(str(environment[name]).split(","))
    ids = [str(each) for device in devices for each in as_list(device.get("device_ids"))]
    if ids:
        return frozenset(ids)
    counts = [str(device.get("count", "all")) for device in devices]
    numbers = [number for count in counts if (number := whole_number(count, _MOST_CARDS)) is not None]
    if counts and len(numbers) == len(counts):
        return frozenset(str(number) for number in range(sum(numbers)))
    return frozenset(map(str, range(_MOST_CARDS))) if devices or gpus else frozenset()
