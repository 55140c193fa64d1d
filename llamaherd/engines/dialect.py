"""What every engine module offers: how it is built, and how its server is told what to serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from llamaherd.engines.flags.model import Catalogue
from llamaherd.engines.traits import Traits
from llamaherd.inventory.schema import CacheTypes, Instance, Version


@dataclass(frozen=True)
class Server:
    """What one server shall do: the instance as declared, and what the rest of the rig makes of it.

    `flags` are those of the pinned version of the engine, or of the newest that is known where that cannot be told.
    `overrides` are tensors to keep elsewhere, as `-ot` has them. `draft_path` is where the model lies that drafts, if
    it is not the served one; `mmproj_path`, where the vision projector does.
    """

    declared: Instance
    model_path: str
    threads: int
    listen: str
    overrides: tuple[str, ...] = ()
    api_key_file: str | None = None
    flags: Catalogue | None = None
    draft_path: str | None = None
    mmproj_path: str | None = None

    @property
    def kv(self) -> CacheTypes:
        """Types of its cache."""
        return self.declared.kv

    @property
    def gpus(self) -> int:
        """How many GPUs it sees."""
        return len(self.declared.on)

    @property
    def flash_attention(self) -> str:
        """`on`, `off` or `auto`; a quantised V cache needs it."""
        return self.declared.flash_attention or ("on" if self.kv.quantised else "auto")

    def knows(self, flag: str) -> bool:
        """Whether the engine has this flag, as far as that is known."""
        return self.flags is None or self.flags.knows(flag)

    def takes(self, flag: str, value: str) -> bool:
        """Whether the engine has this flag and its value may be this one, as far as that is known."""
        known = self.flags.find(flag) if self.flags else None
        return self.flags is None or bool(known and known.values and known.values[-1].wrong(value) is None)

    def option(self, flag: str, value: object) -> tuple[str, ...]:
        """The flag with its value, or nothing where there is none."""
        return () if value is None else (flag, str(value))


@dataclass(frozen=True)
class Scratch:
    """What a container has to write to, in sizes of Docker: its /tmp, and memory that its processes share."""

    size: str
    executable: bool = False
    shared: str | None = None


class Dialect(Protocol):
    """One engine's way of saying things."""

    kind: str
    traits: Traits
    bytes_per_job: int
    """Memory that one compile job may take, so that many cores with little RAM do not swap."""
    targets: tuple[str, ...]
    lists_devices: bool
    """Whether the program that was built says which devices it sees (`--list-devices`)."""
    stop_seconds: int
    """How long a server may take to end."""
    scratch: Scratch
    """What a container has for it."""
    home: str | None
    """Where it writes what it keeps, if it does."""
    key_variable: str | None
    """The variable that tells a server its key, where no flag names a file."""
    command: tuple[str, ...]
    """What its image starts, before the arguments."""
    props_path: str | None
    """Where a server tells what it has loaded; None where its list of models is all that it tells."""
    health_status: str | None
    """What a server says of its health when it is well; None where 200 is all that it says."""
    counts_drafts: bool
    """Whether an answer tells how many of its tokens were drafted."""
    one_process: bool
    """Whether a server does all of its work in one process."""
    opens_ports: bool
    """Whether it listens on all addresses besides the one that it is told."""

    def told(self, declared: Instance, /) -> Mapping[str, str]:
        """Variables of a server that say what versions without them would refuse as a flag."""
        ...

    def probe(self, url: str, /) -> tuple[str, ...]:
        """The command line that asks a server for its health inside the engine's own image."""
        ...

    def build_options(self, architectures: tuple[str, ...]) -> Mapping[str, str]:
        """CMake cache variables; no architectures means a build for the CPU alone."""
        ...

    def version_options(self, version: Version, /) -> Mapping[str, str]:
        """CMake cache variables that say which version this is, where the engine has such."""
        ...

    def arguments(self, server: Server) -> tuple[str, ...]:
        """The server's arguments, without the program."""
        ...


def sampling(server: Server) -> tuple[str, ...]:
    """The samplers' flags, which llama.cpp and its fork spell alike."""
    chosen = server.declared.sampling
    if chosen is None:
        return ()
    return (
        *server.option("--temp", chosen.temperature),
        *server.option("--top-p", chosen.top_p),
        *server.option("--top-k", chosen.top_k),
        *server.option("--min-p", chosen.min_p),
        *server.option("--presence-penalty", chosen.presence_penalty),
        *server.option("--repeat-penalty", chosen.repeat_penalty),
        *server.option("--seed", chosen.seed),
    )


def thinking(server: Server) -> tuple[str, ...]:
    """Whether the model thinks first: a flag of its own, or before there was one, a word to the chat template."""
    wanted = server.declared.thinking
    if wanted is None:
        return ()
    if server.knows("--reasoning"):
        return ("--reasoning", "on" if wanted else "off")
    return ("--chat-template-kwargs", f'{{"enable_thinking": {str(wanted).lower()}}}')


def placement_flags(server: Server) -> tuple[str, ...]:
    """Where tensors go, in flags that llama.cpp and its fork share."""
    declared = server.declared
    return (
        *server.option("--split-mode", declared.split),
        *server.option("--tensor-split", ",".join(f"{part:g}" for part in declared.tensor_split) or None),
        *server.option("--override-tensor", ",".join(server.overrides) or None),
    )
