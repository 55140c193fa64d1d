"""The input and the result of a verification of servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Access = Literal["absent", "closed", "silent"]
"""Why a server's user cannot read a file: it is absent, access is denied, or the disk does not respond."""


@dataclass(frozen=True)
class ChatRequest:
    """A chat with one model of a server."""

    name: str
    """The instance."""
    url: str
    body: str
    props_url: str
    """The URL at which a server that swaps reports its loaded model; empty for other servers."""


@dataclass(frozen=True)
class Requests:
    """The requests to a server. An empty URL means no request."""

    health_url: str
    keyless_url: str
    """The page that the server must not return without a key."""
    models_url: str
    props_url: str
    chats: tuple[ChatRequest, ...]
    chat_seconds: int
    key_file: str
    """The file of its key; empty if it has none."""


@dataclass(frozen=True)
class PlannedServer:
    """A planned server, and what to verify."""

    name: str
    service: str
    unit: bool
    """Whether it is a unit; otherwise it is a container."""
    user: str
    file: str
    """Its unit or its Compose file."""
    port: int
    reads: tuple[str, ...]
    """Files that its user must be able to read."""
    program: str
    """The program that its user must be able to run; empty if the program is in an image."""
    owned: tuple[str, ...]
    """Files and folders to return the owners of, with all their contents."""
    variables: tuple[str, ...] = field(repr=False)
    """Variables that its process must have, as NAME=VALUE."""
    strange_variables: str
    """A regular expression for names of variables that it must not have in addition; empty if all are allowed."""
    has_gpus: bool
    swaps: bool
    """Whether each of its models runs in its own process."""
    requests: Requests


@dataclass(frozen=True)
class PlannedImage:
    """An image that is built on the host, and the file that contains its id."""

    tag: str
    record: str


@dataclass(frozen=True)
class VerifyServersInput:
    """What to verify."""

    servers: tuple[PlannedServer, ...] = ()
    images: tuple[PlannedImage, ...] = ()
    limits: tuple[str, ...] = ()
    """Fields of a container's HostConfig, as `RestartPolicy.Name`."""


@dataclass(frozen=True)
class UnitFound:
    """A unit, as systemd has loaded it."""

    active: str
    enabled: str
    result: str
    file: str
    drop_ins: tuple[str, ...]
    needs_reload: bool
    pid: str
    shared: Mapping[str, str] = field(default_factory=dict)
    """Drop-ins that apply to other units as well, and those of their keys that set the program or its user."""


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host in a container."""

    source: str
    writable: bool


@dataclass(frozen=True)
class ContainerFound:
    """A container, as Docker has created it."""

    status: str
    health: str
    restart: str
    spec: str
    pid: str
    image: str
    """The id of the image that it runs."""
    config_files: str
    """The files that Compose created it from."""
    user: str
    limits: Mapping[str, str] = field(default_factory=dict)
    """The limits that are set, by Docker's names."""
    mounts: tuple[Mount, ...] = ()
    privileged: bool = False
    read_only: bool = False
    network: str = ""
    pid_mode: str = ""
    ipc_mode: str = ""
    added: tuple[str, ...] = ()
    """Capabilities."""
    dropped: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    """Security options."""


@dataclass(frozen=True)
class ImageFound:
    """The image that a tag names, and the id of the image that was built. An absent image has an empty id."""

    id: str
    size: int
    made: str


@dataclass(frozen=True)
class ProcessFound:
    """A running process: its binary, and what it was started with."""

    sha256: str
    spec: str
    uid: str
    account: str
    """The number of the account that it should run as; empty if there is no such account."""
    stopped: bool
    argv: tuple[str, ...]
    variables: tuple[str, ...] = ()
    """Names of variables that differ from the declared ones or are not allowed."""


@dataclass(frozen=True)
class OwnedFile:
    """A file or a folder: permission bits and owner."""

    path: str
    kind: str
    """`file`, `folder`, `link` or `other`."""
    mode: int
    owner: str


@dataclass(frozen=True)
class Responses:
    """The output of curl for each request: the body, curl's errors, and the status on the last line."""

    health: str = ""
    keyless: str = ""
    models: str = ""
    props: Mapping[str, str] = field(default_factory=dict)
    """By instance."""
    chats: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuProcesses:
    """The processes of a server, and the devices of GPUs that they hold open."""

    pids: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServerFound:
    """A server."""

    file_sha256: str = ""
    unit: UnitFound | None = None
    container: ContainerFound | None = None
    process: ProcessFound | None = None
    holder: str = ""
    """The process that listens at its port, if the server has no process."""
    access: Mapping[str, Access] = field(default_factory=dict)
    """Files that its user cannot read."""
    runs_program: bool = True
    """Whether its user may run its program."""
    owned: tuple[OwnedFile, ...] = ()
    responses: Responses = field(default_factory=Responses)
    on_gpus: GpuProcesses = field(default_factory=GpuProcesses)


@dataclass(frozen=True)
class Listening:
    """A program that listens for other hosts; `pid` is 0 if the process is hidden. `unit` may name a container."""

    port: int
    pid: int
    program: str
    unit: str


@dataclass(frozen=True)
class GpusFound:
    """The output of nvidia-smi, the number of each GPU's device by its address, and the PID namespace of this host."""

    listed: str = ""
    processes: str = ""
    minors: Mapping[str, int] = field(default_factory=dict)
    namespace: str = ""
    kernel: str = ""


@dataclass(frozen=True)
class Found:
    """All servers of a host. Absent ones have no unit and no container."""

    servers: Mapping[str, ServerFound] = field(default_factory=dict)
    images: Mapping[str, ImageFound] = field(default_factory=dict)
    docker_enabled: str = ""
    listening: tuple[Listening, ...] | None = None
    """None if GPUs were not inspected."""
    published: tuple[str, ...] = ()
    """Each container that runs and its ports, as `docker ps` prints them."""
    gpus: GpusFound = field(default_factory=GpusFound)
    unknown: tuple[str, ...] = ()
    """`systemd` or `Docker`, where it did not respond: what is missing of it is unknown, not absent."""
