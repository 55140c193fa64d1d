"""The result of reading a recipe, rules that several readers share, and outdated terms in any recipe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llamaherd.diagnostics.findings import Finding, Place, Rule
from llamaherd.recipes.programs import ServerCommand

NAME_GONE = Rule(
    "LH140",
    "A recipe uses a name that was removed.",
    why="""
    It may be a repository, an image, a program or an address: `ggerganov/llama.cpp`, `huggingface-cli`,
    `./server`, `make LLAMA_CUBLAS=1`, `/v1/internal/health`.
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
    The image starts another program, a published port has no listener, the health check uses another port, no GPU is
    given, a tag does not exist, or a folder is read as a volume.
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

IDLE_LINE = Rule(
    "LH146",
    "A line of a Compose file has no effect, or allows too much.",
    why="""
    `version:` is ignored, `runtime: nvidia` is redundant with a reserved device, and `privileged` is the whole host.
    """,
    example="""
    version: "3.8"
    services:
      server:
        image: ghcr.io/ggml-org/llama.cpp:server-cuda
        gpus: all
        volumes: ["/srv/models:/models:ro"]
        command: --model /models/qwen.gguf
    """,
    fix="leave the line out.",
    severity="warning",
)

BETTER_BY_RIG = Rule(
    "LH149",
    "A recipe works, and a rig has a better way.",
    why="""
    This may be `nohup` instead of a service, power limits that last until the next boot, models on Windows'
    disks, `llama-cli` where a server is meant, or the first of several shards.
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


@dataclass(frozen=True)
class Recipe:
    """What was found in a recipe: everything that is wrong, and the servers that it would start."""

    findings: tuple[Finding, ...] = ()
    servers: tuple[ServerCommand, ...] = ()

    def __add__(self, other: Recipe) -> Recipe:
        return Recipe(self.findings + other.findings, self.servers + other.servers)


_OUTDATED: tuple[tuple[re.Pattern[str], Rule, str, str], ...] = (
    (
        re.compile(r"/v1/internal/health\b"),
        NAME_GONE,
        "no engine has the path `/v1/internal/health`",
        "request `/health`",
    ),
    (
        re.compile(r"\b(?:compil|build)\w*\b[^\n]{0,60}\bMTP\b(?: build| compile)? flags", re.IGNORECASE),
        BETTER_BY_RIG,
        "no engine has MTP flags to be compiled with",
        "leave them out: MTP is there in every build, and switched on when the server starts",
    ),
)


def check_outdated_terms(file: Path, text: str) -> Iterator[Finding]:
    """Yield the addresses and options in a text that no engine has."""
    for pattern, rule, message, way_out in _OUTDATED:
        for found in pattern.finditer(text):
            before = text[: found.start()]
            place = Place(file, before.count("\n") + 1, found.start() - before.rfind("\n"))
            yield rule.at(place, message, way_out)
