"""The inventory as its owner declares it: rigs with their engines, models and instances.

Everything here is intent, frozen once read. What exactly must be on a host follows from it in `plan.py`.
"""

from __future__ import annotations

import os
import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from llamaherd.units import parse_size


class Declared(BaseModel):
    """Base of all that is declared: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _beside_inventory(value: Any, info: ValidationInfo) -> Any:
    """A relative path is relative to the YAML file that names it; `~` is the controller's home."""
    if not isinstance(value, str):
        return value
    folder = (info.context or {}).get("folder", Path())
    try:
        return Path(os.path.normpath(Path(folder, Path(value).expanduser())))
    except RuntimeError:
        raise ValueError(f"there is no such home as in `{value}`") from None


LocalPath = Annotated[Path, BeforeValidator(_beside_inventory)]
Size = Annotated[int, BeforeValidator(parse_size), Field(gt=0)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Port = Annotated[int, Field(ge=1, le=65535)]
OperatingSystem = Literal["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
Backend = Literal["systemd", "compose"]

LOCAL = "@local"
"""The host of `connect: local`, and pyinfra's name for the machine that it runs on."""

# Compute capability of cards found in homes, as CMAKE_CUDA_ARCHITECTURES wants it (NVIDIA's CUDA GPU list).
CUDA_ARCHITECTURES = {
    "RTX 3060": "86",
    "RTX 3070": "86",
    "RTX 3080": "86",
    "RTX 3090": "86",
    "RTX 3090 Ti": "86",
    "RTX 4070": "89",
    "RTX 4080": "89",
    "RTX 4090": "89",
    "RTX 5070": "120",
    "RTX 5080": "120",
    "RTX 5090": "120",
    "RTX 5090M": "120",
    "H100": "90",
    "H200": "90",
}


class Connect(Declared):
    """How the controller reaches a rig. `connect: local` is the machine that herd runs on."""

    host: str
    port: Port = 22
    user: str | None = None
    key: LocalPath | None = None
    known_hosts: LocalPath | None = None


class Cpu(Declared):
    """Physical cores, which is what engines want as threads: SMT siblings only slow them down."""

    cores: Annotated[int, Field(ge=1)]


class Host(Declared):
    """What the machine is."""

    os: OperatingSystem
    cpu: Cpu
    ram: Size


class Card(Declared):
    """One GPU; `model` gives its architecture unless `architecture` says it."""

    model: str
    uuid: Annotated[str, StringConstraints(pattern=r"^GPU-[0-9A-Za-z-]+$")] | None = None
    architecture: Annotated[str, StringConstraints(pattern=r"^\d{2,3}[af]?$")] | None = None

    @model_validator(mode="after")
    def _known(self) -> Card:
        if self.architecture is None and self.model not in CUDA_ARCHITECTURES:
            raise ValueError(f"the architecture of `{self.model}` is not known here; add `architecture:`, such as `86`")
        return self

    @property
    def cuda_architecture(self) -> str:
        """The value for CMAKE_CUDA_ARCHITECTURES, such as `86`."""
        return self.architecture or CUDA_ARCHITECTURES[self.model]


class Gpus(Declared):
    """The cards of a rig and the CUDA toolkit that engines are built with, such as `13.0`."""

    cuda: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")]
    cards: dict[Name, Card]


class Version(Declared):
    """What an archive cannot tell the build: llama.cpp counts and names git commits."""

    number: int
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-zA-Z._-]+$")] = "unknown"


class Source(Declared):
    """Where a source comes from, pinned: a git URL at a full commit, or an archive with its sha256."""

    git: str | None = None
    commit: Commit | None = None
    archive: str | None = None
    sha256: Sha256 | None = None
    folder: str = ""
    overlay: dict[str, str] = {}
    version: Version | None = None

    @field_validator("archive", mode="before")
    @classmethod
    def _archive_is_url_or_local(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) and not re.match(r"https?://", value):
            return str(_beside_inventory(value, info))
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> Source:
        if (self.git is None) == (self.archive is None):
            raise ValueError("give either `git` with `commit`, or `archive` with `sha256`")
        if self.git is not None and self.commit is None:
            raise ValueError("`git` needs `commit`, all 40 digits of it: a branch or tag moves")
        if self.archive is not None and self.sha256 is None:
            raise ValueError("`archive` needs its `sha256`")
        for path in (self.folder, *self.overlay):
            if path.startswith("/") or ".." in Path(path).parts:
                raise ValueError(f"`{path}` leads out of the source")
        return self

    @property
    def local_archive(self) -> Path | None:
        """The archive on the controller, where it is one."""
        return Path(self.archive) if self.archive and not self.archive.startswith("http") else None


class Engine(Declared):
    """An engine built here from a pinned source, or pulled as an image by digest.

    `options` are CMake options beyond those that follow from the rig.
    """

    kind: Literal["llama.cpp", "ik_llama.cpp"]
    source: Source | None = None
    image: Annotated[str, StringConstraints(pattern=r"^\S+@sha256:[0-9a-f]{64}$")] | None = None
    options: dict[Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")], str | int | bool] = {}

    @model_validator(mode="after")
    def _one_kind(self) -> Engine:
        if (self.source is None) == (self.image is None):
            raise ValueError("give either `source`, or `image` with its digest")
        return self


class Model(Declared):
    """A GGUF: from a hub (`hf`, `revision`, `files`), or from a file of the controller with its sha256."""

    hf: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    revision: str = "main"
    files: str = "*.gguf"
    file: LocalPath | None = None
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Model:
        if (self.hf is None) == (self.file is None):
            raise ValueError("give either `hf` with `files`, or `file` with `sha256`")
        if self.file is not None and self.sha256 is None:
            raise ValueError("`file` needs its `sha256`")
        return self


class CacheTypes(Declared):
    """Types of the K and the V cache; `kv: q8_0` sets both."""

    k: CacheType = "f16"
    v: CacheType = "f16"


class Draft(Declared):
    """Speculative decoding: `mtp: 2` drafts two tokens with the model's own prediction head."""

    mtp: Annotated[int, Field(ge=1, le=16)]


class Secret(Declared):
    """Where a secret is to be had when it is needed: a file of the controller, or its environment."""

    file: LocalPath | None = None
    env: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Secret:
        if (self.file is None) == (self.env is None):
            raise ValueError("give either `file` or `env`")
        return self


class Instance(Declared):
    """One server process: engine + model + placement + port."""

    engine: Name
    model: Name
    on: tuple[Name, ...] = ()
    context: Annotated[int, Field(ge=256)]
    kv: CacheTypes = CacheTypes()
    parallel: Annotated[int, Field(ge=1)] = 1
    threads: Annotated[int, Field(ge=1)] | None = None
    draft: Draft | None = None
    listen: str = "127.0.0.1"
    port: Port
    backend: Backend = "systemd"
    api_key: Secret | None = None
    extra_args: tuple[str, ...] = ()
    load_timeout: Annotated[int, Field(ge=5, le=7200)] | None = None

    @field_validator("listen")
    @classmethod
    def _address(cls, value: str) -> str:
        return str(ip_address("127.0.0.1" if value == "localhost" else value))

    @field_validator("kv", mode="before")
    @classmethod
    def _one_type_for_both(cls, value: Any) -> Any:
        return {"k": value, "v": value} if isinstance(value, str) else value

    @property
    def loopback(self) -> bool:
        """Whether only this host can reach it."""
        return ip_address(self.listen).is_loopback


class Rig(Declared):
    """One host as declared."""

    rig: Name
    connect: Connect
    host: Host
    gpus: Gpus | None = None
    engines: dict[Name, Engine]
    models: dict[Name, Model]
    instances: dict[Name, Instance]

    @field_validator("connect", mode="before")
    @classmethod
    def _local(cls, value: Any) -> Any:
        return {"host": LOCAL} if value == "local" else value


class Fleet(Declared):
    """All rigs, by name."""

    rigs: dict[Name, Rig]
