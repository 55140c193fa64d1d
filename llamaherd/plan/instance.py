"""The planned instances: their servers and endpoints, members, tasks, memory, gates and expected speeds."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address
from typing import Literal

from pydantic import Field

from llamaherd.diagnostics.findings import UserError
from llamaherd.engines.flags.definitions import assumed
from llamaherd.engines.flags.effective import EffectiveOptions, effective_options
from llamaherd.engines.flags.task import BATCH, UBATCH, Task, server_task
from llamaherd.inventory.schema import DRAIN_SECONDS, Backend, Expect, Secret
from llamaherd.layout import BUILDS
from llamaherd.memory.divergence import Reading
from llamaherd.plan.artifacts import Planned, TextFile
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


RAM = "RAM"
"""The name of the host's memory, as a place of weights and caches."""


class Holds(Planned):
    """The memory of one instance on one GPU, or in RAM (`where` is `RAM`), in bytes. `size` is the size of the place.

    `draft` is the memory of speculation: the head's weights, its cache, its buffers and the copies of the state. `cuda`
    is CUDA's own memory on a GPU: its context, kernels and scratch memory. In RAM it is the server's own memory, and
    pages of a mapped file between the pages that it needs.
    """

    where: str
    size: int
    weights: int
    kv: int
    state: int
    compute: int
    draft: int
    cuda: int = 0

    @property
    def total(self) -> int:
        """All parts."""
        return self.weights + self.kv + self.state + self.compute + self.draft + self.cuda


class Grows(Planned):
    """The most bytes by which a server's RAM grows while it runs; `prompts` is None without a limit."""

    prompts: int | None = 0
    checkpoints: int = 0


class Estimate(Planned):
    """The memory of an instance, computed by `arithmetic` or by its `engine`.

    `resident` are the bytes of its RAM that cannot be freed: without pages of a mapped file and of its programs. None
    if this is unknown, as in plans of earlier versions.
    """

    source: Literal["arithmetic", "engine"]
    holds: tuple[Holds, ...]
    doubts: tuple[str, ...] = ()
    grows: Grows = Grows()
    resident: int | None = None


class MemberPlan(Planned):
    """One of the instances that swap. `arguments` are those of its own server, if it had one.

    `model_folder` and `model_path` are the places of its model; `draft_folder` is the folder of a separate draft model.
    """

    name: str
    model: str
    model_folder: str
    model_path: str
    draft_folder: str | None = None
    drafts: bool = False
    mtp: int = 0
    context: int
    slots: int
    threads: int
    arguments: tuple[str, ...]
    expect: Expect | None = None
    memory: Estimate | None = None


class DivergencePlan(Planned):
    """How to measure the KL divergence between two servers by `tool`, a program of the server's build.

    Of the words of the server's command line, `says` decide the output, and `more` placement and speed; the tool takes
    both. `readings` are ways to read a text with its model, the best one first.
    """

    tool: str
    says: tuple[str, ...]
    more: tuple[str, ...]
    vocabulary: int
    readings: tuple[Reading, ...]


SHARE_OF_EXPECTED = 0.5
"""The share of `expect` below which a server is too slow: a server that lost its GPU still responds, but slower."""
SHARE_OF_MEASURED = 0.7
"""The share of its measured speed: `roles/serve/onhost/speed.py` takes the same share of its own measurement."""


def lowest_speed(expected: float | None, measured: float | None = None) -> float | None:
    """Return the tokens per second of one request below which a server is too slow; None without any figure.

    The declared expectation counts before the measured speed.
    """
    if expected:
        return expected * SHARE_OF_EXPECTED
    return measured * SHARE_OF_MEASURED if measured else None


_ENGINES_VARIABLES = "^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_"
"""Variables that engines, their libraries and the loader of programs read."""


class GatePlan(Planned):
    """The most that a change may cost: shares of decode and prefill speed, and the KL divergence of the output.

    The measurement takes so many seconds.
    """

    decode: float | None = None
    prefill: float | None = None
    kld: float | None = None
    seconds: int


class InstancePlan(Planned):
    """An instance: its server, its engine and model, and its expected performance.

    `spec` hashes everything that needs a restart, which is the text of `file`. `draft_folder` is the folder of a
    separate draft model. `members` are the instances of a group; the first is loaded first, and `model` and its fields
    here are those of the first. `preset` is the file that the server of a group reads.
    """

    name: str
    backend: Backend
    engine: str
    build: str | None
    model: str
    model_folder: str
    model_path: str
    context: int
    mtp: int
    draft_folder: str | None = None
    threads: int
    server: ServerSpec
    expect: Expect | None = None
    gate: GatePlan | None = None
    divergence: DivergencePlan | None = None
    drain: int = DRAIN_SECONDS
    memory: Estimate | None = None
    spec: str
    file: TextFile
    members: tuple[MemberPlan, ...] = ()
    preset: TextFile | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Its address."""
        return self.server.endpoint

    @property
    def service(self) -> str:
        """Its name to systemd and Docker."""
        return self.server.service

    @property
    def build_folder(self) -> str | None:
        """The folder of its engine, if the engine is built on the host."""
        return str(BUILDS / self.build) if self.build else None

    @property
    def reads(self) -> tuple[str, ...]:
        """Files of the host that its user must be able to read. In a container, the program is part of the image."""
        program = self.server.program if self.build and self.backend == "systemd" else None
        models = [each.model_path for each in self.members] or [self.model_path]
        preset = self.preset.path if self.preset else None
        return tuple(path for path in (program, preset, *models, self.key_file) if path)

    @property
    def command_line(self) -> str:
        """The sha256 of its process's arguments, as /proc has them."""
        words = (self.server.program or "", *self.server.arguments)
        return hashlib.sha256("".join(f"{word}\0" for word in words).encode()).hexdigest()

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that its process must have, as NAME=VALUE."""
        return (f"LLAMAHERD_SPEC={self.spec}",) * (self.backend == "systemd") + tuple(
            f"{name}={value}" for name, value in self.server.environment.items()
        )

    @property
    def strange_variables(self) -> str:
        """A pattern of further variables that it must not have; empty for a pulled image, which has its own."""
        return _ENGINES_VARIABLES if self.build else ""

    @property
    def shared_drop_ins(self) -> tuple[str, ...]:
        """Folders of drop-ins that it shares: those of all services, and of services with the same first words."""
        parts = self.service.split("-")
        return ("service.d", *("-".join(parts[:n]) + "-.service.d" for n in range(1, len(parts))))

    @property
    def drafts(self) -> bool:
        """Return whether it uses speculative decoding."""
        return bool(self.mtp or self.draft_folder)

    @property
    def key_file(self) -> str | None:
        """The path of the API key on the host, if there is one."""
        return self.server.key.path if self.server.key else None


_PATHS = {"embeddings": "/v1/embeddings", "rerank": "/v1/rerank"}


def planned_task(instance: InstancePlan, member: MemberPlan | None = None) -> Task:
    """Return what a planned server is for, by what it is started with; of a group, what a member is for."""
    options = _options(instance, member)
    return "chat" if options is None else server_task(options)


def task_path(endpoint: Endpoint, task: Task) -> str:
    """Return the path to which clients send the requests that a server is for."""
    return _PATHS.get(task, endpoint.chat_path)


def longest_input(instance: InstancePlan) -> int:
    """Return the most tokens of one input of a server of embeddings or rerank: of llama.cpp, those of a batch."""
    slot = instance.context // max(1, instance.endpoint.streams)
    options = _options(instance, None)
    if options is None or instance.endpoint.props_path is None:
        return slot
    computed = options.number("--ubatch-size", default=UBATCH) or slot
    return max(1, min(slot, options.number("--batch-size", default=BATCH), computed))


def require_chats(instance: InstancePlan, what: str) -> None:
    """Raise UserError for a server of embeddings or rerank. `what` sends chats."""
    task = planned_task(instance)
    if task != "chat":
        message = f"{instance.name} is a server of {task}, and {what} sends chats"
        raise UserError(message, f"test it with `herd verify`, or measure it with `herd bench {instance.name}`")


def _options(instance: InstancePlan, member: MemberPlan | None) -> EffectiveOptions | None:
    # vLLM alone has no page of properties.
    catalogue = assumed("llama.cpp" if instance.endpoint.props_path else "vllm", None)
    if catalogue is None:
        return None
    return effective_options(catalogue, (member or instance.server).arguments, instance.server.environment)
