"""One server as it must run, for whatever starts it: systemd and Docker Compose are given the same value."""

from __future__ import annotations

from pydantic import Field

from llamaherd.plan.base import Planned
from llamaherd.plan.endpoint import Endpoint
from llamaherd.plan.machine import GpuRef


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
