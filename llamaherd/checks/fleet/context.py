"""What a check of a fleet's own file is given."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.inventory.schema import Instance, Rig
from llamaherd.inventory.schema.gateway import FleetFile, Gateway, ServedModel
from llamaherd.inventory.schema.monitoring import Monitoring
from llamaherd.inventory.served import split_served
from llamaherd.inventory.server_keys import ServerKey
from llamaherd.inventory.yamlfile import Document


class Served(NamedTuple):
    """A server behind the gateway: for which model, where that is written, and what it is."""

    model: str
    place: Place
    rig: Rig
    name: str
    instance: Instance


@dataclass(frozen=True)
class FleetContext:
    """A fleet's file, where it stands, and the rigs beside it that can be read; `names` also has those that cannot.

    `keys` are those that servers are given, for which the rigs name none.
    """

    declared: FleetFile
    document: Document
    rigs: Mapping[str, Rig]
    names: Collection[str]
    keys: tuple[ServerKey, ...] = ()

    @property
    def gateways(self) -> Iterator[Gateway]:
        """The gateway, if there is one."""
        if self.declared.gateway is not None:
            yield self.declared.gateway

    @property
    def monitoring(self) -> Iterator[Monitoring]:
        """What watches, if anything does."""
        if self.declared.monitoring is not None:
            yield self.declared.monitoring

    @property
    def models(self) -> Iterator[tuple[str, ServedModel]]:
        """The gateway's models."""
        for gateway in self.gateways:
            yield from gateway.models.items()

    def served(self) -> Iterator[Served]:
        """Every server that a model names and that is there."""
        for model, each in self.models:
            for index, named in enumerate(each.serve):
                if found := split_served(named, self.rigs):
                    rig, name = self.rigs[found[0]], found[1]
                    place = self.value("models", model, "serve", index)
                    yield Served(model, place, rig, name, rig.instances[name])

    def value(self, *path: str | int) -> Place:
        """Where a value of the gateway stands."""
        return self.document.value(("gateway", *path))

    def key(self, *path: str | int) -> Place:
        """Where a key of the gateway stands."""
        return self.document.key(("gateway", *path))


class FleetCheck(Protocol):
    """Yields what is wrong or doubtful about a fleet's file. It must do with any number of other mistakes."""

    def __call__(self, subject: FleetContext, /) -> Iterator[Finding]: ...
