"""A container of a recipe, from `docker run` or Compose: its image, ports, mounts, GPUs and start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.engines import tagged_version
from llamaherd.recipes.commands import Command, Position, Text, Word, settings_of
from llamaherd.recipes.memory_limits import (
    LIMIT_BELOW_HELD,
    LIMIT_BELOW_SAVED,
    prompts_above_limit,
    weights_above_limit,
)
from llamaherd.recipes.recipe import (
    CONTAINER_FAILS,
    LARGEST,
    NAME_GONE,
    NOT_READ,
    OF_LLAMA_CPP,
    OPENS_TO_NETWORK,
    EngineName,
    Published,
    Recipe,
    ServerCommand,
    base_name,
    engine_of,
    find_program,
    kind_of_program,
    recipe_version,
)
from llamaherd.recipes.servers import (
    API_KEY_FLAGS,
    API_KEY_VARIABLES,
    MODEL_FLAGS,
    PORTS,
    ROUTING,
    are_server_flags,
    check_server,
    is_loopback,
    key_advice,
    names_engine,
)
from llamaherd.reference import releases
from llamaherd.text.numbers import whole_number
from llamaherd.text.textfile import UnreadableError, read_text

_HOW: Mapping[str, Mapping[str, str]] = {
    "gpu": {
        "docker": "add `--gpus all`; in Compose, a device reservation under `deploy.resources.reservations.devices`",
        "quadlet": "add `AddDevice=nvidia.com/gpu=all`",
    },
    "memlock": {
        "docker": "add `--ulimit memlock=-1`; in Compose, `ulimits: {memlock: -1}`",
        "quadlet": "add `Ulimit=memlock=-1`",
    },
    "shared": {
        "docker": "add `--ipc=host`; in Compose, `ipc: host` or `shm_size: 8gb`",
        "quadlet": "add `ShmSize=8g`",
    },
}
"""What to write, by the need of a container and the kind of its recipe."""

Bind = tuple[str, str]
"""A path of the host, and the path in the container where it is mounted."""


_VOLUME = re.compile(r"((?:\$\{[^}]*\}|[^:])+):([^:]*)")
"""The source and the target of a volume."""


def bind_of_volume(volume: object) -> Bind | None:
    """Return the bind of `SOURCE:TARGET[:OPTIONS]` or Compose's mapping; None for a volume of Docker's own."""
    if isinstance(volume, Mapping):
        source, target = str(volume.get("source", "")), str(volume.get("target", ""))
    else:
        parts = _VOLUME.match(str(volume))
        source, target = (parts[1], parts[2]) if parts else ("", "")
    return (source, target) if re.match(r"[./~$]", source) and target.startswith("/") else None


def bind_of_mount(text: str) -> Bind | None:
    """Return the bind of `docker run --mount type=bind,source=…,target=…`."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    source = parts.get("source", parts.get("src", ""))
    return bind_of_volume(
        {"source": source, "target": parts.get("target", parts.get("dst", parts.get("destination", "")))}
    )


def mount_target(text: str) -> str | None:
    """Return the path in the container of `SOURCE:TARGET[:OPTIONS]`, or of the options of a mount."""
    named = re.search(r"(?:^|,)(?:target|destination|dst)=([^,]+)", text)
    parts = re.sub(r"\$\{[^}]*\}|^[A-Za-z]:(?=[^:]*:/)", "", text).split(":")  # a disk of Windows
    return named[1] if named else parts[1] if len(parts) > 1 else parts[0] or None


MOST_FILES = 16
"""The most files of variables of one container or unit that are read."""


def variables_of_files(folder: Path, named: Iterable[tuple[str, Position]]) -> tuple[dict[str, Word], tuple[str, ...]]:
    """Return the variables of files that are in a folder, and the files that were not read."""
    variables: dict[str, Word] = {}
    unread: list[str] = []
    for count, (name, at) in enumerate(dict(named).items()):
        if count == MOST_FILES:
            return variables, (*unread, name)
        try:
            text = read_text(folder / PurePosixPath(name).name, LARGEST)
        except (UnreadableError, ValueError):
            unread.append(name)
        else:
            variables |= {key: word_at(value, at) for key, value in settings_of(text).items()}
    return variables, tuple(unread)


def bind_mounts(volumes: Iterable[Any]) -> tuple[Bind, ...]:
    """Return the volumes that are folders or files of the host."""
    return tuple(found for each in volumes if (found := bind_of_volume(each)))


def path_on_host(path: str, bound: Iterable[Bind], folder: Path) -> Path | None:
    """Return the host's path of a path in a container, or None. `folder` is the base of relative paths."""
    for source, target in bound:
        if "$" not in source and PurePosixPath(path).is_relative_to(target):
            return folder / Path(source).expanduser() / PurePosixPath(path).relative_to(target)
    return None


@dataclass(frozen=True)
class Container:
    """One container of a recipe."""

    image: Word
    command: tuple[Word, ...] = ()
    entrypoint: tuple[Word, ...] | None = None
    """The program in place of that of the image; empty if the command names it."""
    ports: tuple[Published, ...] = ()
    environment: Mapping[str, Word] = field(default_factory=dict)
    gpu: bool = False
    host_network: Position | None = None
    mounts: tuple[str, ...] | None = None
    """The mount paths in it; None if they are unknown."""
    binds: tuple[Bind, ...] = ()
    """Folders and files of its host, each with its path in the container."""
    memlock: bool = False
    """Whether it may lock memory."""
    shares_memory: bool = False
    """Whether its processes have more shared memory than Docker's 64 MB."""
    memory: str = ""
    """The most memory that it may take, as it is written; empty for no limit."""
    built: bool = False
    """Whether the recipe builds the image itself."""
    settings_elsewhere: bool = False
    """Whether another file may set variables, and so a key."""
    unread: tuple[str, ...] = ()
    """The options that name files of variables which were not read, as they are written."""
    engine: EngineName | None = None
    """The engine that the recipe is about."""
    cards: int | None = None
    """The number of GPUs that it gets; None if it is not set."""
    gpu_ids: tuple[str, ...] = ()
    """The numbers or UUIDs of these GPUs, if the recipe names them."""
    cpus: str = ""
    """The processors that it may use."""
    style: Literal["docker", "quadlet"] = "docker"
    """The kind of the recipe, whose syntax the help lines have."""

    @property
    def repository_and_tag(self) -> str:
        """The image without its digest."""
        return str(self.image).split("@")[0]

    @property
    def local(self) -> bool:
        """True if the image is from no registry, so that it changes only when its owner builds it again."""
        first, slash, _ = self.repository.partition("/")
        return self.built or not slash or first in {"local", "localhost"}

    @property
    def repository(self) -> str:
        """The image without tag and digest."""
        return re.sub(r":[^:/]*$", "", str(self.image).split("@")[0])

    @property
    def tag(self) -> str:
        """The tag of the image; Docker takes `latest` when there is none."""
        found = re.search(r":([^:/]*)$", str(self.image).split("@")[0])
        return found[1] if found else "latest"

    @property
    def tagged(self) -> bool:
        """True if the tag is known, and so the content of the image. A digest alone does not describe it."""
        return "@" not in str(self.image) or ":" in str(self.image).split("@")[0].rpartition("/")[2]

    @property
    def official(self) -> bool:
        """True for an image of the llama.cpp project, by its new or old name."""
        return self.repository in {releases.LLAMA_CPP_IMAGE, releases.OLD_LLAMA_CPP_IMAGE}

    @property
    def of_cpu(self) -> bool:
        """True if its image is known to have no code for GPUs."""
        return self.official and self.tagged and releases.FOR_GPUS.search(self.tag) is None

    @property
    def first(self) -> str:
        """The first word of the command."""
        return str(self.command[0]) if self.command else ""

    @property
    def tool(self) -> str | None:
        """The program that the command starts in an image of all tools."""
        return releases.IMAGE_TOOLS.get(self.first) if self.tag.startswith("full") else None


def server_of(container: Container) -> ServerCommand | None:
    """Return the engine's server that a container runs, if it runs one."""
    server = _server(container)
    port = container.ports[0] if container.ports else None
    if server is None:
        return None
    image = str(container.image)
    settled = server.kind == "vllm" or container.official or container.entrypoint is not None or container.built
    given = _has_model(replace(server, settings=container.environment))
    version = tagged_version(server.kind, image) or recipe_version(image)
    return replace(
        server,
        contained=True,
        published=port,
        settings=container.environment,
        version=version,
        cards=container.cards,
        gpu_ids=container.gpu_ids,
        cpus=container.cpus,
        binds=container.binds,
        dropped=(*server.dropped, *container.unread, *([] if settled or given else [f"the entrypoint of {image}"])),
    )


def _has_model(server: ServerCommand) -> bool:
    """Return whether a server's arguments or variables name its model, or make it a router."""
    variables = {"LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO", "LLAMA_ARG_MODELS_DIR", "LLAMA_ARG_MODELS_PRESET"}
    return bool(server.has(*MODEL_FLAGS, *ROUTING) or variables & {*server.settings})


def _server(container: Container) -> ServerCommand | None:
    engine = engine_of(container.repository) or (container.engine if container.local else None)
    given = container.environment
    if container.entrypoint is not None:
        return find_program(Command((*container.entrypoint, *container.command), given), engine)
    if container.command and (server := find_program(Command(container.command, given), engine)):
        return server
    words = container.command
    if words and not container.first.startswith("-") and not _names_model(container):
        if not (container.official and base_name(container.first) == "server"):
            return None
        words = words[1:]
    kind: EngineName | None = "vllm" if "vllm" in container.repository else engine
    if kind is None and (
        re.search(r"(?<!o)llama[._-]?(?:cpp|server)", container.repository) or _has_server_flags(words, given)
    ):
        kind = kind_of_program("llama-server", words, engine)
    program = _started(container) if kind != "vllm" else "vllm"
    if kind is None or program is None:
        return None
    return ServerCommand(program, kind, words[1:] if container.tool else words, container.image.start)


def _names_model(container: Container) -> bool:
    """Return whether the first argument of vLLM's own image is its model: the image starts `vllm serve`."""
    flags = all(str(word).startswith("-") for word in container.command[1:2])
    return (
        container.repository in releases.VLLM_IMAGES
        and flags
        and base_name(container.first) not in (*_SHELLS, "python3")
    )


def _has_server_flags(words: tuple[Word, ...], environment: Mapping[str, Word]) -> bool:
    """Return whether the arguments of an unknown image are those of llama-server, with a model."""
    names = {*map(str, words), *environment}
    return bool(names & {*MODEL_FLAGS, *ROUTING}) and are_server_flags(words, None)


def _started(container: Container) -> str | None:
    """Return the program of llama.cpp that an image starts; None for one without an engine's flags."""
    if container.tool:
        return container.tool if container.tool in OF_LLAMA_CPP else None
    if container.tag.startswith("full"):
        return None
    prompted = any(str(word) in {"-p", "--prompt", "-no-cnv", "-cnv"} for word in container.command)
    alone = container.tag.startswith("light") or (prompted and not container.official)
    return "llama-cli" if alone else "llama-server"


def check_container(file: Path, container: Container) -> Iterator[Finding]:
    """Yield the faults of a container's image, ports, key, GPU and health. Arguments are checked elsewhere."""
    server = server_of(container)
    at_image = Place(file, *container.image.start)
    if server is None and is_swap(container):
        yield from _swap(file, container)
    elif server is None and not container.official:
        yield from _unread(container, at_image)
    if server is None and not container.official:
        return
    yield from _image(container, at_image)
    yield from _program(file, container)
    if server and container.unread and not _has_model(server):
        message = f"`{container.unread[0]}` is another file, whose variables are not read"
        yield NOT_READ.at(at_image, message, "put it into the folder of this file, or check it by itself", "note")
    if ("cuda" in container.tag or container.repository in releases.VLLM_IMAGES) and not container.gpu:
        message = "no GPU is given to this container: the engine would not see one"
        way_out = _HOW["gpu"][container.style]
        yield CONTAINER_FAILS.at(at_image, message, way_out)
    if container.official and container.tagged and container.gpu and not releases.FOR_GPUS.search(container.tag):
        message = f"`{container.image}` is built for the CPU alone: the GPU given to it stays idle"
        yield CONTAINER_FAILS.at(at_image, message, f"use `{releases.LLAMA_CPP_IMAGE}:server-cuda@sha256:…`")
    if server is not None:
        yield from _network(file, container, server)


def _unread(container: Container, place: Place) -> Iterator[Finding]:
    """Report a container that may start an engine by a program of its own."""
    about = " ".join([str(container.image), *map(str, container.command), *map(str, container.entrypoint or ())])
    variables = " ".join([*container.environment, *map(str, container.environment.values())])
    if names_engine(about) or (container.gpu and names_engine(" ".join([variables, *(container.mounts or ())]))):
        first = (container.entrypoint or container.command or (container.image,))[0]
        started = container.image if str(first).startswith("-") else first
        message = f"what `{started}` starts is not known here, and is not read"
        yield NOT_READ.at(place, message, "check its Dockerfile, or name the program and its arguments", "note")


def is_swap(container: Container) -> bool:
    """Return whether a container runs llama-swap, which starts servers by its own config.yaml."""
    return base_name(container.repository) == "llama-swap"


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
    try:
        return has_swap_keys(read_text(config, LARGEST))
    except (UnreadableError, ValueError):
        return True


def recipe_of(file: Path, container: Container) -> Recipe:
    """Return the recipe of a container: its faults, and the server that it runs."""
    server = server_of(container)
    found = [*check_container(file, container), *check_start(file, container, server)]
    if server is None:
        return Recipe(tuple(found))
    found += [*check_needs(file, container, server), *check_server(file, server)]
    return Recipe(tuple(found), (server,))


def recipe_of_image(file: Path, container: Container) -> Recipe:
    """Return the recipe of an image that a recipe builds: the server that its containers run, and its base."""
    server = server_of(container)
    base = replace(container, built=False)
    found: list[Finding] = []
    if container.official or container.repository in releases.VLLM_IMAGES:
        found += _image(base, Place(file, *container.image.start))
    if container.official:
        found += _entry(file, base)
    if server is None:
        return Recipe(tuple(found))
    return Recipe((*found, *check_server(file, server)), (server,))


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


def word_at(text: str, start: Position) -> Word:
    """Return a value as a word with one position for all its characters."""
    return Word(Text(text, (start,) * len(text)), start)


def published_port(text: str, start: Position) -> Published:
    """Return the published port of `[ADDRESS:][PORT:]PORT[/tcp]` as Docker reads it."""
    before, _, ports = text.rpartition(":")
    container = ports.split("/")[0]
    if "." in before.rpartition(":")[2] or before.endswith("]"):
        return Published(text, start, before, "", container)  # a port of Docker's choice
    address, _, host = before.rpartition(":") if whole_number(before) is None else ("", "", before)
    return Published(text, start, address, host or container, container)


_SHELLS = frozenset({"sh", "bash", "ash", "zsh", "dash"})


def check_start(file: Path, container: Container, server: ServerCommand | None) -> Iterator[Finding]:
    """Yield the faults of the start of an engine's container."""
    if container.official:
        yield from _entry(file, container)
    if server is not None:
        yield from _cards(file, container, server)


def _entry(file: Path, container: Container) -> Iterator[Finding]:
    """Report wrong entrypoints: the image's is `/app/llama-server`, which is not on its PATH.

    llama.cpp b11434, .devops/cuda.Dockerfile.
    """
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
    of_cpu = container.official and container.tagged and not releases.FOR_GPUS.search(container.tag)
    if of_cpu and not container.gpu and layers and not layers.unknown and str(layers) not in ("0", "auto", "-1"):
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


def check_needs(file: Path, container: Container, server: ServerCommand) -> Iterator[Finding]:
    """Yield what a server's container lacks: mounts, lockable memory, memory, shared memory."""
    yield from _mounts(file, container, server)
    locked = server.locks
    if locked and not container.memlock:
        message = f"`{locked}` locks nothing: by default, a container may lock little memory"
        way_out = _HOW["memlock"][container.style]
        yield LESS_THAN_NEEDED.at(Place(file, *locked.start), message, way_out)
    if fault := prompts_above_limit(server, container.memory):
        yield LIMIT_BELOW_SAVED.at(Place(file, *server.start), *fault, "warning")
    model = server.value("-m", "--model")
    there = path_on_host(str(model), container.binds, file.absolute().parent) if model and not model.unknown else None
    if held := weights_above_limit(
        server, container.memory, there, without_cards=container.of_cpu and not container.gpu
    ):
        yield LIMIT_BELOW_HELD.at(Place(file, *server.start), *held)
    parallel = server.value("--tensor-parallel-size", "-tp")
    several = parallel is not None and (whole_number(str(parallel)) or 0) > 1
    if parallel and several and server.program == "vllm" and not container.shares_memory:
        message = "vLLM on several GPUs shares memory between its processes, and a container has 64 MB of that"
        way_out = _HOW["shared"][container.style]
        yield LESS_THAN_NEEDED.at(Place(file, *parallel.start), message, way_out)


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
