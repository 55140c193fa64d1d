"""A rig, and the fleet of all rigs."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator

from llamaherd.fleet.base import Declared, Name
from llamaherd.fleet.machine import Connect, Gpus, Host
from llamaherd.fleet.serving import Instance
from llamaherd.fleet.software import Engine, Model

LOCAL = "@local"
"""The host of `connect: local`, and pyinfra's name for the machine that it runs on."""


class Rig(Declared):
    """One host as declared."""

    rig: Name
    """What the rig is called in commands."""
    connect: Connect
    """How to reach the host. `connect: local` is the machine that `herd` runs on."""
    host: Host
    """What the host is."""
    gpus: Gpus | None = None
    """Its cards. Leave it out where there are none."""
    engines: dict[Name, Engine]
    """Engines to build or run as images."""
    models: dict[Name, Model]
    """Models to keep."""
    instances: dict[Name, Instance]
    """Servers to run."""

    @field_validator("connect", mode="before", json_schema_input_type=Connect | str)
    @classmethod
    def _local(cls, value: Any) -> Any:
        return {"host": LOCAL} if value == "local" else value


class Fleet(Declared):
    """All rigs, by name."""

    rigs: dict[Name, Rig]
