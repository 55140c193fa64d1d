"""What a server in a container needs around it: its files, and limits that its flags want lifted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.diagnostics.rule import Rule
from llamaherd.recipes.binds import on_host
from llamaherd.recipes.containers import Container
from llamaherd.recipes.heldweights import LIMIT_BELOW_HELD, holds_beyond
from llamaherd.recipes.memorylimit import LIMIT_BELOW_SAVED, saves_beyond
from llamaherd.recipes.programs import ServerCommand
from llamaherd.text.numbers import whole

_FILE_FLAGS = (
    *("-m", "--model", "--mmproj", "-mm", "-md", "--model-draft", "--spec-draft-model", "--lora", "--api-key-file"),
    *("--chat-template-file", "--grammar-file", "--models-preset", "--models-dir", "--slot-save-path"),
)


LESS_THAN_NEEDED = Rule(
    "LH204",
    "A container has less than a flag needs.",
    why="`--mlock` needs `ulimits: {memlock: -1}`; vLLM on several GPUs needs `ipc: host` or `shm_size`.",
    example="""
    services:
      server:
        image: vllm/vllm-openai:v0.33.0
        gpus: all
        command: --model Qwen/Qwen3-8B --tensor-parallel-size 2
    """,
    way_out="add the line that the finding names.",
    severity="warning",
)


def check(file: Path, container: Container, server: ServerCommand) -> Iterator[Finding]:
    """Everything that is missing around a server."""
    yield from _mounts(file, container, server)
    locked = server.locks
    if locked and not container.memlock:
        message = f"`{locked}` locks nothing: a container may lock little, unless it is told otherwise"
        way_out = "add `--ulimit memlock=-1`; in Compose, `ulimits: {memlock: -1}`"
        yield LESS_THAN_NEEDED.at(Place(file, *locked.start), message, way_out)
    if said := saves_beyond(server, container.memory):
        yield LIMIT_BELOW_SAVED.at(Place(file, *server.start), *said, "warning")
    model = server.value("-m", "--model")
    there = on_host(str(model), container.binds, file.absolute().parent) if model and not model.unknown else None
    if held := holds_beyond(server, container.memory, there, without_cards=container.of_cpu and not container.gpu):
        yield LIMIT_BELOW_HELD.at(Place(file, *server.start), *held)
    parallel = server.value("--tensor-parallel-size", "-tp")
    several = parallel is not None and (whole(str(parallel)) or 0) > 1
    if parallel and several and server.program == "vllm" and not container.shares_memory:
        message = "vLLM on several GPUs shares memory between its processes, and a container has 64 MB of that"
        way_out = "add `--ipc=host`; in Compose, `ipc: host` or `shm_size: 8gb`"
        yield LESS_THAN_NEEDED.at(Place(file, *parallel.start), message, way_out)


NO_VOLUME = Rule(
    "LH207",
    "No volume brings a file that the command names.",
    why="An image of an engine holds no models.",
    example="""
    services:
      server:
        image: ghcr.io/ggml-org/llama.cpp:server
        volumes: ["/srv/models:/data:ro"]
        command: --model /models/qwen.gguf
    """,
    way_out="mount the folder of the file under the name that the command has.",
)


def _mounts(file: Path, container: Container, server: ServerCommand) -> Iterator[Finding]:
    """Files that the command names and no volume brings. What an image of one's own holds is not known."""
    if container.local or container.mounts is None or any("$" in mount for mount in container.mounts):
        return
    for flag in _FILE_FLAGS:
        model = server.value(flag)
        if model is None or model.unknown or not str(model).startswith(("/", "~/")):
            continue
        path = PurePosixPath(str(model))
        if not any(path.is_relative_to(mount) for mount in container.mounts):
            message = f"no volume brings `{model}` into the container"
            way_out = f"mount its folder, `/where/it/lies:{path.parent}:ro`, or name it as the volume does"
            yield NO_VOLUME.at(Place(file, *model.start), message, way_out)
