"""`ServerSpec`, everything that decides how a server runs, and `Endpoint`, where clients reach it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Literal

from pydantic import Field

from llamaherd.inventory.schema import Secret
from llamaherd.plan.base import Planned
from llamaherd.plan.machine import GpuRef
from llamaherd.text.quoting import url_host

_ON_THE_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where a server that listens on all addresses of a kind is asked from its own host."""


class Endpoint(Planned):
    """Where clients find a server, and what it answers there.

    `listen` is an IP address. `models` are the names that clients use, `streams` how many requests are answered at
    once, `key` the place on this machine of the key that clients must send. `props_path` is where a server tells what
    it has loaded; None where its list of models is all that it tells.
    `health_status` is what it says of itself when it is well, where it says more than 200. `counts_drafts`: an answer
    tells how many of its tokens were drafted. `swaps`: it has one of its models loaded at a time.
    """

    scheme: Literal["http"] = "http"
    listen: str
    port: int
    models: tuple[str, ...]
    streams: int
    key: Secret | None = None
    health_path: str = "/health"
    models_path: str = "/v1/models"
    chat_path: str = "/v1/chat/completions"
    metrics_path: str = "/metrics"
    props_path: str | None = None
    health_status: str | None = None
    counts_drafts: bool = False
    swaps: bool = False

    @property
    def for_others(self) -> bool:
        """Whether other machines are to use it."""
        return not ip_address(self.listen).is_loopback

    @property
    def local_address(self) -> str:
        """The address that it is asked at from its own host."""
        return _ON_THE_HOST.get(self.listen, self.listen)

    def takes(self, address: str) -> bool:
        """Whether it is to take connections to this address of its host."""
        listen, there = ip_address(self.listen), ip_address(address)
        return listen == there or (listen.is_unspecified and listen.version >= there.version)

    def url(self, path: str = "", *, address: str | None = None) -> str:
        """The URL of a path, from its own host, or at another address of it."""
        return f"{self.scheme}://{url_host(address or self.local_address)}:{self.port}{path}"

    def of_model(self, path: str, model: str, *, load: bool = False) -> str:
        """A path at which one that swaps tells of a model, and does not load it for that unless it is to."""
        return f"{path}?model={model}{'' if load else '&autoload=false'}" if self.swaps else path

    @property
    def metrics(self) -> tuple[str, ...]:
        """The URLs of what it counts, on its own host: of one that swaps, one for each model."""
        every = [self.of_model(self.metrics_path, model) for model in self.models]
        return tuple(self.url(path) for path in dict.fromkeys(every))

    @property
    def health(self) -> str:
        """The URL that it is asked at for its health, on its own host."""
        return self.url(self.health_path)

    @property
    def locked_path(self) -> str:
        """A path that is answered to nobody without the key, if there is one."""
        return self.props_path or self.models_path


class KeyFile(Planned):
    """Where a server finds the key that its clients must send: never the key.

    `variable` is what the program reads it from, where it takes no file: it is set inside, for that process alone.
    """

    path: str
    variable: str | None = None


class ServerGpus(Planned):
    """The GPUs of a server. `cdi` are their names for containers; `at` those that its process must be found on.

    With `any_one`, one of `at` will do. `gate_seconds`: how long a start waits for them. `wsl`: Windows makes them.
    """

    cdi: tuple[str, ...]
    at: tuple[GpuRef, ...]
    any_one: bool
    gate_seconds: int
    wsl: bool


class ServerLimits(Planned):
    """What a server may take. `shared_memory` and `scratch`, its /tmp in a container, are sizes as Docker has them."""

    files: int
    tasks: int
    oom_score: int
    cpus: str | None
    locks_memory: bool
    scratch: str
    scratch_runs: bool
    shared_memory: str | None


class Health(Planned):
    """How a container asks its server whether it works: a command line, and seconds between and for each."""

    probe: tuple[str, ...]
    interval: int
    timeout: int
    retries: int
    start_interval: int


class Stop(Planned):
    """How a server is ended: by a signal, and after so many seconds by force."""

    signal: str
    seconds: int


class ServerSpec(Planned):
    """One served instance: everything that decides how it runs, and no secret.

    `program` is None for an image that starts by itself; `command` is what it runs then. `service` is its name to
    systemd and Docker. `user` is who it runs as. `folders` are those of its
    models, which it sees at the same places, and may not write. `host_network`: a container shares
    its host's network. `one_process`: when its process does nothing, nothing of
    it does. `start_seconds` is how long it may take to answer.
    """

    rig: str
    name: str
    model: str
    engine: str
    service: str
    user: str
    image: str | None
    program: str | None
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: dict[str, str] = Field(default_factory=dict)
    folders: tuple[str, ...]
    key: KeyFile | None
    gpus: ServerGpus | None
    endpoint: Endpoint
    host_network: bool
    one_process: bool
    limits: ServerLimits
    health: Health
    stop: Stop
    start_seconds: int

    @property
    def inputs(self) -> tuple[str, ...]:
        """What our program `started` is told that it reads: the file of its key, and the folders of its models."""
        return (self.key.path if self.key else "-", *self.folders)

    @property
    def cards(self) -> tuple[GpuRef, ...]:
        """The GPUs that its process must be found on."""
        return self.gpus.at if self.gpus else ()

    @property
    def one_card(self) -> bool:
        """Whether one of them will do."""
        return self.gpus is not None and self.gpus.any_one
