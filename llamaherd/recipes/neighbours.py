"""How services of a Compose file call each other: by name, on the port that is listened on inside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.inventory.yamlfile import Document
from llamaherd.recipes.composeservice import Service, as_mapping, listed
from llamaherd.recipes.servers import PORTS
from llamaherd.text.numbers import whole

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
    "A container asks itself for its neighbour.",
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
    way_out="call it by its service's name.",
)


def check(document: Document, services: list[Service]) -> Iterator[Finding]:
    """Addresses in the variables of a service at which it finds no server of the file."""
    servers = [called for each in services if (called := _called(each))]
    for service in services:
        if service.declared.get("network_mode"):
            continue
        environment = service.declared.get("environment")
        pairs: list[tuple[str | int, str]] = [(name, str(value)) for name, value in as_mapping(environment).items()]
        pairs += list(enumerate(map(str, listed(environment))))
        for step, value in pairs:
            for found in _ADDRESS.finditer(value):
                if said := _wrong(service, servers, found["host"], found["port"]):
                    yield ASKS_ITSELF.at(document.value((*service.path, "environment", step)), *said)


def _called(service: Service) -> _Called | None:
    server, container = service.server, service.container
    if server is None or container is None or service.declared.get("network_mode"):
        return None
    given = server.value("--port") or server.settings.get("LLAMA_ARG_PORT")
    port = str(given) if given else PORTS.get(server.program, "")
    return _Called(service.name, port, frozenset(each.host for each in container.ports)) if whole(port) else None


def _wrong(service: Service, servers: list[_Called], host: str, port: str) -> tuple[str, str] | None:
    """What is wrong with calling a port of a host, and what to write."""
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
    hosts = [str(each) for each in listed(service.declared.get("extra_hosts"))]
    hosts += list(as_mapping(service.declared.get("extra_hosts")))
    if host == "host.docker.internal" and not any(each.startswith(host) for each in hosts):
        message = f"Docker on Linux knows no `{host}` unless `extra_hosts` names it"
        return message, f"write `http://{meant.name}:{meant.port}`"
    return None
