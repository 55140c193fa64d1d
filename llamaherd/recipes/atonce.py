"""Servers that one script starts beside each other: a port, or a GPU, that two of them want."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.recipes.compose_rules import WANTED_TWICE
from llamaherd.recipes.composerules import utilization
from llamaherd.recipes.programs import ServerCommand
from llamaherd.recipes.servers import PORTS

_FOR_ALL = ("--help", "--version")


def check(file: Path, running: Iterable[ServerCommand], second: ServerCommand) -> Iterator[Finding]:
    """What a server wants that one has which runs already; those in containers have ports and GPUs of their own."""
    if not _alone(second):
        return
    place = Place(file, *second.start)
    for first in filter(_alone, running):
        port = _port(first)
        if port and port == _port(second) and _host(first) == _host(second):
            message = f"port {port} is the first server's already, in line {first.start[0]}: this one does not start"
            yield WANTED_TWICE.at(place, message, "give each a port of its own, by `--port`")
        shares = [utilization(each) for each in (first, second) if each.program == "vllm"]
        if len(shares) == 2 and _cards(first) == _cards(second) and sum(shares) > 1:
            message = f"two of vLLM take {shares[0]:g} and {shares[1]:g} of the same card: this one does not start"
            way_out = "give each a GPU by `CUDA_VISIBLE_DEVICES`, or shares that add up to less than 1"
            yield WANTED_TWICE.at(place, message, way_out)


def _alone(server: ServerCommand) -> bool:
    return server.program in PORTS and not server.contained and not server.has(*_FOR_ALL)


def _port(server: ServerCommand) -> str:
    """The port of a server; empty where only a shell knows it."""
    word = server.value("--port") or server.settings.get("LLAMA_ARG_PORT")
    return PORTS[server.program] if word is None else "" if word.unknown else str(word)


def _host(server: ServerCommand) -> str:
    word = server.value("--host") or server.settings.get("LLAMA_ARG_HOST")
    return str(word) if word else ""


def _cards(server: ServerCommand) -> str:
    word = server.settings.get("CUDA_VISIBLE_DEVICES")
    return str(word) if word else ""
