"""What a container starts, and which GPUs it is shown: entry points, and variables of NVIDIA's runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.diagnostics.rule import Rule
from llamaherd.recipes.containers import Container
from llamaherd.recipes.programs import OF_LLAMA_CPP, ServerCommand, base_name
from llamaherd.recipes.recipe_rules import CONTAINER_FAILS
from llamaherd.reference import images

_SHELLS = frozenset({"sh", "bash", "ash", "zsh", "dash"})


def check(file: Path, container: Container, server: ServerCommand | None) -> Iterator[Finding]:
    """Everything wrong with how a container of an engine begins."""
    if container.official:
        yield from _entry(file, container)
    if server is not None:
        yield from _cards(file, container, server)


def _entry(file: Path, container: Container) -> Iterator[Finding]:
    """An image's ENTRYPOINT is `/app/llama-server` (llama.cpp b11434, .devops/cuda.Dockerfile), not on its PATH."""
    words = container.entrypoint
    if not words or any(word.unknown for word in words):
        return
    place = Place(file, *words[0].start)
    program = base_name(str(words[0]))
    if program in _SHELLS and str(words[-1]) == "-c" and len(container.command) > 1:
        message = f"`{program} -c` takes one text: of this command it runs `{container.first}` alone"
        yield CONTAINER_FAILS.at(place, message, "make `command` a list of one text, or leave `entrypoint` out")
    elif program in _SHELLS and len(words) == 1 and container.first.startswith("-"):
        message = f"`{words[0]}` is started in place of the server, and gets its arguments"
        yield CONTAINER_FAILS.at(place, message, "leave `entrypoint` out")
    elif str(words[0]) == program and program in OF_LLAMA_CPP:
        message = f"the image has no `{program}` on its PATH: the program is `/app/{program}`"
        yield CONTAINER_FAILS.at(place, message, f"write `/app/{program}`, or leave `entrypoint` out")


NO_GPU_GIVEN = Rule(
    "LH266",
    "A container does not get the GPU that it must use.",
    why="""
    NVIDIA's runtime shows what `NVIDIA_VISIBLE_DEVICES` and `NVIDIA_DRIVER_CAPABILITIES` name; images without
    `cuda` in their tag compute on the CPU.
    """,
    example="""
    services:
      llm:
        image:
          ghcr.io/ggml-org/llama.cpp:server-cuda@sha256:0000000000000000000000000000000000000000000000000000000000000000
        command: -m /models/a.gguf
        volumes: ["/srv/models:/models:ro"]
        gpus: all
        environment: [NVIDIA_DRIVER_CAPABILITIES=utility]
    """,
    way_out="leave the variables out: a reservation is enough.",
    sometimes=("warning",),
)


def _cards(file: Path, container: Container, server: ServerCommand) -> Iterator[Finding]:
    """NVIDIA container toolkit 1.20, user guide, environment variables."""
    visible = container.environment.get("NVIDIA_VISIBLE_DEVICES")
    given = container.environment.get("NVIDIA_DRIVER_CAPABILITIES")
    wants = container.gpu and ("cuda" in container.tag or server.program == "vllm")
    if wants and visible and str(visible) in ("void", "none"):
        message = f"`NVIDIA_VISIBLE_DEVICES={visible}` shows the container no GPU"
        yield NO_GPU_GIVEN.at(Place(file, *visible.start), message, "leave it out, or write `all`")
    if wants and given and not given.unknown and not {"all", "compute"} & set(str(given).split(",")):
        message = f"`NVIDIA_DRIVER_CAPABILITIES={given}` leaves CUDA out of the container"
        yield NO_GPU_GIVEN.at(Place(file, *given.start), message, "write `compute,utility`")
    layers = server.value("-ngl", "--gpu-layers", "--n-gpu-layers")
    of_cpu = container.official and container.tagged and not images.FOR_GPUS.search(container.tag)
    if of_cpu and not container.gpu and layers and not layers.unknown and str(layers) not in ("0", "auto", "-1"):
        message = f"`{container.image}` computes on the CPU alone: `-ngl {layers}` does nothing"
        way_out = f"use `{images.LLAMA_CPP}:server-cuda@sha256:…` and give it the GPU, or leave `-ngl` out"
        yield NO_GPU_GIVEN.at(Place(file, *layers.start), message, way_out, "warning")
