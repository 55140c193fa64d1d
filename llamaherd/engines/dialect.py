"""What every engine module offers: how it is built, and how its server is told what to serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from llamaherd.fleet import CacheTypes, Version


@dataclass(frozen=True)
class Server:
    """What one server shall do, in words that hold for every engine."""

    model_path: str
    alias: str
    context: int
    kv: CacheTypes
    parallel: int
    threads: int
    mtp: int
    on_gpu: bool
    listen: str
    port: int
    api_key_file: str | None
    extra_args: tuple[str, ...]

    @property
    def quantised_cache(self) -> bool:
        """Whether a cache type is quantised, which needs flash attention."""
        return any(not kind.endswith(("f16", "f32")) for kind in (self.kv.k, self.kv.v))


class Dialect(Protocol):
    """One engine's way of saying things."""

    kind: str
    bytes_per_job: int
    """Memory that one compile job may take, so that many cores with little RAM do not swap."""
    targets: tuple[str, ...]

    def build_options(self, architectures: tuple[str, ...]) -> Mapping[str, str]:
        """CMake cache variables; no architectures means a build for the CPU alone."""
        ...

    def version_options(self, version: Version, /) -> Mapping[str, str]:
        """CMake cache variables that say which version this is, where the engine has such."""
        ...

    def arguments(self, server: Server) -> tuple[str, ...]:
        """The server's arguments, without the program."""
        ...
