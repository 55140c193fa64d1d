"""A fleet's gateway as its inventory declares it, for commands that are about people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llamaherd.diagnostics.findings import InventoryError, UserError, nearest
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.gateway import Gateway, User
from llamaherd.inventory.served import server_named, split_served
from llamaherd.pipeline.fleet_file import FLEET
from llamaherd.pipeline.load_fleet import survey_fleet


@dataclass(frozen=True)
class DeclaredGateway:
    """The gateway, the file that declares it, and all rigs around it by name."""

    declared: Gateway
    file: Path
    rigs: Mapping[str, Rig]

    def user(self, name: str) -> User:
        """A user by name. Raises UserError."""
        if name not in self.declared.users:
            help_ = nearest(name, self.declared.users) if self.declared.users else f"add one: `herd users add {name}`"
            raise UserError(f"the gateway has no user `{name}`", help_)
        return self.declared.users[name]

    @property
    def hosts(self) -> Mapping[str, Rig]:
        """The rigs that it runs on. Raises UserError where one of them cannot be read."""
        for name in self.declared.on:
            if name not in self.rigs:
                raise UserError(f"the gateway is on rig `{name}`, which cannot be read", "`herd check` says why")
        return {name: self.rigs[name] for name in self.declared.on}

    @property
    def authority(self) -> Path:
        """The folder of its own CA. Raises UserError where it is to have none."""
        if self.declared.tls is None or self.declared.tls.ca is None:
            help_ = f"write `tls: {{ca: keys/ca}}` below `gateway` in {self.file}"
            raise UserError("the gateway is to have no certificate of a CA of your own", help_)
        return self.declared.tls.ca

    @property
    def served(self) -> tuple[tuple[str, str], ...]:
        """Each model with each of its servers."""
        models = self.declared.models.items()
        return tuple((name, server_named(server, self.rigs)) for name, model in models for server in model.serve)

    @property
    def fallbacks(self) -> Mapping[str, str | None]:
        """Which model answers in the place of each, if any does."""
        return {name: model.fallback for name, model in self.declared.models.items()}

    def server(self, named: str) -> str:
        """A server that it sends requests to, by its name. Raises UserError where it is none."""
        names = {server for _, server in self.served}
        if (server := server_named(named, self.rigs)) in names:
            return server
        if split_served(named, self.rigs):
            raise UserError(
                f"no model of the gateway is served by {named}", f"its servers are {', '.join(sorted(names))}"
            )
        raise UserError(f"the gateway has no server `{named}`", nearest(named, names))


def declared_gateway(inventory: Path) -> DeclaredGateway:
    """The gateway of the fleet whose inventory this is. Raises InventoryError, and UserError where there is none."""
    surveyed = survey_fleet(inventory)
    file = (inventory if inventory.is_dir() else inventory.parent) / FLEET
    wrong = [each for each in surveyed.findings if each.severity == "error" and each.place.file.name == FLEET]
    if wrong:
        raise InventoryError(wrong)
    if surveyed.own is None or surveyed.own.gateway is None:
        raise UserError(f"there is no gateway in {file}", "declare one: `herd explain gateway` shows how")
    return DeclaredGateway(surveyed.own.gateway, file.resolve(), surveyed.around)
