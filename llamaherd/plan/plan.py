"""What a plan holds of engines, models and servers, and all of it together."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, JsonValue

from llamaherd.inventory.schema import DRAIN_SECONDS, Backend, Connect, Expect, Source
from llamaherd.layout import ACCOUNTS, BUILDS, DEFAULT_STORE, GATEWAY_USER, STATE
from llamaherd.plan.base import Planned, TextFile
from llamaherd.plan.chat import ChatPlan
from llamaherd.plan.endpoint import Endpoint
from llamaherd.plan.gateway import GatewayPlan
from llamaherd.plan.machine import (
    DriverPlan,
    GpuPlan,
    GpuPower,
    PowerPlan,
    RepositoryPlan,
    RuntimePlan,
    ToolkitPlan,
    WslPlan,
)
from llamaherd.plan.member import MemberPlan
from llamaherd.plan.memory import Estimate
from llamaherd.plan.monitoring import MonitoringPlan
from llamaherd.plan.reading import DivergencePlan
from llamaherd.plan.server import ServerSpec
from llamaherd.plan.virtual_address import VirtualAddressPlan


class BuildPlan(Planned):
    """An engine to be built; `id` names its folder and hashes all that decides what comes out."""

    id: str
    engine: str
    kind: str
    source: Source
    options: dict[str, str]
    targets: tuple[str, ...]
    cuda: str | None
    script: str
    disk: int

    @property
    def folder(self) -> str:
        """Where the finished build lies."""
        return str(BUILDS / self.id)


class FromHub(Planned):
    """The hub that a model was locked at."""

    kind: Literal["hub"] = "hub"


class FromFolder(Planned):
    """A folder of the host that holds files already."""

    kind: Literal["folder"] = "folder"
    path: str


class FromNeighbour(Planned):
    """Another rig: how the controller reaches it, where the host does, and where its store lies."""

    kind: Literal["neighbour"] = "neighbour"
    name: str
    connect: Connect
    address: str
    port: int
    store: str


ModelOrigin = Annotated[FromHub | FromFolder | FromNeighbour, Field(discriminator="kind")]


class BandwidthRule(NamedTuple):
    """Most bytes per second between two times of day, `HH:MM`; always where they are the same."""

    begin: str
    end: str
    bytes_per_second: int


class StorePlan(Planned):
    """Where models are kept, and where they come from: the first of `sources` that has a file first."""

    path: str = str(DEFAULT_STORE)
    sources: tuple[ModelOrigin, ...] = (FromHub(),)
    bandwidth: tuple[BandwidthRule, ...] = ()
    connections: int = 8


class ModelFile(Planned):
    """One file of a model. `size` (bytes) is known from the lock, and for a local file only on the controller."""

    name: str
    sha256: str
    size: int | None = None


class ModelPlan(Planned):
    """A model in the store: a folder per revision. `url` is where its files are fetched from, else `local`.

    `repo` and `revision` are as declared, so that people can be told which page to open. `mmproj` is that of `files`
    which is the vision projector.
    """

    name: str
    folder: str
    files: tuple[ModelFile, ...]
    url: str | None = None
    local: Path | None = None
    repo: str | None = None
    revision: str | None = None
    mmproj: str | None = None

    @property
    def path(self) -> str:
        """What a server is given: the first shard of a GGUF, which finds the others; else the folder."""
        first = self.files[0].name
        return str(PurePosixPath(self.folder, first)) if first.endswith(".gguf") else self.folder

    @property
    def mmproj_path(self) -> str | None:
        """Where the vision projector lies, if there is one."""
        return str(PurePosixPath(self.folder, self.mmproj)) if self.mmproj else None


class ImagePlan(Planned):
    """An image made on the host from a build, on a base made from the distribution's mirror."""

    tag: str
    build: str
    base: str
    base_packages: tuple[str, ...]
    dockerfile: str

    @property
    def record(self) -> str:
        """Where the host keeps which image this was made as: a name can be given to any."""
        return str(STATE / "images" / self.tag.replace("/", "_").replace(":", "_"))


_ENGINES_VARIABLES = "^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_"
"""What engines, their libraries and the loader of programs go by."""


class GatePlan(Planned):
    """What a change may cost: shares of writing and of reading, and how far what it says may be from what it said.

    It is measured for so many seconds.
    """

    decode: float | None = None
    prefill: float | None = None
    kld: float | None = None
    seconds: int


class InstancePlan(Planned):
    """An instance: its server, what it is made of, and what is expected of it.

    `spec` hashes all that a restart is needed for, which is the text of `file`. `draft_folder` is that of the model
    which drafts for it, where that is one of its own. Of a group, `members` are its instances, the first of them also
    what is loaded first, and what stands here of a model; `preset` is the file that its server reads.
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
        """Where it is reached."""
        return self.server.endpoint

    @property
    def service(self) -> str:
        """Its name to systemd and Docker."""
        return self.server.service

    @property
    def build_folder(self) -> str | None:
        """Where its engine lies, if it was built here."""
        return str(BUILDS / self.build) if self.build else None

    @property
    def reads(self) -> tuple[str, ...]:
        """Files of the host that its user must be able to read: in a container, the program is the image's."""
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
        """What its process must have of variables, NAME=VALUE."""
        return (f"LLAMAHERD_SPEC={self.spec}",) * (self.backend == "systemd") + tuple(
            f"{name}={value}" for name, value in self.server.environment.items()
        )

    @property
    def strange_variables(self) -> str:
        """Names of variables that it must not have beside them, as an expression: a pulled image brings its own."""
        return _ENGINES_VARIABLES if self.build else ""

    @property
    def shared_drop_ins(self) -> tuple[str, ...]:
        """Folders of drop-ins for other units as well: for all services, and for those whose names begin like this."""
        parts = self.service.split("-")
        return ("service.d", *("-".join(parts[:n]) + "-.service.d" for n in range(1, len(parts))))

    @property
    def drafts(self) -> bool:
        """Whether anything drafts for it."""
        return bool(self.mtp or self.draft_folder)

    @property
    def key_file(self) -> str | None:
        """Where the API key lies on the host, if there is one."""
        return self.server.key.path if self.server.key else None


class Only(Planned):
    """A part of a rig that a run is for alone: instances, with what they need, and roles. The rest stays as it is.

    `needs` is what the instances need. `fields` are those of the plan that the roles fill.
    """

    instances: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    needs: Plan | None = None
    fields: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Both."""
        return (*self.instances, *self.roles)


class Plan(Planned):
    """All that must be true on one host; with `only`, a part of it is to be made so.

    `ram`: bytes, as declared. `has_cards`: there are GPUs whose power is this system's to set. `windows_power` is what
    is declared of GPUs under WSL, where it is Windows' to set. `of_fleet`: there is a `fleet.yaml`, so that the host
    may have been a gateway.
    """

    rig: str
    os: str
    packages: tuple[str, ...]
    files: tuple[TextFile, ...]
    builds: tuple[BuildPlan, ...]
    store: StorePlan = StorePlan()
    models: tuple[ModelPlan, ...]
    images: tuple[ImagePlan, ...]
    instances: tuple[InstancePlan, ...]
    ram: int | None = None
    amx: bool = False
    has_cards: bool = False
    cards: tuple[GpuPlan, ...] = ()
    repositories: tuple[RepositoryPlan, ...] = ()
    driver: DriverPlan | None = None
    toolkit: ToolkitPlan | None = None
    runtime: RuntimePlan | None = None
    power: PowerPlan | None = None
    windows_power: tuple[GpuPower, ...] = ()
    wsl: WslPlan | None = None
    of_fleet: bool = False
    gateway: GatewayPlan | None = None
    virtual_address: VirtualAddressPlan | None = None
    chat: ChatPlan | None = None
    monitoring: MonitoringPlan | None = None
    parts: dict[str, JsonValue] = Field(default_factory=dict)
    """What roles of the fleet's own have planned, by their names."""
    only: Only | None = None

    def whole(self, role: str) -> bool:
        """Whether all of a role's is to be made so: else what is of others stays as it is."""
        return self.only is None or role in self.only.roles

    @property
    def chosen(self) -> tuple[InstancePlan, ...]:
        """The instances that are to run as planned."""
        if self.only is None or self.whole("serve"):
            return self.instances
        return tuple(instance for instance in self.instances if instance.name in self.only.instances)

    @property
    def accounts(self) -> tuple[str, ...]:
        """The users that must be there: those of every host, and one for each unit, a gateway, and what watches."""
        own = (GATEWAY_USER,) if self.gateway else ()
        watching = self.monitoring.accounts if self.monitoring else ()
        return (*ACCOUNTS, *(instance.server.user for instance in self.of("systemd")), *own, *watching)

    def of(self, backend: Backend) -> tuple[InstancePlan, ...]:
        """The instances of one backend."""
        return tuple(instance for instance in self.instances if instance.backend == backend)
