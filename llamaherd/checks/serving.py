"""How servers run and what is expected of them: units, containers, ports, keys, gates, power and quality."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.engines import TRAITS, flags_of, has_own_network
from llamaherd.engines.flags.task import OWN_DRAFT
from llamaherd.inventory.schema import Engine, Instance, Rig
from llamaherd.memory.divergence import CONTEXTS, longest_chunk
from llamaherd.reference.packages import COMPOSE_PACKAGES

FIRST_PORT = 1024
"""Linux gives ports below to root alone (ip_unprivileged_port_start), and a unit's server has no capability."""


PORT_OF_ROOT = Rule(
    "LH036",
    "A server may not open its port.",
    why="""
    Linux gives ports below 1024 to root, and a unit's server is not root and has no capability. It would end at
    its start.
    """,
    example="""
    instances:
      helper: {port: 80}
    """,
    after="In a container it may: Docker lets every user open them there.",
    fix="write a port from 1024 on. A web server or a gateway in front of it can have port 80 or 443.",
)


def check_ports(subject: RigContext) -> Iterator[Finding]:
    """Report ports that a unit's server may not open; in a container, Docker lets every user open them."""
    for name, instance in subject.rig.instances.items():
        if instance.port < FIRST_PORT and instance.backend == "systemd":
            message = f"instance `{name}` may not open port {instance.port}: those below {FIRST_PORT} are root's"
            help_ = "write a port from 1024 on, such as `port: 8080`; a web server in front of it can have the low port"
            yield PORT_OF_ROOT.at(subject.document.value(("instances", name, "port")), message, help_)


def check_draft_model(subject: RigContext) -> Iterator[Finding]:
    """Report a model that drafts for itself: it takes its memory twice, and nothing is faster."""
    models = subject.rig.models
    for name, instance in subject.rig.instances.items():
        drafting = instance.draft.model if instance.draft else None
        if drafting and models.get(drafting) is not None and models.get(drafting) == models.get(instance.model):
            message = f"model `{drafting}` would draft for itself, as instance `{name}` serves the same files"
            help_ = "name a smaller model, or write `draft: {mtp: 2}` if it has a prediction head"
            yield OWN_DRAFT.at(subject.document.value(("instances", name, "draft", "model")), message, help_)


IDLE_GATE = Rule(
    "LH330",
    "A gate of a container measures nothing.",
    why="""
    The running server and the declared server are measured as units of systemd, one after the other. A container is
    neither started nor stopped for that: it passes however slow it is.
    """,
    example="""
    instances:
      helper: {backend: compose, gate: {decode: -3%}}
    """,
    fix="write `backend: systemd`, or take `gate` out.",
    severity="warning",
)


def check_gates(subject: RigContext) -> Iterator[Finding]:
    """Report gates of containers."""
    for name, instance in subject.rig.instances.items():
        if instance.gate and instance.backend != "systemd":
            message = f"instance `{name}` is a container, and its gate measures units of systemd alone"
            help_ = "write `backend: systemd` if its engine is built here, or take `gate` out"
            yield IDLE_GATE.at(subject.document.value(("instances", name, "gate")), message, help_)


FIRST_WITH_CDI = (1, 18, 0)
"""The first container toolkit whose unit describes GPUs for CDI at every boot (its release notes)."""

FIRST_UNDER_WSL = (1, 19, 1)
"""The first whose unit does so under WSL (the same)."""


IMAGE_UNDER_SYSTEMD = Rule(
    "LH025",
    "An instance of an image would run under systemd, which starts programs and no images.",
    example="""
    engines:
      pulled:
        kind: llama.cpp
        image: registry.lan/llama.cpp@sha256:d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26
    instances:
      pulled: {engine: pulled, model: small, context: 8192, threads: 2, port: 8003}
    """,
    fix="add `backend: compose`, or give the engine a `ref` instead of the `image`.",
)


def check_image_backends(subject: RigContext) -> Iterator[Finding]:
    """Report engines that are images, under systemd."""
    for name, instance, engine in subject.servers:
        if engine.image and instance.backend == "systemd":
            yield IMAGE_UNDER_SYSTEMD.at(
                subject.document.value(("instances", name, "engine")),
                f"instance `{name}` runs an image, which systemd does not start",
                "add `backend: compose`",
            )


NO_COMPOSE = Rule(
    "LH026",
    "An instance would run in Compose on a system that has no Docker Compose 2 in its archive.",
    why="Debian 12 has version 1 only.",
    example="""
    host: {os: debian-12}
    instances:
      helper: {backend: compose}
    """,
    fix="use `backend: systemd`, or a newer system.",
)


def check_compose_available(subject: RigContext) -> Iterator[Finding]:
    """Report containers on a system that has no Docker Compose 2 of its own."""
    system = subject.rig.host.os
    for name, instance in subject.rig.instances.items():
        if instance.backend == "compose" and system not in COMPOSE_PACKAGES:
            yield NO_COMPOSE.at(
                subject.document.value(("instances", name, "backend")),
                f"{system} has no Docker Compose 2 of its own",
                f"use `backend: systemd`, or a host with one of {', '.join(COMPOSE_PACKAGES)}",
            )


BUILD_IN_CONTAINER = Rule(
    "LH028",
    "A CUDA engine that is built here, or a release, would run in Compose.",
    why="The image made from a build holds its server and the libraries of a CPU build only.",
    example="""
    instances:
      coder: {backend: compose}
    """,
    fix="use `backend: systemd`, or an engine with an `image`.",
)


def check_container_builds(subject: RigContext) -> Iterator[Finding]:
    """Report engines on the host that would run in a container without their libraries: of CUDA, or of a release."""
    for name, instance, engine in subject.servers:
        if instance.backend == "compose" and engine.release:
            yield BUILD_IN_CONTAINER.at(
                subject.document.value(("instances", name, "backend")),
                f"the image made for `{name}` would lack the libraries that its engine's release consists of",
                "use `backend: systemd`, or an engine with an `image` by digest",
            )
        elif instance.backend == "compose" and instance.on and engine and engine.source:
            yield BUILD_IN_CONTAINER.at(
                subject.document.value(("instances", name, "backend")),
                f"the image made for `{name}` would lack the CUDA libraries that its engine is linked against",
                "use `backend: systemd`, or an engine with an `image` by digest",
            )


TOOLKIT_MISSING = Rule(
    "LH074",
    "The container toolkit is too old, or is not needed.",
    why="""
    Containers get GPUs by CDI. Toolkits before 1.18.0, and under WSL before 1.19.1, do not describe GPUs for that
    at every boot.
    """,
    example="""
    gpus:
      cuda: "13.0"
      container_toolkit: {version: 1.17.8}
      cards: {big: {model: RTX 5090}}
    engines: {ready: {kind: llama.cpp, image: "ghcr.io/ggml-org/llama.cpp:server-cuda-b11434"}}
    instances: {coder: {engine: ready, backend: compose}}
    """,
    after="It is a warning where no instance in a container is on a GPU: then none of it is installed.",
    fix="""
    write `version: 1.18.0` or a newer one, or leave it out for the newest. Without such an instance, take
    `container_toolkit` out.
    """,
    sometimes=("warning",),
)


def check_container_toolkit(subject: RigContext) -> Iterator[Finding]:
    """Report a version of the container toolkit that describes no GPUs, and a toolkit that no container needs."""
    rig = subject.rig
    if rig.gpus is None or "container_toolkit" not in rig.gpus.model_fields_set:
        return
    place = ("gpus", "container_toolkit")
    if not any(each.backend == "compose" and each.on for each in rig.instances.values()):
        message = "a container toolkit is declared, and no instance in a container is on a GPU"
        help_ = "write `backend: compose` for an instance with `on`, or take `container_toolkit` out"
        yield TOOLKIT_MISSING.at(subject.document.key(place), message, help_, "warning")
        return
    declared, first = (
        rig.gpus.container_toolkit.version,
        FIRST_UNDER_WSL if rig.host.wsl is not None else FIRST_WITH_CDI,
    )
    if declared and tuple(map(int, declared.split("."))) < first:
        least = ".".join(map(str, first))
        message = f"container toolkit {declared} does not describe GPUs for CDI at boot, by which containers get them"
        help_ = f"write `version: {least}` or a newer one, or leave it out for the newest"
        yield TOOLKIT_MISSING.at(subject.document.value((*place, "version")), message, help_)


ORIGINS, VARIABLE = "--cors-origins", "LLAMA_ARG_CORS_ORIGINS"


def _keyless(subject: RigContext, *, own_network: bool) -> Iterator[tuple[str, Engine, Instance]]:
    """Yield the servers without a key that listen on their own hosts alone, with or without a network of their own."""
    for name, instance, engine in subject.servers:
        closed = instance.api_key is None and instance.loopback
        if closed and has_own_network(engine, instance) is own_network:
            yield name, engine, instance


ROUTED = Rule(
    "LH079",
    "A container without an API key can be reached from beyond its host.",
    why="""
    Docker publishes its port on 127.0.0.1. But before Docker 28 another machine in the LAN can reach the container
    itself: it adds a route to the container's network, and the host forwards its packets. Containers of llama.cpp and
    ik_llama.cpp that stay on loopback have no network of their own: there is nothing to reach. vLLM's need one, as its
    workers listen on all addresses.
    """,
    example="""
    engines:
      v: {kind: vllm, image: "vllm/vllm-openai@sha256:abababababababababababababababababababababababababababababababab"}
    instances:
      keyless: {engine: v, model: small, context: 8192, on: [big], port: 8003, backend: compose,
                extra_args: [--gpu-memory-utilization, "0.3"]}
    """,
    fix="add `api_key`.",
)


def check_routed_access(subject: RigContext) -> Iterator[Finding]:
    """Report servers without a key that other machines of the LAN can reach."""
    for name, _, _ in _keyless(subject, own_network=True):
        message = (
            f"instance `{name}` has no API key, and machines that add a route to its container's network reach it: "
        )
        message += "Docker before 28 forwards that"
        help_ = f"add `api_key: {{file: keys/{name}}}`; `openssl rand -hex 32` makes a key"
        yield ROUTED.at(subject.document.key(("instances", name)), message, help_)


ANY_PAGE = Rule(
    "LH078",
    "A server without an API key lets any web page use it.",
    why="""
    It listens on its own host alone. But a browser is on that host, too, or on the one that an SSH tunnel leads to.
    llama-server allows the origin of every page, credentials included: the page may read its responses
    ([ggml-org/llama.cpp#25655](https://github.com/ggml-org/llama.cpp/pull/25655)). llamaherd restricts llama.cpp from
    b10108 on. Older versions and ik_llama.cpp have no flag for it.
    """,
    example="""
    engines:
      main: {kind: ik_llama.cpp, ref: main, flags: 8337e4cd3}
    instances:
      helper: {api_key: null}
    """,
    fix="""
    add `api_key`, if browsers run there, or take a newer llama.cpp. [What is
    promised](../security.md#a-web-page-in-a-browser) describes what a page can still do.
    """,
    severity="note",
)


def check_web_access(subject: RigContext) -> Iterator[Finding]:
    """Report servers without a key that web pages can read."""
    for name, engine, instance in _keyless(subject, own_network=False):
        if fix := _open_to_pages(engine, instance):
            message = f"instance `{name}` has no API key, and lets any web page that a browser on its host shows "
            message += "use it"
            help_ = f"add `api_key: {{file: keys/{name}}}`, if browsers run there, or {fix}"
            yield ANY_PAGE.at(subject.document.key(("instances", name)), message, help_)


def _open_to_pages(engine: Engine, instance: Instance) -> str | None:
    """Return the fix for responses that allow every origin, by default or by an option; None without them."""
    if not flags_of(engine).knows(ORIGINS):
        return "serve it with llama.cpp from b10108 on, which can restrict it"
    words = [word for argument in instance.extra_args for word in argument.split("=", 1)]
    origins = [value for flag, value in pairwise(words) if flag == ORIGINS]
    everybody = (origins[-1] if origins else instance.environment.get(VARIABLE)) == "*"
    return f"take `{ORIGINS if origins else VARIABLE}` out: then pages of its own host may" if everybody else None


NEVER_ABOVE = Rule(
    "LH080",
    "More power is expected than an instance can take.",
    why="""
    `power` of `expect` is the most of all GPUs of an instance while it writes. An instance on no GPU has no power to
    measure, and GPUs limited to less never take it: a finding would never occur.
    """,
    example="""
    instances:
      small: {engine: main, model: small, context: 8192, port: 8003, expect: {power: 65W}}
    """,
    fix="write the power of its GPUs while it writes, or take `power` out of `expect`.",
    severity="warning",
)


def check_expected_power(subject: RigContext) -> Iterator[Finding]:
    """Report expected power that no measurement can exceed."""
    for name, instance in subject.rig.instances.items():
        power = instance.expect.power if instance.expect else None
        if power is None:
            continue
        place = subject.document.value(("instances", name, "expect", "power"))
        if not instance.on:
            message = f"instance `{name}` is on no GPU: no power of it can be measured"
            yield NEVER_ABOVE.at(place, message, "take `power` out of `expect`")
            continue
        limits = [card.power_limit for card in subject.cards(instance)]
        known = [limit for limit in limits if limit is not None]
        if len(known) == len(instance.on) and power > sum(known):
            message = f"instance `{name}` never takes {power} W: its GPUs are limited to {sum(known)} W together"
            yield NEVER_ABOVE.at(place, message, f"write less than `{sum(known)}W`, or raise `power_limit`")


NO_ENERGY = Rule(
    "LH082",
    "The objective is efficiency, and no GPU reports energy.",
    why="""
    `for: efficiency` searches for the least energy that GPUs take for a token. It is read from their own counters, or
    from the power that they report. An instance on the CPU has no GPU, and some drivers report neither: then no
    candidate can be called better. `herd tune` checks the host for that, before it stops anything.
    """,
    example="""
    instances:
      helper: {tune: {for: efficiency}}
    """,
    after="`helper` is on no GPU.",
    fix="choose another objective, such as `turn`; or name GPUs in `on`.",
)

NO_LIMITS = Rule(
    "LH083",
    "Power limits are to be tried, and no GPU takes them.",
    why="""
    `power` of `tune` makes a search limit the GPUs of an instance to one value after the other, at its end. An instance
    on the CPU has none, and Windows alone sets those of its GPUs under WSL. Laptops and some virtual machines have
    limits that cannot be set, and every GPU has a range: `herd tune` queries the host for that before it stops
    anything.
    """,
    example="""
    instances:
      helper: {tune: {power: {max: 120W}}}
    """,
    after="`helper` is on no GPU.",
    fix="take `power` out of `tune`, or name limits that its GPUs take.",
)

NO_POWER = "take `power` out of `tune`, or name limits that its GPUs take"
NO_POWER_OPTION = "leave out `--power`, or name limits that its GPUs take"
OTHER_AIM = "choose another objective: `turn`, `decode` or `throughput` need no energy"


def check_energy_objective(subject: RigContext) -> Iterator[Finding]:
    """Report instances on no GPU whose objective is efficiency."""
    for name, instance in subject.rig.instances.items():
        if instance.tune and instance.tune.for_ == "efficiency" and not instance.on:
            place = subject.document.value(("instances", name, "tune", "for"))
            yield NO_ENERGY.at(place, f"instance `{name}` is on no GPU, whose energy could be counted", OTHER_AIM)


def check_power_limit_trials(subject: RigContext) -> Iterator[Finding]:
    """Report instances that try power limits and have no GPU to limit."""
    for name, instance in subject.rig.instances.items():
        if instance.tried_limits and (why := why_unlimited(subject.rig, name)):
            place = subject.document.value(("instances", name, "tune", "power"))
            yield NO_LIMITS.at(place, f"no power limit can be tried: {why}", NO_POWER)


def why_unlimited(rig: Rig, name: str) -> str:
    """Return why GPUs of an instance cannot be limited in power; empty if the inventory does not prevent it."""
    if not rig.instances[name].on:
        return f"instance `{name}` is on no GPU"
    return "under WSL, Windows sets power limits" if rig.host.wsl else ""


_COARSEST = ("q4_0", "iq4_nl")
"""Types of a cache that are the coarsest that a search tries."""

NOTHING_JUDGED = Rule(
    "LH081",
    "Quality is declared and cannot be judged.",
    why="""
    `quality` of `tune` lets a search try coarser types of the cache, and `kld` of `gate` limits how far a change may
    alter the outputs of a server. Both are judged by a program that is built with the engine and runs as a unit in the
    server's place. An image has no such program, and a server in a container is neither tuned nor gated. A text is read
    in pieces of 512 tokens at least, which a request must have room for. Where K and V have two types, or flash
    attention is off, or the cache is as coarse as it gets, a search tries no other type: that is a warning.
    """,
    example="""
    instances:
      boxed:
        {engine: main, model: small, context: 8192, port: 8003, backend: compose, tune: {quality: {kld: 0.005}}}
    """,
    fix="take `quality` out of `tune` or `kld` out of `gate`, or serve it as a unit, by an engine that is built.",
    sometimes=("warning",),
)


def check_quality(subject: RigContext) -> Iterator[Finding]:
    """Report instances whose quality cannot be judged, or for which no other cache is tried."""
    for name, instance, engine in subject.servers:
        if instance.quality is None:
            continue
        place = subject.document.value(("instances", name, "tune", "quality"))
        if why := _unable(instance, engine):
            message = f"the quality of instance `{name}` cannot be judged: {why}"
            help_ = "take `quality` out of `tune`; only a unit of an engine that is built on the host is judged"
            yield NOTHING_JUDGED.at(place, message, help_)
        elif not instance.tried_models and (idle := _idle(instance)):
            message = f"nothing of instance `{name}` would be judged: {idle}"
            yield NOTHING_JUDGED.at(place, message, "take `quality` out of `tune`", "warning")


def check_gate_quality(subject: RigContext) -> Iterator[Finding]:
    """Report a gate's `kld` of a unit that cannot be judged.

    A container's gate measures nothing at all, which LH330 reports.
    """
    for name, instance, engine in subject.servers:
        if instance.gate is None or instance.gate.kld is None or instance.backend == "compose":
            continue
        place = subject.document.value(("instances", name, "gate", "kld"))
        message = f"the gate of instance `{name}` cannot judge its outputs: "
        if why := _unable(instance, engine):
            help_ = "take `kld` out of `gate`; only a unit of an engine that is built on the host is judged"
            yield NOTHING_JUDGED.at(place, message + why, help_)
        elif (most := longest_chunk(instance)) < CONTEXTS[-1]:
            why = f"a request has {most} tokens of context, and the least that is read at once are {CONTEXTS[-1]}"
            yield NOTHING_JUDGED.at(place, message + why, "give each slot more `context`, or take `kld` out of `gate`")


def _unable(instance: Instance, engine: Engine) -> str | None:
    if TRAITS[engine.kind].divergence is None:
        return f"{engine.kind} has no program that compares caches"
    if instance.backend == "compose":
        return "it is a container"
    return "its engine is an image" if engine.source is None else None


def _idle(instance: Instance) -> str | None:
    kv = instance.kv
    if kv.k != kv.v:
        return f"K is {kv.k} and V is {kv.v}, and no other types are tried then"
    if instance.flash_attention == "off":
        return "flash attention is off, which other types need"
    return f"no type that is tried is coarser than {kv.k}" if kv.k in _COARSEST else None
