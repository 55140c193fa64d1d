"""What a plan holds of engines: those that are built, and the images that are made of builds."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from llamaherd.inventory.schema import Source
from llamaherd.layout import BUILDS, STATE
from llamaherd.plan.base import Planned


class BuildPlan(Planned):
    """An engine to be built; `id` names its folder and hashes all that decides what comes out."""

    id: str
    engine: str
    kind: str
    source: Source
    options: dict[str, str]
    targets: tuple[str, ...]
    cuda: str | None
    disk: int

    @model_validator(mode="before")
    @classmethod
    def _without_script(cls, value: Any) -> Any:
        """Read a plan of an earlier version, which contains the script of each build."""
        return {name: each for name, each in value.items() if name != "script"} if isinstance(value, dict) else value

    @property
    def folder(self) -> str:
        """Where the finished build lies."""
        return str(BUILDS / self.id)


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
