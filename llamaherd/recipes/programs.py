"""The programs that the commands of a recipe run: servers with their engine, arguments and prefixes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from llamaherd.recipes.commands import Command, Position, Word, read_commands

EngineName = Literal["llama.cpp", "ik_llama.cpp", "vllm"]

OF_LLAMA_CPP = ("llama-server", "llama-cli", "llama-completion", "llama-bench", "llama-sweep-bench")
OLD_NAMES = {"server": "llama-server", "main": "llama-cli"}
"""The names of llama.cpp's programs before June 2024."""
SUBCOMMANDS = {"serve": "llama-server", "cli": "llama-cli", "completion": "llama-completion", "bench": "llama-bench"}
"""The commands of the program `llama` (llama.cpp app/llama.cpp:65-77)."""

SHELLS = {"bash", "sh", "screen", "tmux", "wsl"}
"""Programs that take a whole command in one argument."""
PREFIXES = SHELLS | {
    *("chrt", "doas", "env", "exec", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf", "sudo", "systemd-run"),
    *("taskset", "time", "timeout", "unbuffer", "docker", "podman"),
}
"""Programs that run the program in their arguments."""

# Flags of ik_llama.cpp that llama.cpp never had (ik_llama.cpp common/common.cpp); llama.cpp users cannot mean them.
OF_IK = {
    *("-rtr", "--run-time-repack", "-fmoe", "--fused-moe", "-no-fmoe", "--no-fused-moe", "-amb", "-mla", "--mla-use"),
    *("--attention-max-batch", "-ger", "--grouped-expert-routing", "-mtp", "-ser", "--smart-expert-reduction"),
    *("-smgs", "-khad", "-vhad", "-mqkv", "-muge", "-grt", "-gr", "-no-gr", "-thp", "-dr", "-ictk"),
}


@dataclass(frozen=True)
class Published:
    """A port of a container that its host publishes."""

    text: str
    start: Position
    address: str
    host: str
    container: str


@dataclass(frozen=True)
class ServerCommand:
    """A command of an engine: its program, and its arguments without the program."""

    program: str
    kind: EngineName
    arguments: tuple[Word, ...]
    start: Position
    settings: Mapping[str, Word] = field(default_factory=dict)
    path: str = ""
    """The program as it is written."""
    published: Published | None = None
    """The published port of a server in a container."""
    contained: bool = False
    cards: int | None = None
    """The number of GPUs of its container, if the recipe sets it."""
    version: str = ""
    """The build or release that the recipe names, such as `b9592` or `v1.0.0`."""

    def value(self, *flags: str) -> Word | None:
        """Return the word after the last of these flags, which takes effect; None without one."""
        found = None
        for flag, after in zip(self.arguments, self.arguments[1:], strict=False):
            if str(flag) in flags:
                found = after
        return found

    @property
    def locks(self) -> Word | None:
        """Return the flag that keeps the weights in RAM; None without one."""
        mode = self.value("-lm", "--load-mode")
        return self.has("--mlock") or (mode if mode and "mlock" in str(mode) else None)

    def has(self, *flags: str) -> Word | None:
        """Return the last of these flags; None without one."""
        return next((word for word in reversed(self.arguments) if str(word) in flags), None)


def base_name(path: str) -> str:
    """Return `llama-server` for `./build/bin/llama-server` and for `llama-server.exe`."""
    return PurePosixPath(path.replace("\\", "/")).name.removesuffix(".exe")


def engine_of(text: str) -> EngineName | None:
    """Return the engine that a recipe names by its repository, a path or an image; None without one."""
    if re.search(r"\bik[_-]llama|\bikawrakow\b", text):
        return "ik_llama.cpp"
    return "llama.cpp" if re.search(r"(?:ggml-org|ggerganov)[/+]llama\.cpp", text) else None


def engine_at(path: Path) -> EngineName | None:
    """Return the engine in whose folder a file lies, such as a clone of its repository; None for another folder."""
    for part in reversed(path.parts[:-1]):
        engine: EngineName | None = "llama.cpp" if re.match(r"llama\.cpp\b", part) else engine_of(part)
        if engine:
            return engine
    return None


_BUILD_NAMED = re.compile(r"(?:checkout|--branch|-b)[\s=]+(?:tags/)?(b\d{4,6})\b|(?:server|full|light)\S*-(b\d{4,6})\b")
_RELEASE_NAMED = re.compile(r"(?:checkout|switch --detach|--branch|-b)[\s=]+(?:tags/)?(v\d+\.\d+(?:\.\d+)?)(?![\w.-])")
_CLONED = re.compile(r"\bgit\b[^\n|;&]*\bclone\b[^\n|;&]*")


def recipe_version(text: str) -> str:
    """Return the build or release of llama.cpp that a recipe checks out or an image's tag names; empty for none.

    A release's name is like that of any program: it counts where llama.cpp is all that is cloned.
    """
    text = re.sub(r"\\\r?\n", " ", text)
    if found := _BUILD_NAMED.search(text):
        return str(found[1] or found[2])
    cloned = _CLONED.findall(text)
    release = _RELEASE_NAMED.search(text)
    if release and cloned and all(engine_of(each) == "llama.cpp" for each in cloned):
        return release[1]
    return ""


_BUILDER, _BUILD = re.compile(r"\b(?:docker|podman|buildah)\b"), re.compile(r"\bbuild\b")


def built_of(text: str) -> frozenset[str]:
    """Return the images that a text builds itself: `docker build -t NAME`."""
    lines = re.sub(r"\\\r?\n", " ", text).split("\n")
    building = (line for line in lines if (tool := _BUILDER.search(line)) and _BUILD.search(line, tool.end()))
    return frozenset(name for line in building for name in re.findall(r"(?:-t|--tag)[ =](\S+)", line))


def find_program(command: Command, engine: EngineName | None) -> ServerCommand | None:
    """Return the engine's program that a command runs, behind any prefixes; None if it runs none."""
    words = command.words
    outer = base_name(str(words[0])) if words else ""
    for index, word in enumerate(words if outer in PREFIXES else words[:1]):
        name, rest = base_name(str(word)), words[index + 1 :]
        if index and outer in SHELLS and " " in str(word):
            for inner in read_commands(word.text).commands:
                settings = {**command.settings, **inner.settings}
                if server := find_program(replace(inner, settings=settings), engine):
                    return server
        if name in {"docker", "podman"} and rest and str(rest[0]) in {"run", "create"}:
            return None  # its arguments are another program's
        if program := _program(word, name, rest):
            skipped = 1 if name in {"llama", "vllm"} else 2 if name.startswith("python") else 0
            arguments = rest[skipped:]
            kind = _kind(program, arguments, engine)
            return ServerCommand(program, kind, arguments, word.start, command.settings, str(word))
    return None


def _program(word: Word, name: str, rest: tuple[Word, ...]) -> str | None:
    first = str(rest[0]) if rest else ""
    if name in OF_LLAMA_CPP:
        return name
    if name == "llama" and first in SUBCOMMANDS:
        return SUBCOMMANDS[first]
    if name == "vllm" and first == "serve":
        return "vllm"
    module = str(rest[1]) if name.startswith("python") and first == "-m" and len(rest) > 1 else ""
    if module.startswith("vllm.entrypoints") and module.endswith("api_server"):
        return "vllm"
    if word.unset and re.search(r"llama_?server", word.unset[0], re.IGNORECASE):
        return "llama-server"  # `"$LLAMA_SERVER"`, set elsewhere
    if name in OLD_NAMES and "/" in str(word) and {"-m", "--model"} & {str(each) for each in rest}:
        return OLD_NAMES[name]
    return None


def _kind(program: str, arguments: tuple[Word, ...], engine: EngineName | None) -> EngineName:
    if program == "vllm":
        return "vllm"
    if engine:
        return engine
    if program == "llama-sweep-bench" or OF_IK & {str(word) for word in arguments}:
        return "ik_llama.cpp"
    return "llama.cpp"
