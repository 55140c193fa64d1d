"""Where a measurement comes from: machine, GPUs, driver, build, model, server, and what else ran.

All of it may be unknown, as it is of what others have measured: None then, and never a guess.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# What is beyond these is a mistake of whoever wrote it, and would make rates endless.
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Positive = Annotated[float, Field(ge=1e-6, le=1e15)]
NotNegative = Annotated[float, Field(ge=0, le=1e15)]


class Recorded(BaseModel):
    """Base of all that a result holds: frozen, taken as it is, and nothing besides. No number is endless or none."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class Host(Recorded):
    """The machine. `swapped_bytes` is what of the server lay in swap: then nothing else counts."""

    name: str | None = None
    os: str | None = None
    kernel: str | None = None
    libc: str | None = None
    wsl: str | None = None
    cpu: str | None = None
    microcode: str | None = None
    cores: Count | None = None
    threads: Count | None = None
    smt: bool | None = None
    governor: str | None = None
    ram_bytes: Count | None = None
    ram_mhz: Count | None = None
    ram_channels: Count | None = None
    swapped_bytes: Count | None = None
    ambient_celsius: float | None = None


class Gpu(Recorded):
    """A GPU that the server uses. The link is that under load: idle ones fall back to the first generation."""

    name: str
    uuid: str | None = None
    address: str | None = None
    memory_bytes: Count | None = None
    vbios: str | None = None
    power_limit_watts: Positive | None = None
    power_default_watts: Positive | None = None
    most_sm_mhz: Count | None = None
    most_memory_mhz: Count | None = None
    ecc: bool | None = None
    pcie_generation: Count | None = None
    pcie_lanes: Count | None = None
    idle_celsius: float | None = None


class Engine(Recorded):
    """What serves: `build` is the hash of ours, `version` what it says of itself, `image` its digest."""

    kind: str | None = None
    version: str | None = None
    commit: str | None = None
    build: str | None = None
    options: tuple[str, ...] = ()
    compiler: str | None = None
    cuda: str | None = None
    architectures: str | None = None
    image: str | None = None


class ModelFile(Recorded):
    """A file that was loaded: every shard, a draft model, a projector."""

    part: Literal["weights", "draft", "projector"] = "weights"
    name: str
    repo: str | None = None
    revision: str | None = None
    sha256: Sha256 | None = None
    size: Count | None = None
    quant: str | None = None


class Server(Recorded):
    """How it was started: hashes of the plan and of its own part, arguments and variables without secrets.

    `context` and `slots` are what it says that it has, and not what it was asked for. `group` is that of instances
    which one server has in turn: what was measured was loaded then, and the others were not.
    """

    plan: str | None = None
    spec: str | None = None
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    user: str | None = None
    context: Count | None = None
    slots: Count | None = None
    group: str | None = None


class Around(Recorded):
    """What else there was: other instances of the rig, other programs on its GPUs, the load before."""

    instances: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    load: NotNegative | None = None


class Provenance(Recorded):
    """All that a speed depends on, and by which it can be measured again."""

    host: Host = Host()
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    engine: Engine = Engine()
    model: str | None = None
    files: tuple[ModelFile, ...] = ()
    server: Server = Server()
    around: Around = Around()
