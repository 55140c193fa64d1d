"""What a container's volumes bring from its host: where a path in it lies outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

Bind = tuple[str, str]
"""A path of the host, and the path in the container where it is mounted."""


def of_volume(volume: object) -> Bind | None:
    """`SOURCE:TARGET[:OPTIONS]`, or Compose's mapping; None for a volume of Docker's own."""
    if isinstance(volume, Mapping):
        source, target = str(volume.get("source", "")), str(volume.get("target", ""))
    else:
        source, _, rest = str(volume).partition(":")
        target = rest.partition(":")[0]
    return (source, target) if re.match(r"[./~]", source) and target.startswith("/") else None


def of_mount(text: str) -> Bind | None:
    """`type=bind,source=…,target=…` of `docker run --mount`."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    source = parts.get("source", parts.get("src", ""))
    return of_volume({"source": source, "target": parts.get("target", parts.get("dst", parts.get("destination", "")))})


def binds(volumes: Iterable[Any]) -> tuple[Bind, ...]:
    """Those volumes that are folders or files of the host."""
    return tuple(found for each in volumes if (found := of_volume(each)))


def on_host(path: str, bound: Iterable[Bind], folder: Path) -> Path | None:
    """Where a path of a container lies on its host; `folder` is what relative paths count from."""
    for source, target in bound:
        if "$" not in source and PurePosixPath(path).is_relative_to(target):
            return folder / Path(source).expanduser() / PurePosixPath(path).relative_to(target)
    return None
