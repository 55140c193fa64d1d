"""A recipe as it is read: the servers that its commands run, its findings, and rules that several readers share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.recipes.bash import read_commands
from llamaherd.recipes.commands import Command, Document, Position, Word
from llamaherd.text.textfile import UnreadableError, read_text

LARGEST = 128 << 10
"""The most bytes of a recipe. Longer files are models or logs, given by mistake."""

MOST_SERVERS = 200
"""The most servers of one recipe that are checked."""

EngineName = Literal["llama.cpp", "ik_llama.cpp", "vllm"]

OF_LLAMA_CPP = ("llama-server", "llama-cli", "llama-completion", "llama-bench", "llama-sweep-bench")
OLD_NAMES = {"server": "llama-server", "main": "llama-cli"}
"""The names of llama.cpp's programs before June 2024."""
SUBCOMMANDS = {"serve": "llama-server", "cli": "llama-cli", "completion": "llama-completion", "bench": "llama-bench"}
"""The commands of the program `llama` (llama.cpp app/llama.cpp:65-77)."""

_NAMED = re.compile(
    r"(?:[a-z0-9]+[-_.])*llama(?:[-_][a-z0-9]+)*[-_]server(?:[-_.](?!start|run|launch|wrapper)[a-z0-9]+)*",
    re.IGNORECASE,
)
"""A build of llama-server that its owner renamed, such as `ik-llama-server` and `llama-server-cuda`."""
_FILE = re.compile(r"\.(?:sh|bash|py|service|socket|env|conf|ini|ya?ml|json|log|pid|txt)$")

SHELLS = ("sh", "bash", "ash", "zsh", "dash")
RUNNERS: Mapping[str, tuple[frozenset[str], int]] = {
    name: (frozenset(options.split()), positions)
    for name, options, positions in (
        ("sudo", "-u -g -h -p -C -r -t -U -D -T -R --user --group", 0),
        ("doas", "-u -C", 0),
        ("env", "-u -C --unset --chdir", 0),
        ("exec", "-a", 0),
        ("nice", "-n --adjustment", 0),
        ("ionice", "-c -n --class --classdata", 0),
        ("chrt", "-T -P -D", 1),
        ("taskset", "", 1),
        ("numactl", "-C -N -m -i -p -w --cpunodebind --physcpubind --membind", 0),
        ("nohup", "", 0),
        ("setsid", "", 0),
        ("stdbuf", "-i -o -e", 0),
        ("time", "-f -o", 0),
        ("timeout", "-k -s --kill-after --signal", 1),
        ("unbuffer", "", 0),
        ("command", "", 0),
        ("systemd-run", "-p -u -E --property --unit --setenv --slice --uid --gid --description", 0),
        ("systemd-inhibit", "--what --who --why --mode", 0),
        ("mangohud", "", 0),
        ("prime-run", "", 0),
        ("dumb-init", "", 0),
        ("tini", "", 0),
        ("gosu", "", 1),
        ("uv", "-p --python --with --with-requirements --project --directory --extra --group --env-file", 1),
        ("uvx", "-p --python --with --from", 0),
        ("poetry", "-C --directory", 1),
        ("pipenv", "", 1),
        ("pixi", "-e --environment --manifest-path", 1),
        *((manager, "-n --name -p --prefix", 1) for manager in ("conda", "mamba", "micromamba")),
        *((shell, "-o -O --rcfile", 0) for shell in (*SHELLS, "eval")),
        ("screen", "-S -t -c -h -p -s -T", 0),
        ("tmux", "-s -t -n -c -x -y -F -e -L -S", 1),
        ("wsl", "-d --distribution -u --user --cd", 0),
        ("ssh", "-p -i -l -o -F -J -L -R -D -W -b -c -E -m", 1),
        ("docker", "-e -u -w --env --user --workdir --env-file --detach-keys", 2),
        ("podman", "-e -u -w --env --user --workdir --env-file --detach-keys", 2),
        ("toolbox", "-c --container", 1),
        ("distrobox", "-n --name", 2),
    )
}
"""Programs that run the program behind their own arguments: their options with a value, and the other arguments, such
as the name of a container."""

# Flags of ik_llama.cpp that llama.cpp never had (ik_llama.cpp common/common.cpp); llama.cpp users cannot mean them.
OF_IK = {
    *("-rtr", "--run-time-repack", "-fmoe", "--fused-moe", "-no-fmoe", "--no-fused-moe", "-amb", "-mla", "--mla-use"),
    *("--attention-max-batch", "-ger", "--grouped-expert-routing", "-mtp", "-ser", "--smart-expert-reduction"),
    *("-smgs", "-khad", "-vhad", "-mqkv", "-muge", "-grt", "-gr", "-no-gr", "-thp", "-dr", "-ictk"),
}
_TAKE_TEXT = frozenset((*SHELLS, "eval", "screen", "tmux", "wsl", "ssh", "docker", "podman", "toolbox", "distrobox"))
"""The runners whose command may be one text, which a shell reads."""
_TAKE_COMMANDS = frozenset(("screen", "tmux", "ssh"))
"""The runners whose command may follow one of their own commands, or another command of the shell."""


@dataclass(frozen=True)
class Published:
    """A port of a container that its host publishes."""

    text: str
    start: Position
    address: str
    host: str
    container: str
    unknown: bool = False
    """Whether its address is set elsewhere."""


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
    gpu_ids: tuple[str, ...] = ()
    """The numbers or UUIDs of these GPUs, if the recipe names them."""
    version: str = ""
    """The build or release that the recipe names, such as `b9592` or `v1.0.0`."""
    cpus: str = ""
    """The processors that it may use, as taskset names them."""
    dropped: tuple[str, ...] = ()
    """Settings around the program that no key of an instance has, such as `nice -n 5`."""
    served_as: str = ""
    """The name by which clients of a router or of llama-swap request its model."""
    group: str = ""
    """The name of the servers of which one runs at a time."""
    alone: bool = False
    """Whether the servers of other groups end when this one starts."""
    unload_after: int | None = None
    """The seconds without a request after which its model is unloaded, if no flag sets them."""
    binds: tuple[tuple[str, str], ...] = ()
    """Folders and files of the host, each with its path in the container."""

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


VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Variables that choose the GPUs of a process."""


def visible_gpus(environment: Mapping[str, Word]) -> tuple[str, ...] | None:
    """Return the GPUs that variables show; None for all."""
    found = (environment[name] for name in VISIBLE if name in environment)
    word = next((each for each in found if not each.unknown and str(each) != "all"), None)
    names = (each.strip() for each in str(word).split(","))
    return None if word is None else tuple(name for name in names if name not in ("", "-1"))


def text_of(file: Path) -> str | None:
    """Return the text of a file that a recipe names; None if it cannot be read."""
    try:
        return read_text(file, LARGEST)
    except (UnreadableError, OSError, ValueError):
        return None


def base_name(path: str) -> str:
    """Return `llama-server` for `./build/bin/llama-server` and for `llama-server.exe`."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2].removesuffix(".exe")


def engine_of(text: str) -> EngineName | None:
    """Return the engine that a recipe names by its repository, a path or an image; None without one."""
    if re.search(r"\bik[_-]llama|\bikawrakow\b", text):
        return "ik_llama.cpp"
    return "llama.cpp" if re.search(r"(?:ggml-org|ggerganov)[/+]llama\.cpp", text) else None


def engine_at(path: Path) -> EngineName | None:
    """Return the engine that a file's name or folder names, such as a clone of its repository; None for others."""
    if re.match(r"ik[_-]llama", path.name):
        return "ik_llama.cpp"
    for part in reversed(path.parts[:-1]):
        engine: EngineName | None = "llama.cpp" if re.match(r"llama\.cpp\b", part) else engine_of(part)
        if engine:
            return engine
    return None


_BUILD_NAMED = re.compile(r"(?:checkout|--branch|-b)[\s=]+(?:tags/)?(b\d{4,6})\b|(?:server|full|light)\S*-(b\d{4,6})\b")
_RELEASE_NAMED = re.compile(r"(?:checkout|switch --detach|--branch|-b)[\s=]+(?:tags/)?(v\d+\.\d+(?:\.\d+)?)(?![\w.-])")
_CLONED = re.compile(r"\bgit\b[^\n|;&]*\bclone\b[^\n|;&]*")


FORK = "a fork"
"""The version of an engine that has flags of its own."""
_FORKED = re.compile(r"(?:-ct[kv]d?|--cache-type-[kv](?:-draft)?)[ \t]+[\"']?turbo[2-4]\b")
"""Types of the cache that TurboQuant's forks alone have."""


def recipe_version(text: str) -> str:
    """Return the build or release of llama.cpp that a recipe checks out or an image's tag names; empty for none.

    A release's name is like that of any program: it counts where llama.cpp is all that is cloned.
    """
    text = re.sub(r"\\\r?\n", " ", text)
    if _FORKED.search(text):
        return FORK
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


_BOUND = re.compile(r"(?:^| )(?:-C[ =]?|--physcpubind[ =])([\d,-]+)")
"""The processors that numactl binds a program to."""


def find_program(command: Command, engine: EngineName | None) -> ServerCommand | None:
    """Return the engine's program that a command runs, behind any prefixes; None if it runs none."""
    words = command.words
    settings = dict(command.settings)
    cpus, dropped = "", list[str]()
    runner = ""
    at = 0
    while at < len(words):
        name = base_name(str(words[at]))
        assigned = re.match(r"([A-Za-z_]\w*)=", str(words[at])) if at else None
        if assigned:
            value = words[at].text.cut(assigned.end(), len(words[at].text.chars))
            settings[assigned[1]] = replace(words[at], text=value)
            at += 1
        elif name in RUNNERS:
            runner, end = name, _behind(words, at)
            given = [str(word) for word in words[at + 1 : end]]
            if name in {"docker", "podman"} and "exec" not in given[:2]:
                return None  # its arguments are another program's
            if name == "taskset" and len(given) > 1 and re.fullmatch(r"-\w*c|--cpu-list", given[-2]):
                cpus = given[-1]
            elif name == "numactl" and (bound := _BOUND.search(" ".join(given))):
                cpus = bound[1]
            elif given and name in ("taskset", "numactl", "chrt", "nice", "ionice"):
                dropped.append(" ".join([name, *given]))
            at = end
        elif runner in _TAKE_TEXT and re.search(r"\s", str(words[at])):
            if found := _found_in_text(words[at], settings, engine):
                return found
            at += 1
        elif runner in _TAKE_COMMANDS and _server_of(words[at], words[at + 1 :], settings, engine) is None:
            at += 1
        else:
            break
    if at >= len(words):
        return None
    server = _server_of(words[at], words[at + 1 :], settings, engine)
    return replace(server, cpus=cpus, dropped=tuple(dropped)) if server else None


def _behind(words: tuple[Word, ...], at: int) -> int:
    """Return the index of the word behind a runner and its own arguments."""
    options, positions = RUNNERS[base_name(str(words[at]))]
    at += 1
    positions += "compose" in map(str, words[at : at + 1])
    while at < len(words):
        text = str(words[at])
        if text == "--":
            return at + 1
        if (text.startswith("-") and text != "-") or text == "~":
            clustered = re.fullmatch(r"-[A-Za-z]{2,}", text) is not None and f"-{text[-1]}" in options
            at += 2 if text in options or clustered else 1
        elif positions:
            at, positions = at + 1, positions - 1
        else:
            break
    return at


def _found_in_text(word: Word, settings: Mapping[str, Word], engine: EngineName | None) -> ServerCommand | None:
    """Return the program that a shell runs by a text, such as that of `bash -c`."""
    known = {name: str(value) for name, value in settings.items() if not value.unknown}
    for inner in read_commands(word.text, known).commands:
        if server := find_program(replace(inner, settings={**settings, **inner.settings}), engine):
            return server
    return None


def _server_of(
    word: Word, rest: tuple[Word, ...], settings: Mapping[str, Word], engine: EngineName | None
) -> ServerCommand | None:
    """Return the command of an engine's program with its arguments; None for another program."""
    name = base_name(str(word))
    program = _program(word, name, rest)
    if program is None:
        return None
    skipped = 1 if name in {"llama", "vllm"} else 2 if name.startswith("python") else 0
    arguments = rest[skipped:]
    if named := re.search(r"(?:^|/)(?:(ik[-_.]?llama)|llama\.cpp\b)", str(word)):
        engine = "ik_llama.cpp" if named[1] else "llama.cpp"  # one file may start several
    return ServerCommand(
        program, kind_of_program(program, arguments, engine), arguments, word.start, settings, str(word)
    )


def _program(word: Word, name: str, rest: tuple[Word, ...]) -> str | None:
    first = str(rest[0]) if rest else ""
    if name in OF_LLAMA_CPP:
        return name
    if _NAMED.fullmatch(name) and not _FILE.search(name):
        return "llama-server"
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


def kind_of_program(program: str, arguments: tuple[Word, ...], engine: EngineName | None) -> EngineName:
    """Return the engine of a program, by its flags if the recipe names none."""
    if program == "vllm":
        return "vllm"
    if engine:
        return engine
    if program == "llama-sweep-bench" or OF_IK & {str(word) for word in arguments}:
        return "ik_llama.cpp"
    return "llama.cpp"


NAME_GONE = Rule(
    "LH140",
    "A recipe uses a name that was removed.",
    why="""
    It may be a repository, an image or a program: `ggerganov/llama.cpp`, `huggingface-cli`, `./server`,
    `make LLAMA_CUBLAS=1`.
    """,
    example="""
    huggingface-cli download unsloth/Qwen3.6-35B-A3B-MTP-GGUF
    """,
    language="sh",
    fix="write the name of today, which the help line gives.",
    sometimes=("warning",),
)

NOT_AS_IT_LOOKS = Rule(
    "LH141",
    "A recipe's command is read in another way than it seems.",
    why="""
    A line ends without a backslash, or with blanks behind it. Lines end as on Windows. A unit has a relative path. A
    shard is not the first. A `.wslconfig` has an ending behind its name. The shell interprets a `;` or a bracket in an
    argument without quotes. An assignment has blanks around its `=`.
    """,
    example="""
    llama-server --model qwen.gguf --port 8080
      --ctx-size 32768
    """,
    language="sh",
    fix="apply the fix of the help line.",
)

OTHER_VARIABLE = Rule(
    "LH142",
    "A variable has no effect, or another one, in the recipe.",
    why="""
    Compose fills `${…}` from its own shell and `.env`, not from `environment:`. systemd runs no `$(…)`. And some
    variables count by their presence: `GGML_CUDA_NO_PINNED=0` switches it on.
    """,
    example="""
    services:
      server:
        image: ghcr.io/ggml-org/llama.cpp:server-cuda
        environment: {PORT: "8080"}
        gpus: all
        volumes: ["/srv/models:/models:ro"]
        command: --model /models/qwen.gguf --host 0.0.0.0 --port ${PORT}
    """,
    fix="write the value itself.",
)

CONTAINER_FAILS = Rule(
    "LH143",
    "A container would not start, or its server would be unreachable.",
    why="""
    The image starts another program, a published port has no listener, no GPU is given, a tag does not exist, or a
    folder is read as a volume.
    """,
    example="""
    services:
      server:
        image: ghcr.io/ggml-org/llama.cpp:server-cuda
        gpus: all
        volumes: ["/srv/models:/models:ro"]
        ports: ["127.0.0.1:8080:8000"]
        command: --model /models/qwen.gguf --host 0.0.0.0 --port 8080
    """,
    fix="apply the fix of the help line.",
    sometimes=("warning",),
)

OPENS_TO_NETWORK = Rule(
    "LH144",
    "A recipe opens a server to the whole network without a key.",
    why="Docker publishes a port on all addresses by default, and past the firewall.",
    example="""
    llama-server --model qwen.gguf --host 0.0.0.0 --port 8080
    """,
    language="sh",
    fix="write `--host 127.0.0.1`, or `127.0.0.1:8080:8080` for a published port, or a key from a file.",
)


BETTER_BY_RIG = Rule(
    "LH149",
    "A recipe works, and a rig has a better way.",
    why="""
    This may be `nohup` instead of a service, power limits that last until the next boot, or models on Windows' disks.
    """,
    example="""
    nohup llama-server --model qwen.gguf --port 8080 &
    """,
    language="sh",
    fix="none is needed. The help line names the key of the inventory.",
    severity="note",
)

BEHIND_IMAGE = Rule(
    "LH265",
    "An option of Docker follows the image.",
    why="""
    All words after the image are the command: the port is not published, and the server gets an argument that it does
    not have.
    """,
    example=r"""
    docker run --gpus all -v /srv/models:/models:ro \
      ghcr.io/ggml-org/llama.cpp:server-cuda@sha256:0000000000000000000000000000000000000000000000000000000000000000 \
      -m /models/a.gguf -p 127.0.0.1:8080:8080
    """,
    language="sh",
    fix="put it before the image.",
)


WANTED_TWICE = Rule(
    "LH201",
    "Two servers use the same thing.",
    why="""
    One port of the host, or more of one GPU than there is: vLLM takes 0.9 of it unless `--gpu-memory-utilization` is
    lower.
    """,
    example="""
    services:
      large:
        image: example/llama.cpp
        ports: ["127.0.0.1:8080:8080"]
      small:
        image: example/llama.cpp
        ports: ["127.0.0.1:8080:8080"]
    """,
    fix="give each its own.",
)


NOT_AT_BOOT = Rule(
    "LH268",
    "A service is not started at boot, or not again after a crash.",
    why="""
    `systemctl enable` makes the links that `[Install]` names; `Restart=` decides when systemd starts a service again.
    `restart:` of a container is the same for Docker.
    """,
    example="""
    [Unit]
    Description=llama

    [Service]
    User=llama
    ExecStart=/usr/bin/llama-server -m /srv/a.gguf --port 8080
    Restart=on-failure
    RestartSec=5
    """,
    language="ini",
    fix="add `WantedBy=multi-user.target` under `[Install]`, and `Restart=on-failure`.",
    severity="warning",
    sometimes=("note",),
)


NOT_READ = Rule(
    "LH280",
    "A part of a recipe was not read.",
    why="""
    The rest of the file was checked, and this part was not: bash could not read it either, or only a running shell has
    its value, or nothing here reads a file of its kind.
    """,
    example="""
    llama-server -m /srv/qwen.gguf --port 8080
    echo "it is ready
    """,
    language="sh",
    fix="correct the line, or check what it holds by yourself.",
    severity="warning",
    sometimes=("note",),
)


@dataclass(frozen=True)
class Recipe:
    """What was found in a recipe: everything that is wrong, and the servers that it would start."""

    findings: tuple[Finding, ...] = ()
    servers: tuple[ServerCommand, ...] = ()
    documents: tuple[Document, ...] = ()
    """Files that it writes and that are not read yet."""

    def __add__(self, other: Recipe) -> Recipe:
        findings, servers = self.findings + other.findings, self.servers + other.servers
        return Recipe(findings, servers, self.documents + other.documents)
