"""Who reaches a server that has no key, although it listens on its own host alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.engines import flags_of, has_own_network
from llamaherd.inventory.schema import Engine, Instance

ORIGINS, VARIABLE = "--cors-origins", "LLAMA_ARG_CORS_ORIGINS"


def keyless(subject: RigContext) -> Iterator[Finding]:
    """Servers without a key that web pages can read, or neighbours of the host."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if engine is None or instance.api_key is not None or not instance.loopback:
            continue
        place = subject.document.key(("instances", name))
        if has_own_network(engine, instance):
            yield Finding(
                "LH079",
                place,
                f"instance `{name}` has no API key, and whoever adds a route to its container's network reaches it: "
                "Docker before 28 forwards that",
                f"add `api_key: {{file: keys/{name}}}`; `openssl rand -hex 32` makes a key",
            )
        elif way_out := _open_to_pages(engine, instance):
            yield Finding(
                "LH078",
                place,
                f"instance `{name}` has no API key, and lets any web page that a browser on its host shows talk to it",
                f"add `api_key: {{file: keys/{name}}}`, if browsers run there, or {way_out}",
                "note",
            )


def _open_to_pages(engine: Engine, instance: Instance) -> str | None:
    """What to do about answers that name every origin, as they cannot do otherwise, or are told to; None without."""
    flags = flags_of(engine)
    if flags is None or not flags.knows(ORIGINS):
        return "serve it with llama.cpp from b10108 on, which is told not to"
    words = [word for argument in instance.extra_args for word in argument.split("=", 1)]
    told = [value for flag, value in pairwise(words) if flag == ORIGINS]
    everybody = (told[-1] if told else instance.environment.get(VARIABLE)) == "*"
    return f"take `{ORIGINS if told else VARIABLE}` out: then pages of its own host may" if everybody else None
