"""`docker run` as a container: its options, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.recipes.commands import Position, Word
from llamaherd.recipes.containers import (
    Bind,
    Container,
    bind_of_mount,
    bind_of_volume,
    mount_target,
    published_port,
    word_at,
)
from llamaherd.recipes.recipe import BETTER_BY_RIG, CONTAINER_FAILS, NOT_AS_IT_LOOKS
from llamaherd.text.numbers import whole_number

_SWITCHES = {
    *("-d", "--detach", "--rm", "-i", "--interactive", "-t", "--tty", "-it", "-ti", "-dit", "-itd", "-id", "-td"),
    *("--privileged", "--init", "--read-only", "--no-healthcheck", "--oom-kill-disable", "-P", "--publish-all"),
    *("-q", "--quiet", "--sig-proxy", "--disable-content-trust", "--replace"),
}

_MOUNTS = ("-v", "--volume", "--mount")


def end_of_run(names: Sequence[str]) -> int | None:
    """Return the index behind `docker run`, `podman run` or `docker create` in a command; None without one."""
    for at, name in enumerate(names):
        if name in {"docker", "podman"}:
            at += 2 if names[at + 1 : at + 2] == ["container"] else 1
            return at + 1 if names[at : at + 1] in (["run"], ["create"]) else None
    return None


@dataclass(frozen=True)
class DockerOption:
    """One option of `docker run`: its value, and the position of the value, or of the switch."""

    name: str
    value: str
    start: Position


def docker_words(arguments: tuple[Word, ...]) -> tuple[tuple[DockerOption, ...], tuple[Word, ...]]:
    """Return the options, and the image with its command."""
    options: list[DockerOption] = []
    index = 0
    while index < len(arguments) and str(arguments[index]).startswith("-"):
        word = arguments[index]
        name, equals, value = str(word).partition("=")
        start = word.start
        index += 1
        if name not in _SWITCHES and not equals and index < len(arguments):
            value, start = str(arguments[index]), arguments[index].start
            index += 1
        options.append(DockerOption(name, value, start))
    return tuple(options), arguments[index:]


def container_of(arguments: tuple[Word, ...]) -> Container | None:
    """Return the container of `docker run ARGUMENTS`; None without an image among them."""
    options, rest = docker_words(arguments)
    if not rest:
        return None
    given = {option.name: option for option in options}
    entrypoint = given.get("--entrypoint")
    network = given.get("--network") or given.get("--net")
    return Container(
        image=rest[0],
        command=rest[1:],
        entrypoint=None if entrypoint is None else _entry(entrypoint),
        ports=tuple(published_port(each.value, each.start) for each in options if each.name in {"-p", "--publish"}),
        environment=_environment(options),
        gpu=any(_gives_gpu(each) for each in options),
        host_network=network.start if network and network.value == "host" else None,
        mounts=tuple(target for each in options if each.name in _MOUNTS and (target := mount_target(each.value))),
        binds=_binds(options),
        memory=_limit(given),
        memlock="--privileged" in given or any(re.match(r"memlock|(?:CAP_)?IPC_LOCK", each.value) for each in options),
        cards=_cards(given.get("--gpus")),
        gpu_ids=_ids(given.get("--gpus")),
        cpus=given["--cpuset-cpus"].value if "--cpuset-cpus" in given else "",
        shares_memory=bool({"--ipc", "--shm-size"} & set(given)),
        settings_elsewhere="--env-file" in given,
        unread=tuple(f"--env-file {each.value}" for each in options if each.name == "--env-file"),
    )


def check_docker_options(file: Path, arguments: tuple[Word, ...]) -> Iterator[Finding]:
    """Yield the options that Docker refuses or ignores, whatever runs in the container."""
    options, _ = docker_words(arguments)
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


def check_detached(file: Path, arguments: tuple[Word, ...]) -> Iterator[Finding]:
    """Yield a note on a container in the background that Docker does not start again."""
    options, _ = docker_words(arguments)
    detached = next((each for each in options if each.name == "--detach" or re.match(r"-[it]*d", each.name)), None)
    if detached and not any(each.name == "--restart" for each in options):
        message = f"with `{detached.name}` and no `--restart`, the server stays down after a crash or a reboot"
        yield BETTER_BY_RIG.at(Place(file, *detached.start), message, "add `--restart unless-stopped`")


def _cards(gpus: DockerOption | None) -> int | None:
    """Return the number of GPUs of `--gpus`; None for all."""
    return len(_ids(gpus)) or (whole_number(gpus.value.strip("\"'"), 999) if gpus else None)


def _ids(gpus: DockerOption | None) -> tuple[str, ...]:
    """Return the GPUs that `--gpus device=0,1` names."""
    value = gpus.value.strip("\"'") if gpus else ""
    return tuple(value.removeprefix("device=").split(",")) if value.startswith("device=") else ()


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
    _, rest = docker_words(arguments)
    before, kept, found = arguments[: len(arguments) - len(rest)], list(rest[:1]), list[Word]()
    index = 1
    while index < len(rest):
        name, following = str(rest[index]), str(rest[index + 1]) if index + 1 < len(rest) else ""
        shape = _BEHIND.get(name)
        taken = 0 if shape is None else 1 if not shape else 2 if re.fullmatch(shape, following) else 0
        (found if taken else kept).extend(rest[index : index + max(1, taken)])
        index += max(1, taken)
    return (*before, *found, *kept), tuple(found)


def _binds(options: tuple[DockerOption, ...]) -> tuple[Bind, ...]:
    found = (bind_of_mount(each.value) if each.name == "--mount" else bind_of_volume(each.value) for each in options)
    named = (bind for each, bind in zip(options, found, strict=True) if each.name in _MOUNTS)
    return tuple(bind for bind in named if bind)


def _limit(given: Mapping[str, DockerOption]) -> str:
    limit = given.get("--memory") or given.get("-m")
    return limit.value if limit else ""


def _entry(option: DockerOption) -> tuple[Word, ...]:
    return (word_at(option.value, option.start),) if option.value else ()


def _environment(options: tuple[DockerOption, ...]) -> Mapping[str, Word]:
    pairs = [(each.value.partition("="), each.start) for each in options if each.name in {"-e", "--env"}]
    return {name: word_at(value, start) for (name, _, value), start in pairs}


def _gives_gpu(option: DockerOption) -> bool:
    return option.name == "--gpus" or (option.name in {"--runtime", "--device"} and "nvidia" in option.value)
