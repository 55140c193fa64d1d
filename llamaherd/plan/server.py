"""`ServerSpec`, everything that decides how a server runs, and `Endpoint`, where clients reach it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Literal

from pydantic import Field

from llamaherd.inventory.schema import Secret
from llamaherd.plan.artifacts import Planned
from llamaherd.plan.machine import GpuRef
from llamaherd.text.quoting import url_host

_ON_THE_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""The address, on its own host, of a server that listens on all addresses of a kind."""


class Endpoint(Planned):
    """Where clients reach a server, and what it returns there.

    `listen` is an IP address. `models` are the names that clients use, `streams` is the number of requests at once, and
    `key` the place of the clients' key on this machine. `props_path` returns what a server has loaded; None if it only
    lists its models. `health_status` is the status in the response of a healthy server, if it has more than HTTP 200.
    `counts_drafts`: a response contains the number of drafted tokens. `swaps`: it loads one of its models at a time.
    `unloads`: it unloads its model after a time without requests.
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
    unloads: bool = False

    @property
    def for_others(self) -> bool:
        """Return whether other machines may use it."""
        return not ip_address(self.listen).is_loopback

    @property
    def local_address(self) -> str:
        """Its address on its own host."""
        return _ON_THE_HOST.get(self.listen, self.listen)

    def takes(self, address: str) -> bool:
        """Return whether it must accept connections to this address of its host."""
        listen, there = ip_address(self.listen), ip_address(address)
        return listen == there or (listen.is_unspecified and listen.version >= there.version)

    def url(self, path: str = "", *, address: str | None = None) -> str:
        """Return the URL of a path, on its own host, or at another address of it."""
        return f"{self.scheme}://{url_host(address or self.local_address)}:{self.port}{path}"

    def of_model(self, path: str, model: str, *, load: bool = False) -> str:
        """Return the path for one model of a server that swaps; a request loads that model only with `load`."""
        return f"{path}?model={model}{'' if load else '&autoload=false'}" if self.swaps else path

    @property
    def metrics(self) -> tuple[str, ...]:
        """The URLs of its metrics, on its own host: one for each model of a server that swaps."""
        every = [self.of_model(self.metrics_path, model) for model in self.models]
        return tuple(self.url(path) for path in dict.fromkeys(every))

    @property
    def health(self) -> str:
        """The URL of its health, on its own host."""
        return self.url(self.health_path)

    @property
    def locked_path(self) -> str:
        """A path that returns nothing without the key, if there is one."""
        return self.props_path or self.models_path


class KeyFile(Planned):
    """The file of the key that clients must send: never the key itself.

    A program that reads no file gets the key in `variable`, which is set for its process alone.
    """

    path: str
    variable: str | None = None


class ServerGpus(Planned):
    """The GPUs of a server. `cdi` are their names for containers; the process must run on those of `at`.

    With `any_one`, one GPU of `at` is enough. A start waits `gate_seconds` for the GPUs. `wsl`: Windows provides them.
    """

    cdi: tuple[str, ...]
    at: tuple[GpuRef, ...]
    any_one: bool
    gate_seconds: int
    wsl: bool


class ServerLimits(Planned):
    """The limits of a server. `shared_memory` and `scratch`, its /tmp in a container, are sizes in Docker's form."""

    files: int
    tasks: int
    oom_score: int
    cpus: str | None
    locks_memory: bool
    scratch: str
    scratch_runs: bool
    shared_memory: str | None


class Health(Planned):
    """The health probe of a container: a command line, and the seconds between and for each probe."""

    probe: tuple[str, ...]
    interval: int
    timeout: int
    retries: int
    start_interval: int


class Stop(Planned):
    """How a server is stopped: by a signal, and after so many seconds by force."""

    signal: str
    seconds: int


class ServerSpec(Planned):
    """One served instance: everything that decides how it runs, and no secret.

    `program` is None for an image that starts by itself; it runs `command` then. `service` is its name in systemd and
    Docker, and `user` the user of its process. `folders` contain its models; they are mounted at the same paths, read
    only. `mounts` are paths whose mounts a unit waits for. `host_network`: a container shares its host's network.
    `one_process`: if its process is idle, so is the whole server. `start_seconds` is the longest time until it
    responds.
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
    mounts: tuple[str, ...] = ()
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
        """The files that it reads, as arguments of our program `started`: its key file, and its models' folders."""
        return (self.key.path if self.key else "-", *self.folders)

    @property
    def cards(self) -> tuple[GpuRef, ...]:
        """The GPUs on which its process must run."""
        return self.gpus.at if self.gpus else ()

    @property
    def one_card(self) -> bool:
        """Return whether one of its GPUs is enough."""
        return self.gpus is not None and self.gpus.any_one
