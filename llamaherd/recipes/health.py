"""Health checks of Compose files: how Docker runs them, and what the server answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llamaherd.diagnostics.findings import Finding, Severity
from llamaherd.diagnostics.rule import Rule
from llamaherd.inventory.yamlfile import Document
from llamaherd.recipes.composeservice import Service, as_mapping, listed
from llamaherd.recipes.servers import API_KEY_FLAGS, API_KEY_VARIABLES
from llamaherd.recipes.unitrules import is_operator
from llamaherd.reference import images

_BEHIND_A_KEY = re.compile(r"/(?:v1/(?!health)|props|slots|metrics|models|completion)")
"""What asks for a key where there is one (llama.cpp b11434, tools/server/server-http.cpp:251; vLLM: all below /v1)."""


HEALTH_CHECK = Rule(
    "LH203",
    "A health check cannot run.",
    why="""
    It calls a program that the image does not hold. Or it is a list that begins with none of `CMD`, `CMD-SHELL`
    and `NONE`, or has an operator of the shell under `CMD`. Or it asks for what wants a key, or takes the 503 of
    loading for a good answer.
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
    way_out="ask by a program that the image has.",
    sometimes=("warning",),
)


def check(document: Document, service: Service) -> Iterator[Finding]:
    """Everything wrong with a service's health check."""
    test = as_mapping(service.declared.get("healthcheck")).get("test")
    path = (*service.path, "healthcheck", "test")
    place = document.value(path)

    def said(message: str, way_out: str, severity: Severity = "error") -> Finding:
        return HEALTH_CHECK.at(place, message, way_out, severity)

    words = [str(each) for each in listed(test)]
    if words and words[0] not in {"CMD", "CMD-SHELL", "NONE"}:
        message = f"Compose refuses this: a list begins with `CMD` or `CMD-SHELL`, and not with `{words[0]}`"
        yield said(message, "put `CMD` before it, or write the check as one text")
        return
    operator = next((word for word in words[1:] if is_operator(word)), None)
    if words[:1] == ["CMD"] and operator:
        message = f"`CMD` runs no shell: `{operator}` and what follows reach {words[1]} as arguments"
        yield said(message, f"write `[CMD, {', '.join(words[1 : words.index(operator)])}]`, or all as one text")
    elif words[:1] == ["CMD"] and len(words) == 2 and " " in words[1]:
        yield said(f"`CMD` looks for a program that is called `{words[1]}`", "write it as one text, without `CMD`")
    elif words[:1] == ["CMD-SHELL"] and len(words) > 2:
        message = f"`CMD-SHELL` takes one text, and runs `{words[1]}` without what follows"
        yield said(message, f"write `CMD`, or `[CMD-SHELL, {' '.join(words[1:])!r}]`")
    elif service.container is not None and test is not None:
        for message, way_out, severity in _asked(service, " ".join(words) if words else str(test)):
            yield said(message, way_out, severity)


def _asked(service: Service, called: str) -> Iterator[tuple[str, str, Severity]]:
    container, server = service.container, service.server
    assert container is not None
    for program in ("curl", "wget"):
        other = "wget" if program == "curl" else "curl"
        lacking = images.image_lacks(container.repository, container.tag, program)
        if re.search(rf"(?:^|[\s/;&|]){program}\s", called) and lacking and not re.search(rf"\b{other}\b", called):
            message = f"the image has no {program}: the container would stay `unhealthy`"
            yield message, "ask by `curl -f http://localhost:PORT/health`, which the image has", "error"
    if server is None:
        return
    keyed = bool(server.has(*API_KEY_FLAGS)) or bool(API_KEY_VARIABLES & set(server.settings))
    path = re.search(r"https?://[^/\s\"']+(/[^\s\"']*)", called)
    asks = keyed and server.kind != "ik_llama.cpp" and "authorization" not in called.lower()
    if asks and path and _BEHIND_A_KEY.match(path[1]):
        message = f"`{path[1]}` asks for the key, and the check has none: the container would stay `unhealthy`"
        yield message, "ask `/health`, which needs no key", "error"
    failing = re.search(r"(?:^|\s)(?:--fail\S*|-[a-zA-Z]*f[a-zA-Z]*)(?=\s|$)", called)
    if re.search(r"(?:^|[\s/])curl\s", called) and not failing and "|" not in called:
        message = "without `-f`, curl takes every answer for a good one, also the 503 of a server that still loads"
        yield message, "write `curl -f`", "warning"
