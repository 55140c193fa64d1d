"""Who reaches a server that has no key, although it listens on its own host alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.engines import flags_of, has_own_network
from llamaherd.inventory.schema import Engine, Instance

ORIGINS, VARIABLE = "--cors-origins", "LLAMA_ARG_CORS_ORIGINS"


def _keyless(subject: RigContext, *, own_network: bool) -> Iterator[tuple[str, Engine, Instance]]:
    """The servers without a key on their own hosts alone, with or without a network of their own."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        closed = engine and instance.api_key is None and instance.loopback
        if engine and closed and has_own_network(engine, instance) is own_network:
            yield name, engine, instance


ROUTED = Rule(
    "LH079",
    "A container without an API key can be reached from beyond its host.",
    why="""
    Docker publishes its port on 127.0.0.1. But before Docker 28 a neighbour in the LAN can reach the container
    itself: it adds a route to the container's network, and the host forwards what it sends. Containers of
    llama.cpp and ik_llama.cpp that stay on loopback have no network of their own: there is nothing to reach.
    vLLM's need one, as its workers listen on all addresses.
    """,
    example="""
    engines:
      v: {kind: vllm, image: "vllm/vllm-openai@sha256:abababababababababababababababababababababababababababababababab"}
    instances:
      keyless: {engine: v, model: small, context: 8192, on: [big], port: 8003, backend: compose}
    """,
    way_out="add `api_key`.",
)


def routed(subject: RigContext) -> Iterator[Finding]:
    """Servers without a key that neighbours of the host can reach."""
    for name, _, _ in _keyless(subject, own_network=True):
        message = f"instance `{name}` has no API key, and whoever adds a route to its container's network reaches it: "
        message += "Docker before 28 forwards that"
        help_ = f"add `api_key: {{file: keys/{name}}}`; `openssl rand -hex 32` makes a key"
        yield ROUTED.at(subject.document.key(("instances", name)), message, help_)


ANY_PAGE = Rule(
    "LH078",
    "A server without an API key lets any web page talk to it.",
    why="""
    It listens on its own host alone. But a browser is on that host, too, or on the one that an SSH tunnel leads
    to. llama-server answers every page by its name, credentials included: the page may read what it says
    ([ggml-org/llama.cpp#25655](https://github.com/ggml-org/llama.cpp/pull/25655)). llamaherd tells llama.cpp from
    b10108 on otherwise. Older versions and ik_llama.cpp cannot be told.
    """,
    example="""
    engines:
      main: {kind: ik_llama.cpp, ref: main, flags: 8337e4cd3}
    instances:
      helper: {api_key: null}
    """,
    way_out="""
    add `api_key`, if browsers run there, or take a newer llama.cpp. [What is
    promised](../security.md#a-web-page-in-a-browser) says what is left to a page.
    """,
    severity="note",
)


def any_page(subject: RigContext) -> Iterator[Finding]:
    """Servers without a key that web pages can read."""
    for name, engine, instance in _keyless(subject, own_network=False):
        if way_out := _open_to_pages(engine, instance):
            message = f"instance `{name}` has no API key, and lets any web page that a browser on its host shows "
            message += "talk to it"
            help_ = f"add `api_key: {{file: keys/{name}}}`, if browsers run there, or {way_out}"
            yield ANY_PAGE.at(subject.document.key(("instances", name)), message, help_)


def _open_to_pages(engine: Engine, instance: Instance) -> str | None:
    """What to do about answers that name every origin, as they cannot do otherwise, or are told to; None without."""
    flags = flags_of(engine)
    if flags is None or not flags.knows(ORIGINS):
        return "serve it with llama.cpp from b10108 on, which is told not to"
    words = [word for argument in instance.extra_args for word in argument.split("=", 1)]
    told = [value for flag, value in pairwise(words) if flag == ORIGINS]
    everybody = (told[-1] if told else instance.environment.get(VARIABLE)) == "*"
    return f"take `{ORIGINS if told else VARIABLE}` out: then pages of its own host may" if everybody else None
