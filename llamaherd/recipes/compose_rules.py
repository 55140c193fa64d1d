"""Rules for the services of a Compose file that run engines: keys, ports, GPUs, health checks, restarts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from llamaherd.diagnostics.findings import Finding, Place, Rule, Severity
from llamaherd.inventory.yaml_file import Document
from llamaherd.recipes.compose_service import Service, as_list, as_mapping, given_devices, has_cards
from llamaherd.recipes.recipe import NOT_AT_BOOT, ServerCommand
from llamaherd.recipes.servers import API_KEY_FLAGS, API_KEY_VARIABLES, is_loopback
from llamaherd.recipes.unit_rules import SECRET_NAME
from llamaherd.reference import images
from llamaherd.text.numbers import parse_real, whole_number

WANTED_TWICE = Rule(
    "LH201",
    "Two servers use the same thing.",
    why="""
    One port of the host, or more of one GPU than there is: vLLM takes 0.9 of it unless `--gpu-memory-utilization` is
    lower.
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
    "A port is published in the network of the host.",
    why="With `network_mode: host` or `--network host` nothing is published: the server listens on the host itself.",
    example="""
    services:
      server:
        image: ghcr.io/ggml-org/llama.cpp:server
        network_mode: host
        ports: ["8080:8080"]
        volumes: ["/srv/models:/models:ro"]
        command: --model /models/qwen.gguf --host 127.0.0.1
    """,
    fix="leave `ports` out, and choose address and port by `--host` and `--port`.",
    severity="warning",
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

HEALTH_CHECK = Rule(
    "LH203",
    "A health check cannot run.",
    why="""
    It calls a program that the engine's image does not hold, or requests a path that needs a key, or accepts the 503
    of loading as healthy.
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

_BEHIND_A_KEY = re.compile(r"/(?:v1/(?!health)|props|slots|metrics|models|completion)")
"""Paths that require a key, if one is set (llama.cpp b11434, tools/server/server-http.cpp:251; vLLM: all below /v1)."""
_RESTARTS = re.compile(r"no|false|always|unless-stopped|on-failure(?::\d+)?")
_MOST_CARDS = 16
"""The number of GPUs that `all` means when two services are compared."""


def check_services(document: Document, services: list[Service], *, whole: bool) -> Iterator[Finding]:
    """Yield the faults of services, and the conflicts between them. `whole`: whether the text is a whole file."""
    for service in services:
        if whole and service.server and not _started_again(service.declared):
            message = f"`{service.name}` stays down after a crash or a reboot: it has no `restart:`"
            yield NOT_AT_BOOT.at(Place(document.file, *service.at), message, "add `restart: unless-stopped`", "note")
        yield from _restart(document, service)
        yield from _secrets(document, service)
        yield from _health(document, service)
        if service.server and service.declared.get("network_mode") == "host" and service.declared.get("ports"):
            source, _ = service.last("ports") or (service.sources[-1], None)
            message = "with `network_mode: host` no port is published: the server listens on the host itself"
            way_out = "leave `ports` out, and choose address and port by `--host` and `--port`"
            yield NETWORK_MODE.at(Place(document.file, *source.at("ports")), message, way_out)
    for first, second in combinations(services, 2):
        if first.may_run_with(second) and (first.server or second.server):
            yield from _ports(document, first, second)
            yield from _shares(document, first, second)


def _started_again(declared: Mapping[str, Any]) -> bool:
    """Return whether a service sets when Docker starts it again."""
    return "restart" in declared or "restart_policy" in as_mapping(declared.get("deploy"))


def _restart(document: Document, service: Service) -> Iterator[Finding]:
    """Report restart policies that Docker refuses."""
    source, policy = service.last("restart") or (service.sources[-1], None)
    if isinstance(policy, str) and "$" not in policy and policy.isascii() and not _RESTARTS.fullmatch(policy):
        message = f"Docker has no restart policy `{policy}`"
        way_out = "write `unless-stopped`, `always`, `on-failure` or `no`"
        yield RESTART_POLICY.at(Place(document.file, *source.at("restart")), message, way_out)


def _secrets(document: Document, service: Service) -> Iterator[Finding]:
    """Report secrets in the file."""
    for source, step, item in service.items("environment"):
        name, _, value = (step, "", item) if isinstance(step, str) else str(item).partition("=")
        text = "" if value is None else str(value)
        if SECRET_NAME.search(str(name)) and text.isascii() and text and "$" not in text and not text.startswith("/"):
            message = f"the value of `{name}` is in this file: every reader or copy of the file has it"
            way_out = f"put `{name}=…` into a file of mode 0600, and name that in `env_file`"
            yield KEY_IN_COMPOSE.at(Place(document.file, *source.at("environment", step)), message, way_out)


def _health(document: Document, service: Service) -> Iterator[Finding]:
    """Report health checks of an engine that fail, or that accept anything."""
    source, declared = service.last("healthcheck") or (service.sources[-1], None)
    test = as_mapping(declared).get("test")
    if service.container is None or test is None:
        return
    called = " ".join(map(str, as_list(test))) if isinstance(test, list) else str(test)
    for message, way_out, severity in _asked(service, called):
        yield HEALTH_CHECK.at(Place(document.file, *source.at("healthcheck", "test")), message, way_out, severity)


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


def _ports(document: Document, first: Service, second: Service) -> Iterator[Finding]:
    """Report ports of the host that two services publish."""
    taken: dict[tuple[str, bool], list[str]] = {}
    for port in first.container.ports if first.container else ():
        taken.setdefault((port.host, port.text.endswith("/udp")), []).append(port.address)
    for port in second.container.ports if second.container else ():
        addresses = dict.fromkeys(taken.get((port.host, port.text.endswith("/udp")), ()))
        if whole_number(port.host) is not None and any(_overlap(port.address, other) for other in addresses):
            message = f"port {port.host} of the host is `{first.name}`'s already: the second does not start"
            yield WANTED_TWICE.at(Place(document.file, *port.start), message, "publish each on a port of its own")


def _shares(document: Document, first: Service, second: Service) -> Iterator[Finding]:
    """Report two servers of vLLM that take more of one GPU than there is."""
    both = [each.server for each in (first, second) if each.server and each.server.program == "vllm"]
    shares = [gpu_utilization(server) for server in both]
    if len(both) == 2 and _cards(first) & _cards(second) and sum(shares) > 1:
        message = f"`{first.name}` takes {shares[0]:g} of a GPU, and `{second.name}` {shares[1]:g} of the same one"
        way_out = "give each a GPU by `device_ids`, or shares that add up to less than 1"
        yield WANTED_TWICE.at(Place(document.file, *second.at), f"{message}: the second does not start", way_out)


def _overlap(first: str, second: str) -> bool:
    everywhere = {"", "0.0.0.0", "::", "[::]"}
    return first in everywhere or second in everywhere or first == second or (is_loopback(first) and first == second)


def gpu_utilization(server: ServerCommand) -> float:
    """Return the share of a GPU that a vLLM server takes."""
    word = server.value("--gpu-memory-utilization")
    try:
        return parse_real(str(word)) if word else 0.9  # vLLM 0.33.0, config/cache.py
    except ValueError:
        return 0.0


def _cards(service: Service) -> frozenset[str]:
    """Return the ids of the GPUs of a service. A count means the first ones."""
    devices = given_devices(service.declared)
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
    return frozenset(map(str, range(_MOST_CARDS))) if has_cards(service.declared) else frozenset()
