"""Rules for the services of a Compose file that run engines: keys, ports, GPUs, health checks, restarts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.inventory.yaml_file import Document
from llamaherd.recipes.compose_service import Service, as_mapping
from llamaherd.recipes.recipe import NOT_AT_BOOT, ServerCommand
from llamaherd.recipes.servers import is_loopback
from llamaherd.recipes.unit_rules import SECRET_NAME
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


_MOST_CARDS = 16
"""The number of GPUs that `all` means when two services are compared."""


def check_services(document: Document, services: list[Service], *, whole: bool) -> Iterator[Finding]:
    """Yield the faults of services, and the conflicts between them. `whole`: whether the text is a whole file."""
    for service in services:
        if whole and service.server and not _started_again(service.declared):
            message = f"`{service.name}` stays down after a crash or a reboot: it has no `restart:`"
            yield NOT_AT_BOOT.at(Place(document.file, *service.at), message, "add `restart: unless-stopped`", "note")
        yield from _secrets(document, service)
    short: set[str] = set()
    for first, second in combinations(services, 2):
        if first.may_run_with(second) and (first.server or second.server):
            yield from _ports(document, first, second)
            found = tuple(_shares(document, first, second)) if second.name not in short else ()
            short |= {second.name} if found else set()
            yield from found


def _started_again(declared: Mapping[str, Any]) -> bool:
    """Return whether a service sets when Docker starts it again."""
    return "restart" in declared or "restart_policy" in as_mapping(declared.get("deploy"))


def _secrets(document: Document, service: Service) -> Iterator[Finding]:
    """Report secrets in the file."""
    for source, step, item in service.items("environment"):
        name, _, value = (step, "", item) if isinstance(step, str) else str(item).partition("=")
        text = "" if value is None else str(value)
        if SECRET_NAME.search(str(name)) and text.isascii() and text and "$" not in text and not text.startswith("/"):
            message = f"the value of `{name}` is in this file: every reader or copy of the file has it"
            way_out = f"put `{name}=…` into a file of mode 0600, and name that in `env_file`"
            yield KEY_IN_COMPOSE.at(Place(document.file, *source.at("environment", step)), message, way_out)


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
    if (container := service.container) is None:
        return frozenset()
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        word = container.environment.get(name)
        if word and not word.unknown and str(word) != "all":
            return frozenset(str(word).split(","))
    count = container.cards if container.cards is not None else _MOST_CARDS if container.gpu else 0
    return frozenset(container.gpu_ids or map(str, range(min(count, _MOST_CARDS))))
