"""What runs in containers: where it may, what it may be, and what gives it GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.checks.context import RigContext
from llamaherd.diagnostics.findings import Finding
from llamaherd.diagnostics.rule import Rule
from llamaherd.reference.distributions import COMPOSE_PACKAGES

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
    way_out="add `backend: compose`, or give the engine a `ref` instead of the `image`.",
)


def images_in_containers(subject: RigContext) -> Iterator[Finding]:
    """An engine that is an image, under systemd."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if engine and engine.image and instance.backend == "systemd":
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
    way_out="use `backend: systemd`, or a newer system.",
)


def compose_there(subject: RigContext) -> Iterator[Finding]:
    """Containers on a system that has no Docker Compose 2 of its own."""
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
    "A CUDA engine that is built here would run in Compose.",
    why="The image made from a build holds the libraries of a CPU build only.",
    example="""
    instances:
      coder: {backend: compose}
    """,
    way_out="use `backend: systemd`, or an engine with an `image`.",
)


def built_for_containers(subject: RigContext) -> Iterator[Finding]:
    """A CUDA engine that was built on the host, in a container without CUDA's libraries."""
    for name, instance in subject.rig.instances.items():
        engine = subject.rig.engines.get(instance.engine)
        if instance.backend == "compose" and instance.on and engine and engine.source:
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
    way_out="""
    write `version: 1.18.0` or a newer one, or leave it out for the newest. Without such an instance, take
    `container_toolkit` out.
    """,
    sometimes=("warning",),
)


def container_toolkit(subject: RigContext) -> Iterator[Finding]:
    """A version of the container toolkit that describes no GPUs; one that no container needs."""
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
