"""Rules for containers of engines: images, ports, keys, GPUs, starts, mounts and memory, whatever file starts them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.recipes.commands import Word
from llamaherd.recipes.containers import Container, has_model, options_of_run, path_on_host, server_of
from llamaherd.recipes.memory_limits import check_memory_limit
from llamaherd.recipes.recipe import (
    BETTER_BY_RIG,
    CONTAINER_FAILS,
    NAME_GONE,
    NOT_AS_IT_LOOKS,
    NOT_READ,
    OF_LLAMA_CPP,
    OPENS_TO_NETWORK,
    SHELLS,
    Recipe,
    ServerCommand,
    base_name,
    text_of,
)
from llamaherd.recipes.servers import (
    API_KEY_FLAGS,
    API_KEY_VARIABLES,
    PORTS,
    check_server,
    is_loopback,
    key_advice,
    names_engine,
)
from llamaherd.reference import releases
from llamaherd.text.numbers import whole_number

_NEEDS: Mapping[str, tuple[str, str]] = {
    "gpu": (
        "add `--gpus all`; in Compose, a device reservation under `deploy.resources.reservations.devices`",
        "add `AddDevice=nvidia.com/gpu=all`",
    ),
    "memlock": ("add `--ulimit memlock=-1`; in Compose, `ulimits: {memlock: -1}`", "add `Ulimit=memlock=-1`"),
    "shared": ("add `--ipc=host`; in Compose, `ipc: host` or `shm_size: 8gb`", "add `ShmSize=8g`"),
}
"""What to write for Docker, and in a Quadlet, by the need of a container."""


def recipe_of(file: Path, container: Container) -> Recipe:
    """Return the recipe of a container: its faults, and the server that it runs."""
    server = server_of(container)
    found = tuple(_check_container(file, container, server))
    return Recipe((*found, *check_server(file, server)), (server,)) if server else Recipe(found)


def _check_container(file: Path, container: Container, server: ServerCommand | None) -> Iterator[Finding]:
    """Yield the faults of a container. Arguments of its server are checked elsewhere."""
    at_image = Place(file, *container.image.start)
    if server is None and container.of_swap:
        yield from _swap(file, container)
    elif server is None and not container.official:
        yield from _unread(container, at_image)
    if server is None and not container.official:
        return
    yield from _image(container, at_image)
    yield from _program(file, container)
    if server and container.unread and not has_model(server):
        message = f"`{container.unread[0]}` is another file, whose variables are not read"
        yield NOT_READ.at(at_image, message, "put it into the folder of this file, or check it by itself", "note")
    if ("cuda" in container.tag or container.repository in releases.VLLM_IMAGES) and not container.gpu:
        message = "no GPU is given to this container: the engine would not see one"
        yield CONTAINER_FAILS.at(at_image, message, _way_to("gpu", container))
    if container.of_cpu and container.gpu:
        message = f"`{container.image}` is built for the CPU alone: the GPU given to it stays idle"
        yield CONTAINER_FAILS.at(at_image, message, f"use `{releases.LLAMA_CPP_IMAGE}:server-cuda@sha256:…`")
    yield from _entry(file, container)
    if server is not None:
        yield from _network(file, container, server)
        yield from _cards(file, container, server)
        yield from _mounts(file, container, server)
        yield from _memory(file, container, server)


def _way_to(need: str, container: Container) -> str:
    for_docker, for_quadlet = _NEEDS[need]
    return for_quadlet if container.style == "quadlet" else for_docker


def _unread(container: Container, place: Place) -> Iterator[Finding]:
    """Report a container that may start an engine by a program of its own."""
    about = " ".join([str(container.image), *map(str, container.command), *map(str, container.entrypoint or ())])
    variables = " ".join([*container.environment, *map(str, container.environment.values())])
    if names_engine(about) or (container.gpu and names_engine(" ".join([variables, *(container.mounts or ())]))):
        first = (container.entrypoint or container.command or (container.image,))[0]
        started = container.image if str(first).startswith("-") else first
        message = f"what `{started}` starts is not known here, and is not read"
        yield NOT_READ.at(place, message, "check its Dockerfile, or name the program and its arguments", "note")


def _swap(file: Path, container: Container) -> Iterator[Finding]:
    """Report llama-swap that the network reaches without a key; its servers listen inside of its container."""
    config = next((source for source, target in container.binds if target.endswith((".yaml", ".yml"))), "")
    if config or not any(each.endswith((".yaml", ".yml")) for each in container.mounts or ()):
        message = f"the models of llama-swap are in `{config or 'its config.yaml'}`, which is not read with this file"
        yield NOT_READ.at(Place(file, *container.image.start), message, "check that file by itself", "note")
    if container.settings_elsewhere or (config and swap_has_keys(file.absolute().parent / config)):
        return
    places = [each.start for each in container.ports if not (each.unknown or is_loopback(each.address))]
    places = [container.host_network] if container.host_network else places
    for place in places:
        message = "llama-swap is open to the whole network, and no API key is required"
        way_out = "publish on 127.0.0.1, or set `apiKeys` in its config.yaml"
        yield OPENS_TO_NETWORK.at(Place(file, *place), message, way_out)


def has_swap_keys(text: str) -> bool:
    """Return whether a config.yaml of llama-swap requires keys of its clients."""
    return re.search(r"^apiKeys[ \t]*:", text, re.MULTILINE) is not None


def swap_has_keys(config: Path) -> bool:
    """Return whether a config.yaml of llama-swap requires keys of its clients; true if it cannot be read."""
    text = text_of(config)
    return text is None or has_swap_keys(text)


def recipe_of_image(file: Path, container: Container) -> Recipe:
    """Return the recipe of an image that a recipe builds: the server that its containers run, and its base."""
    server = server_of(container)
    base = replace(container, built=False)
    found = list(_entry(file, base))
    if container.official or container.repository in releases.VLLM_IMAGES:
        found += _image(base, Place(file, *container.image.start))
    return Recipe((*found, *check_server(file, server)), (server,)) if server else Recipe(tuple(found))


RECIPE_TAG = Rule(
    "LH145",
    "A recipe's image is named by a tag, which moves.",
    example="""
    docker run -v /srv/models:/models:ro --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda --model /models/qwen.gguf
    """,
    language="sh",
    fix="write the image's digest. In an inventory `herd lock` finds it.",
    severity="warning",
)


_VERSIONED = re.compile(r"(?:^|[-_])(?:v?\d+\.\d+|b\d{4,6}$)")
"""A tag of one version, which stays the same."""


def _image(container: Container, place: Place) -> Iterator[Finding]:
    right = f"{releases.LLAMA_CPP_IMAGE}:{releases.serving_tag(container.tag)}"
    if container.repository == releases.OLD_LLAMA_CPP_IMAGE:
        message = "the images of llama.cpp moved; nothing is found under `ghcr.io/ggerganov` any more"
        kept = container.tool or (container.tag.startswith("light") and not _serves(container))
        same = f"{releases.LLAMA_CPP_IMAGE}:{releases.same_tag(container.tag)}" if kept else right
        yield NAME_GONE.at(place, message, f"write `{same}`, and its digest after it")
    elif (
        container.official
        and container.tagged
        and not container.image.unknown
        and not releases.is_published_tag(container.tag)
    ):
        message = f"llama.cpp publishes no image under the tag `{container.tag}`"
        yield CONTAINER_FAILS.at(place, message, f"use `{right}`, which starts llama-server")
    if container.official and container.tag.startswith("full") and not container.tool and container.entrypoint is None:
        message = f"`{container.tag}` is the image of all tools; it starts a script that does not have this command"
        yield CONTAINER_FAILS.at(place, message, f"use `{right}`, which starts llama-server")
    if container.official and container.tag.startswith("light") and _serves(container):
        message = f"`{container.tag}` contains only llama-cli and llama-completion: it serves no requests"
        yield CONTAINER_FAILS.at(place, message, f"use `{right}`, which starts llama-server")
    pinned = re.search(r"@sha256:[0-9a-f]{64}$", str(container.image))
    if not (pinned or container.local or container.image.unknown or _VERSIONED.search(container.tag)):
        message = f"the tag in `{container.image}` moves: tomorrow it is another engine"
        way_out = "name the image by its digest, NAME@sha256:…, as `docker buildx imagetools inspect IMAGE` shows it"
        yield RECIPE_TAG.at(place, message, way_out)


def _serves(container: Container) -> bool:
    """Return whether a container is meant to be a server: it publishes a port, or has an argument of servers only."""
    return bool(container.ports) or any(str(word) in {"--host", "--port"} for word in container.command)


def _program(file: Path, container: Container) -> Iterator[Finding]:
    """Report a program in the command of an image that starts its own program: it becomes an argument."""
    if container.entrypoint is not None or not container.command or not container.official:
        return
    if container.first.startswith("-") or container.command[0].unknown:
        return
    word = container.command[0]
    message = f"the image starts a program by itself; `{word}` would be an argument of that, and an invalid one"
    way_out = "leave it out of the command: with the server image the command is the arguments alone"
    yield CONTAINER_FAILS.at(Place(file, *word.start), message, way_out)


_BRIDGE = "172.17.0.1"
"""The address of the host in Docker's own network, which containers alone reach."""


def _network(file: Path, container: Container, server: ServerCommand) -> Iterator[Finding]:
    host = server.value("--host")
    port_word = server.value("--port") or container.environment.get("LLAMA_ARG_PORT")
    port = str(port_word) if port_word else PORTS.get(server.program, "")
    if host and not host.unknown and container.ports and not container.host_network and is_loopback(str(host)):
        message = f"inside a container, {host} is the container itself: no published port reaches it"
        yield CONTAINER_FAILS.at(Place(file, *host.start), message, "write `--host 0.0.0.0`, and publish on 127.0.0.1")
    known = whole_number(port) is not None
    keyed = container.settings_elsewhere or bool(API_KEY_VARIABLES & set(container.environment))
    keyed = keyed or server.has(*API_KEY_FLAGS) is not None
    for published in () if container.host_network else container.ports:
        place = Place(file, *published.start)
        if known and whole_number(published.container) is not None and published.container != port:
            message = f"port {published.container} of the container is published, and the server listens on {port}"
            way_out = f"publish `{published.text.rsplit(':', 1)[0]}:{port}`, or pass `--port {published.container}`"
            yield CONTAINER_FAILS.at(place, message, way_out)
        elif not (published.unknown or published.address == _BRIDGE or is_loopback(published.address) or keyed):
            message = f"`{published.text}` is open to the whole network, and no API key is required"
            chosen = "" if ":" in published.text else f"{published.container}:"  # else Docker takes any
            way_out = f"write `127.0.0.1:{chosen}{published.text}`, or {key_advice(server)}"
            if published.address:
                way_out = f"publish on 127.0.0.1, or {key_advice(server)}"
            yield OPENS_TO_NETWORK.at(place, message, way_out)
    if container.host_network and not keyed and not (host and (host.unknown or is_loopback(str(host)))):
        message = "the container is in the network of the host, open to all of it, and no API key is required"
        way_out = f"pass `--host 127.0.0.1`, or {key_advice(server)}"
        yield OPENS_TO_NETWORK.at(Place(file, *container.host_network), message, way_out)


def _entry(file: Path, container: Container) -> Iterator[Finding]:
    """Report wrong entrypoints: the image's is `/app/llama-server`, which is not on its PATH.

    llama.cpp b11434, .devops/cuda.Dockerfile.
    """
    words = container.entrypoint
    if not words or not container.official or any(word.unknown for word in words):
        return
    place = Place(file, *words[0].start)
    program = base_name(str(words[0]))
    if program in SHELLS and str(words[-1]) == "-c" and len(container.command) > 1:
        message = f"`{program} -c` takes one text: of this command it runs `{container.first}` alone"
        yield CONTAINER_FAILS.at(place, message, "make `command` a list of one text, or leave `entrypoint` out")
    elif program in SHELLS and len(words) == 1 and container.first.startswith("-"):
        message = f"`{words[0]}` is started in place of the server, and gets its arguments"
        yield CONTAINER_FAILS.at(place, message, "leave `entrypoint` out")
    elif str(words[0]) == program and program in OF_LLAMA_CPP:
        message = f"the image has no `{program}` on its PATH: the program is `/app/{program}`"
        yield CONTAINER_FAILS.at(place, message, f"write `/app/{program}`, or leave `entrypoint` out")


NO_GPU_GIVEN = Rule(
    "LH266",
    "A container does not get the GPU that it must use.",
    why="""
    NVIDIA's runtime provides the GPUs in `NVIDIA_VISIBLE_DEVICES` and the features in `NVIDIA_DRIVER_CAPABILITIES`;
    images without `cuda` in their tag compute on the CPU.
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
    fix="leave the variables out: a reservation is enough.",
    sometimes=("warning",),
)


def _cards(file: Path, container: Container, server: ServerCommand) -> Iterator[Finding]:
    """Report GPUs that variables hide (NVIDIA container toolkit 1.20, user guide, environment variables)."""
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
    if (
        container.of_cpu
        and not container.gpu
        and layers
        and not layers.unknown
        and str(layers) not in ("0", "auto", "-1")
    ):
        message = f"`{container.image}` computes on the CPU alone: `-ngl {layers}` does nothing"
        way_out = f"use `{releases.LLAMA_CPP_IMAGE}:server-cuda@sha256:…` and give it the GPU, or leave `-ngl` out"
        yield NO_GPU_GIVEN.at(Place(file, *layers.start), message, way_out, "warning")


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
    fix="add the line that the finding names.",
    severity="warning",
)


NO_VOLUME = Rule(
    "LH207",
    "No volume contains a file that the command names.",
    why="An image of an engine holds no models.",
    example="""
    services:
      server:
        image: ghcr.io/ggml-org/llama.cpp:server
        volumes: ["/srv/models:/data:ro"]
        command: --model /models/qwen.gguf
    """,
    fix="mount the folder of the file under the name that the command has.",
)


def _mounts(file: Path, container: Container, server: ServerCommand) -> Iterator[Finding]:
    """Report files that the command names and no volume contains. The content of a local image is unknown."""
    if container.local or container.mounts is None or any("$" in mount for mount in container.mounts):
        return
    for flag in _FILE_FLAGS:
        model = server.value(flag)
        if model is None or model.unknown or not str(model).startswith(("/", "~/")):
            continue
        path = PurePosixPath(str(model))
        if not any(path.is_relative_to(mount) for mount in container.mounts):
            message = f"no volume contains `{model}`"
            way_out = f"mount its folder, `/where/it/lies:{path.parent}:ro`, or name it as the volume does"
            yield NO_VOLUME.at(Place(file, *model.start), message, way_out)


def _memory(file: Path, container: Container, server: ServerCommand) -> Iterator[Finding]:
    """Report memory that a server locks, shares or fills, and that its container does not have."""
    locked = server.locks
    if locked and not container.memlock:
        message = f"`{locked}` locks nothing: by default, a container may lock little memory"
        yield LESS_THAN_NEEDED.at(Place(file, *locked.start), message, _way_to("memlock", container))
    model = server.value("-m", "--model")
    there = path_on_host(str(model), container.binds, file.absolute().parent) if model and not model.unknown else None
    on_cpu = container.of_cpu and not container.gpu
    yield from check_memory_limit(Place(file, *server.start), server, container.memory, there, without_cards=on_cpu)
    parallel = server.value("--tensor-parallel-size", "-tp")
    several = parallel is not None and (whole_number(str(parallel)) or 0) > 1
    if parallel and several and server.program == "vllm" and not container.shares_memory:
        message = "vLLM on several GPUs shares memory between its processes, and a container has 64 MB of that"
        yield LESS_THAN_NEEDED.at(Place(file, *parallel.start), message, _way_to("shared", container))


def check_docker_options(file: Path, arguments: tuple[Word, ...], *, alone: bool) -> Iterator[Finding]:
    """Yield the options of `docker run` that Docker refuses or ignores; `alone`: whether no unit starts it again."""
    options, _ = options_of_run(arguments)
    given = {option.name: option for option in options}
    restart = given.get("--restart")
    if restart and restart.value != "no" and "--rm" in given:
        message = "Docker refuses `--restart` together with `--rm`"
        yield CONTAINER_FAILS.at(Place(file, *restart.start), message, "leave `--rm` out")
    gpus = given.get("--gpus")
    if gpus and re.fullmatch(r"device=[^,]+,.+", gpus.value):
        message = f"Docker reads `{gpus.value}` as two options, because the shell removes the quotes"
        yield CONTAINER_FAILS.at(Place(file, *gpus.start), message, f"write `--gpus '\"{gpus.value}\"'`")
    for word in arguments:
        if word.tilde and ":" in str(word):
            message = f"`{word}` is no path: in quotes, the shell does not replace `~`"
            yield NOT_AS_IT_LOOKS.at(Place(file, *word.start), message, "write `$HOME` in its place")
    detached = next((each for each in options if each.name == "--detach" or re.match(r"-[it]*d", each.name)), None)
    if alone and detached and restart is None:
        message = f"with `{detached.name}` and no `--restart`, the server stays down after a crash or a reboot"
        yield BETTER_BY_RIG.at(Place(file, *detached.start), message, "add `--restart unless-stopped`")
