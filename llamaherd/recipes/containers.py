"""A container of a recipe: the options of `docker run`, to which the readers of all kinds translate, and its server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from llamaherd.engines import tagged_version
from llamaherd.recipes.commands import Command, Position, Text, Word, is_veiled, settings_of, unveil, word_at, word_of
from llamaherd.recipes.memory_limits import limit_bytes
from llamaherd.recipes.recipe import (
    OF_LLAMA_CPP,
    SHELLS,
    EngineName,
    Published,
    ServerCommand,
    base_name,
    engine_of,
    find_program,
    kind_of_program,
    recipe_version,
    text_of,
)
from llamaherd.recipes.servers import API_KEY_VARIABLES, MODEL_FLAGS, ROUTING, are_server_flags
from llamaherd.reference import releases
from llamaherd.text.numbers import whole_number

RecipeStyle = Literal["docker", "compose", "quadlet"]

Bind = tuple[str, str]
"""A path of the host, and the path in the container where it is mounted."""

_SWITCHES = {
    *("-d", "--detach", "--rm", "-i", "--interactive", "-t", "--tty", "-it", "-ti", "-dit", "-itd", "-id", "-td"),
    *("--privileged", "--init", "--read-only", "--no-healthcheck", "--oom-kill-disable", "-P", "--publish-all"),
    *("-q", "--quiet", "--sig-proxy", "--disable-content-trust", "--replace"),
}
_LONG = {"-p": "--publish", "-v": "--volume", "-e": "--env", "-m": "--memory", "--net": "--network"}
_LOCKS = re.compile(r"memlock[=:](?:-1|unlimited|host|\d{10,})|(?:CAP_)?IPC_LOCK")
"""A limit of a GiB or more of locked memory, or the right to lock any."""
_SHARED = 1 << 30
"""Bytes of shared memory that are more than a container's default."""
_FILES: Mapping[RecipeStyle, str] = {"docker": "--env-file ", "compose": "env_file: ", "quadlet": "EnvironmentFile="}
"""How each kind of recipe names a file of variables."""


@dataclass(frozen=True)
class ContainerOption:
    """An option of `docker run`, and the position of its value, or of the switch. Unknown values are veiled."""

    name: str
    text: Text
    start: Position

    @property
    def value(self) -> str:
        """The value as it is written."""
        return unveil(self.text.chars)


def end_of_run(names: Sequence[str]) -> int | None:
    """Return the index behind `docker run`, `podman run` or `docker create` in a command; None without one."""
    for at, name in enumerate(names):
        if name in {"docker", "podman"}:
            at += 2 if names[at + 1 : at + 2] == ["container"] else 1
            return at + 1 if names[at : at + 1] in (["run"], ["create"]) else None
    return None


def options_of_run(arguments: tuple[Word, ...]) -> tuple[tuple[ContainerOption, ...], tuple[Word, ...]]:
    """Return the options of `docker run ARGUMENTS`, and the image with its command."""
    options: list[ContainerOption] = []
    index = 0
    while index < len(arguments) and str(arguments[index]).startswith("-"):
        word = arguments[index]
        name, equals, _ = str(word).partition("=")
        text, start = word.veiled.cut(len(name) + 1, len(word.text.chars)), word.start
        index += 1
        if name not in _SWITCHES and not equals and index < len(arguments):
            text, start = arguments[index].veiled, arguments[index].start
            index += 1
        options.append(ContainerOption(_LONG.get(name, name), text, start))
    return tuple(options), arguments[index:]


_VOLUME = re.compile(r"((?:^[A-Za-z]:(?=[^:]*:/))?(?:\$\{[^}]*\}|[^:])+)(?::([^:]*))?")
"""The source, which may be on a disk of Windows, and the target of a volume."""


def mount_of(text: str) -> Bind:
    """Return source and target of `SOURCE:TARGET[:OPTIONS]` or of the options of `--mount`; they may be empty."""
    given = dict(part.partition("=")[::2] for part in text.split(","))
    target = given.get("target", given.get("destination", given.get("dst", "")))
    parts = _VOLUME.match(text)
    if target or parts is None:
        return given.get("source", given.get("src", "")), target
    return (parts[1], parts[2]) if parts[2] is not None else ("", parts[1])


MOST_FILES = 16
"""The most files of variables of one container or unit that are read."""


def variables_of_files(
    folder: Path | None, named: Iterable[tuple[str, Position]]
) -> tuple[dict[str, Word], tuple[str, ...]]:
    """Return the variables of files that are in a folder, and the files that were not read."""
    variables: dict[str, Word] = {}
    unread: list[str] = []
    for count, (name, at) in enumerate(dict(named).items()):
        if count == MOST_FILES:
            return variables, (*unread, name)
        text = text_of(folder / PurePosixPath(name).name) if folder else None
        if text is None:
            unread.append(name)
        else:
            variables |= {key: word_at(value, at) for key, value in settings_of(text).items()}
    return variables, tuple(unread)


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
    style: RecipeStyle = "docker"
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
    def of_swap(self) -> bool:
        """True if it runs llama-swap, which starts servers by its own config.yaml."""
        return base_name(self.repository) == "llama-swap"

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


def container_of(
    options: Sequence[ContainerOption],
    image: Word,
    command: tuple[Word, ...] = (),
    *,
    folder: Path | None,
    style: RecipeStyle = "docker",
) -> Container:
    """Return the container that `docker run OPTIONS IMAGE COMMAND` starts. Files of variables are read in `folder`."""
    given = {option.name: option for option in options}
    network, entrypoint = given.get("--network"), given.get("--entrypoint")
    mounts = [mount_of(each.value) for each in options if each.name in ("--volume", "--mount")]
    named = [(each.value, each.start) for each in options if each.name == "--env-file"]
    variables, unread = variables_of_files(folder, named)
    ids = [name for option in options for name in _ids(option)]
    counts = [_count(option) for option in options if option.name == "--gpus" or _ids(option)]
    shared = given.get("--shm-size")
    return Container(
        image=image,
        command=command,
        entrypoint=None if entrypoint is None else (word_of(entrypoint.text),) if entrypoint.value else (),
        ports=tuple(_published(each) for each in options if each.name == "--publish"),
        environment={**variables, **dict(_variable(each) for each in options if each.name == "--env")},
        gpu=any(map(_gives_gpu, options)),
        host_network=network.start if network and network.value == "host" else None,
        mounts=tuple(target for _, target in mounts if target),
        binds=tuple(each for each in mounts if re.match(r"[./~$]", each[0]) and each[1].startswith("/")),
        memory=given["--memory"].value if "--memory" in given else "",
        memlock="--privileged" in given or any(_LOCKS.match(each.value) for each in options),
        cards=sum(filter(None, counts)) if counts and None not in counts else None,
        gpu_ids=tuple(ids),
        cpus=given["--cpuset-cpus"].value if "--cpuset-cpus" in given else "",
        shares_memory="--ipc" in given or (shared is not None and (limit_bytes(shared.value) or 0) >= _SHARED),
        settings_elsewhere=bool(unread) or any(map(_gives_key, options)),
        unread=tuple(f"{_FILES[style]}{name}" for name in unread),
        style=style,
    )


def gpus_of(device: Mapping[str, Any]) -> str:
    """Return the value of `--gpus` for a device that Compose or Ansible reserves."""
    ids = device.get("device_ids")
    return f"device={','.join(map(str, ids))}" if isinstance(ids, list) else str(device.get("count", "all"))


def _published(option: ContainerOption) -> Published:
    port = published_port(option.value, option.start)
    return replace(port, unknown=bool(port.address) and is_veiled(option.text.chars[: len(port.address)]))


def _variable(option: ContainerOption) -> tuple[str, Word]:
    name, _, _ = option.value.partition("=")
    return name, word_of(option.text.cut(len(name) + 1, len(option.text.chars)), option.start)


def _gives_gpu(option: ContainerOption) -> bool:
    devices = option.name == "--device" and re.search(r"nvidia|/dev/(?:dri|kfd|dxg)", option.value)
    return option.name == "--gpus" or bool(devices) or (option.name == "--runtime" and "nvidia" in option.value)


def _gives_key(option: ContainerOption) -> bool:
    return option.name == "--secret" and any(name in option.value for name in API_KEY_VARIABLES)


def _ids(option: ContainerOption) -> tuple[str, ...]:
    """Return the GPUs that `--gpus device=0,1` or `--device nvidia.com/gpu=0` names."""
    named = re.fullmatch(r"[\"']*(?:device=|nvidia\.com/gpu=(?!all))([^\"']+)[\"']*", option.value)
    return tuple(named[1].split(",")) if named else ()


def _count(option: ContainerOption) -> int | None:
    """Return the number of GPUs of an option; None for all."""
    return len(_ids(option)) or whole_number(option.value.strip("\"'"), 999)


def published_port(text: str, start: Position) -> Published:
    """Return the published port of `[ADDRESS:][PORT:]PORT[/tcp]` as Docker reads it."""
    before, _, ports = text.rpartition(":")
    container = ports.split("/")[0]
    if "." in before.rpartition(":")[2] or before.endswith("]"):
        return Published(text, start, before, "", container)  # a port of Docker's choice
    address, _, host = before.rpartition(":") if whole_number(before) is None else ("", "", before)
    return Published(text, start, address, host or container, container)


_BEHIND: Mapping[str, str] = {
    **dict.fromkeys(("-p", "--publish"), r"(?:[\d.]+:)?\d+:\d+(?:/\w+)?"),
    **dict.fromkeys(("-v", "--volume"), r"[^:]*/[^:]*:/[^:]*(?::\w+)?"),
    **dict.fromkeys(("-e", "--env"), r"[A-Z][A-Z0-9_]*=.*"),
    **dict.fromkeys(("--gpus", "--restart", "--ipc", "--shm-size", "--network", "--ulimit", "--env-file"), r"[^-].*"),
    **dict.fromkeys(("--rm", "--detach", "--privileged", "--no-healthcheck", "--init", "--read-only"), ""),
}
"""Options of Docker that no server has, with the patterns of their values; `""` for none."""


def move_misplaced_options(arguments: tuple[Word, ...]) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """Return the arguments with Docker's options moved before the image, and the moved ones."""
    _, rest = options_of_run(arguments)
    before, kept, found = arguments[: len(arguments) - len(rest)], list(rest[:1]), list[Word]()
    index = 1
    while index < len(rest):
        name, following = str(rest[index]), str(rest[index + 1]) if index + 1 < len(rest) else ""
        shape = _BEHIND.get(name)
        taken = 0 if shape is None else 1 if not shape else 2 if re.fullmatch(shape, following) else 0
        (found if taken else kept).extend(rest[index : index + max(1, taken)])
        index += max(1, taken)
    return (*before, *found, *kept), tuple(found)


def server_of(container: Container) -> ServerCommand | None:
    """Return the engine's server that a container runs, if it runs one."""
    server = _server(container)
    port = container.ports[0] if container.ports else None
    if server is None:
        return None
    image = str(container.image)
    settled = server.kind == "vllm" or container.official or container.entrypoint is not None or container.built
    given = has_model(replace(server, settings=container.environment))
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


def has_model(server: ServerCommand) -> bool:
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
        and base_name(container.first) not in (*SHELLS, "python3")
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
