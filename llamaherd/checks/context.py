"""The values that checks receive: one rig, or the file of a fleet, each with its positions in YAML."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from llamaherd.diagnostics.findings import Finding, Place
from llamaherd.gguf.header import Header
from llamaherd.inventory.api_keys import ServerKey
from llamaherd.inventory.schema import Card, Engine, Instance, Rig
from llamaherd.inventory.schema.fleet_file import FleetFile, Gateway, Monitoring, ServedModel, split_served
from llamaherd.inventory.yaml_file import Document
from llamaherd.memory.facts import RigFacts


@dataclass(frozen=True)
class RigContext:
    """The facts of a rig, and its positions in its file.

    `rigs` are the readable rigs of the fleet by name, this one included; `names` also has the unreadable ones.
    `fleet` is the content of the fleet's file; None without one, or if it cannot be read: then it is not known.
    """

    facts: RigFacts
    document: Document
    rigs: Mapping[str, Rig] = field(default_factory=dict)
    names: Collection[str] = ()
    fleet: FleetFile | None = None
    fleet_is_known: bool = True

    @property
    def rig(self) -> Rig:
        """The declared rig."""
        return self.facts.rig

    @property
    def headers(self) -> Mapping[str, Header]:
        """The known headers of its models, by name of model."""
        return self.facts.headers

    @property
    def servers(self) -> Iterator[tuple[str, Instance, Engine]]:
        """The instances whose engine is declared, each with its name and that engine."""
        for name, instance in self.rig.instances.items():
            if engine := self.rig.engines.get(instance.engine):
                yield name, instance, engine

    def cards(self, instance: Instance) -> tuple[Card, ...]:
        """Return the declared GPUs that an instance runs on."""
        declared = self.rig.gpus.cards if self.rig.gpus else {}
        return tuple(declared[name] for name in instance.on if name in declared)


class RigCheck(Protocol):
    """Yield findings about one rig. A check must work for rigs with any number of other mistakes."""

    def __call__(self, subject: RigContext, /) -> Iterator[Finding]: ...


class GatewayServer(NamedTuple):
    """A server behind the gateway: its model, where that is written, its rig and its instance."""

    model: str
    place: Place
    rig: Rig
    name: str
    instance: Instance


@dataclass(frozen=True)
class FleetContext:
    """A fleet's file, its positions, and the readable rigs of its folder; `names` also has the unreadable ones.

    `keys` are those that servers get because the rigs name none.
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
        """The monitoring, if there is any."""
        if self.declared.monitoring is not None:
            yield self.declared.monitoring

    @property
    def models(self) -> Iterator[tuple[str, ServedModel]]:
        """The gateway's models."""
        for gateway in self.gateways:
            yield from gateway.models.items()

    def served(self) -> Iterator[GatewayServer]:
        """Yield every declared server that a model names."""
        for model, each in self.models:
            for index, named in enumerate(each.serve):
                if found := split_served(named, self.rigs):
                    rig, name = self.rigs[found[0]], found[1]
                    place = self.value("models", model, "serve", index)
                    yield GatewayServer(model, place, rig, name, rig.instances[name])

    def value(self, *path: str | int) -> Place:
        """Return where a value of the gateway is written."""
        return self.document.value(("gateway", *path))

    def key(self, *path: str | int) -> Place:
        """Return where a key of the gateway is written."""
        return self.document.key(("gateway", *path))


class FleetCheck(Protocol):
    """Yield findings about a fleet's file. A check must work with any number of other mistakes."""

    def __call__(self, subject: FleetContext, /) -> Iterator[Finding]: ...
