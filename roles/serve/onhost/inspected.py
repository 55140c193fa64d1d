"""The input and the result of an inspection of servers, and what its parts exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llamaherd.onhost.serving import ContainerState, Holder, ServingState, UnitState


@dataclass(frozen=True)
class PlannedUnit:
    """A server that is planned as a unit."""

    service: str
    inputs: tuple[str, ...]
    """What its start records: the key's file or `-`, and the folders of its models."""
    variables: tuple[str, ...] = field(repr=False)
    """What its process must have of variables, NAME=VALUE."""
    strange_variables: str
    """An expression for names that it must not have beside them; empty where any may be there."""
    health_path: str
    program: str
    user: str
    drop_ins: tuple[str, ...]
    """Names of folders of drop-ins for other units as well."""


@dataclass(frozen=True)
class PlannedContainer:
    """A server that is planned as a container. The first fields are those of a unit."""

    service: str
    inputs: tuple[str, ...]
    variables: tuple[str, ...] = field(repr=False)
    strange_variables: str
    health_path: str
    image: str
    image_record: str
    """The file that keeps which image this was made as; empty where it was pulled."""
    one_process: bool
    """Whether nothing of it works when its process does not."""
    gpus: tuple[str, ...]
    """Those that its processes must be found on."""
    one_gpu: bool


@dataclass(frozen=True)
class PlannedImage:
    """An image that is made on the host, and the file that keeps which one this is."""

    tag: str
    record: str


@dataclass(frozen=True)
class Question:
    """What to inspect of servers."""

    units: tuple[PlannedUnit, ...] = ()
    containers: tuple[PlannedContainer, ...] = ()
    images: tuple[PlannedImage, ...] = ()
    ports: tuple[int, ...] = ()
    reads: tuple[str, ...] = ()
    """Programs that servers run."""
    stores: tuple[str, ...] = ()
    """Folders of models."""
    limits: tuple[str, ...] = ()
    """Fields of a container's HostConfig, as `RestartPolicy.Name`."""


@dataclass(frozen=True)
class HeldPort:
    """A port that no server of ours has by systemd or Docker, and the process that holds it."""

    port: int
    unit: str
    """The unit of ours whose control group the process is in; empty where it is in none."""
    holder: Holder


@dataclass(frozen=True)
class Found:
    """The state of servers. Absent ones have no entry."""

    units: Mapping[str, UnitState] = field(default_factory=dict)
    containers: Mapping[str, ContainerState] = field(default_factory=dict)
    serving: Mapping[str, ServingState] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    off_gpus: tuple[str, ...] = ()
    """Containers that are healthy and not on their GPUs."""
    closed: tuple[str, ...] = ()
    """Files and folders that a server would read, and may not."""
    projects: tuple[str, ...] = ()
    """Folders of Compose files."""
    keys: tuple[str, ...] = ()
    """Names of the files of keys."""
    ports: tuple[HeldPort, ...] = ()
    cut_off: str = ""
    """The servers of a run that was cut off while it changed them together."""


@dataclass(frozen=True)
class Probed:
    """A running server: its process, and the URL at which it responds to a request for its health."""

    service: str
    pid: str
    url: str


@dataclass
class Servers:
    """What an inspection of units, or of containers, collects."""

    units: dict[str, UnitState] = field(default_factory=dict)
    containers: dict[str, ContainerState] = field(default_factory=dict)
    serving: dict[str, ServingState] = field(default_factory=dict)
    probed: list[Probed] = field(default_factory=list)
    ports: set[int] = field(default_factory=set)
    """Those that are ours."""
    images: list[str] = field(default_factory=list)
    off_gpus: list[str] = field(default_factory=list)
    docker: bool = False
    """Whether Docker responds."""
