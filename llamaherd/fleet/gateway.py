"""The fleet's gateway as its inventory declares it, the queries to its hosts, and the rigs that it wakes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from llamaherd.diagnostics.findings import InventoryError, UserError, nearest
from llamaherd.fleet.gateway_snapshot import GatewaySnapshot, ServerState, gateway_snapshot
from llamaherd.host.protocol import query_verb
from llamaherd.host.remote import Remote, RemoteError, query_all
from llamaherd.host.ssh import UnreachableError
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import Gateway, User, server_named, split_served
from llamaherd.onhost.gateway import (
    DrainInput,
    DrainState,
    GatewayState,
    Held,
    ReadyInput,
    RenewInput,
    WakeInput,
    Woken,
)
from llamaherd.onhost.server_control import Pauses
from llamaherd.onhost.verbs import NoInput
from llamaherd.pipeline.fleet_files import FLEET, survey_fleet
from llamaherd.role.changes import Report


@dataclass(frozen=True)
class DeclaredGateway:
    """The gateway, the file that declares it, and all rigs of the fleet by name."""

    declared: Gateway
    file: Path
    rigs: Mapping[str, Rig]

    def user(self, name: str) -> User:
        """Return a user by name. Raise UserError."""
        if name not in self.declared.users:
            help_ = nearest(name, self.declared.users) if self.declared.users else f"add one: `herd users add {name}`"
            raise UserError(f"the gateway has no user `{name}`", help_)
        return self.declared.users[name]

    @property
    def hosts(self) -> Mapping[str, Rig]:
        """The rigs that it runs on. Raises UserError if one of them cannot be read."""
        for name in self.declared.on:
            if name not in self.rigs:
                raise UserError(f"the gateway is on rig `{name}`, which cannot be read", "`herd check` reports why")
        return {name: self.rigs[name] for name in self.declared.on}

    @property
    def authority(self) -> Path:
        """The folder of its own CA. Raises UserError if it has none."""
        if self.declared.tls is None or self.declared.tls.ca is None:
            help_ = f"write `tls: {{ca: keys/ca}}` below `gateway` in {self.file}"
            raise UserError("the gateway has no certificate of a CA of your own", help_)
        return self.declared.tls.ca

    @property
    def served(self) -> tuple[tuple[str, str], ...]:
        """Each model with each of its servers."""
        models = self.declared.models.items()
        return tuple((name, server_named(server, self.rigs)) for name, model in models for server in model.serve)

    @property
    def fallbacks(self) -> Mapping[str, str | None]:
        """The fallback of each model, if there is one."""
        return {name: model.fallback for name, model in self.declared.models.items()}

    def server(self, named: str) -> str:
        """Return a server that it sends requests to, by its name. Raise UserError if there is none."""
        names = {server for _, server in self.served}
        if (server := server_named(named, self.rigs)) in names:
            return server
        if split_served(named, self.rigs):
            raise UserError(
                f"no model of the gateway is served by {named}", f"its servers are {', '.join(sorted(names))}"
            )
        raise UserError(f"the gateway has no server `{named}`", nearest(named, names))


def declared_gateway(inventory: Path) -> DeclaredGateway:
    """Return the gateway of the fleet of this inventory. Raise InventoryError, or UserError if there is none."""
    surveyed = survey_fleet(inventory)
    file = (inventory if inventory.is_dir() else inventory.parent) / FLEET
    wrong = [each for each in surveyed.findings if each.severity == "error" and each.place.file.name == FLEET]
    if wrong:
        raise InventoryError(wrong)
    if surveyed.own is None or surveyed.own.gateway is None:
        raise UserError(f"there is no gateway in {file}", "declare one: `herd explain gateway` shows how")
    return DeclaredGateway(surveyed.own.gateway, file.resolve(), surveyed.around)


T = TypeVar("T")

_SECONDS = 60


def query_gateways(rigs: Mapping[str, Rig]) -> dict[str, GatewaySnapshot | RemoteError]:
    """Return the state of each gateway of these rigs, or why a gateway could not be queried."""
    return _query_each(rigs, lambda rig: gateway_snapshot(_run_verb(rig, "status", NoInput(), GatewayState)))


def query_stopped(rigs: Mapping[str, Rig], servers: Iterable[str]) -> dict[str, ServerState]:
    """Return those of these servers that are paused on their rigs, and those whose rigs sleep.

    A rig that cannot be queried for another reason has none.
    """
    declared = {f"{rig}.{name}": (rig, name) for rig, each in rigs.items() for name in each.servers}
    found = {server: declared[server] for server in servers if server in declared}
    hosts = {rig: rigs[rig] for rig, _ in found.values()}
    paused = _query_each(
        hosts,
        lambda rig: query_verb(Remote(rig.connect), "llamaherd.server_control.pauses", NoInput(), Pauses, _SECONDS),
    )
    left = {rig: each.left for rig, each in paused.items() if isinstance(each, Pauses)}
    asleep = {rig for rig, each in paused.items() if isinstance(each, UnreachableError) and rigs[rig].wake}
    states: dict[str, ServerState] = {server: "asleep" for server, (rig, _) in found.items() if rig in asleep}
    return states | {server: "paused" for server, (rig, name) in found.items() if name in left.get(rig, {})}


def with_stopped(
    rigs: Mapping[str, Rig], found: Mapping[str, GatewaySnapshot | RemoteError]
) -> dict[str, GatewaySnapshot | RemoteError]:
    """Return gateways with servers as paused or asleep that are. Rigs are queried only if a server is down."""
    down = {server for each in found.values() if isinstance(each, GatewaySnapshot) for server in each.down}
    states = query_stopped(rigs, down) if down else {}
    return {
        name: each.with_states(states) if isinstance(each, GatewaySnapshot) else each for name, each in found.items()
    }


def wake_rig(gateways: Mapping[str, Rig], rig: str) -> dict[str, Woken | RemoteError]:
    """Let these gateways send a rig a wake-on-LAN packet. Return by gateway what came of it."""
    return _query_each(gateways, lambda each: _run_verb(each, "wake", WakeInput(rig), Woken))


def drain_server(
    rigs: Mapping[str, Rig], server: str, seconds: int, undo: int | None = None
) -> dict[str, DrainState | RemoteError]:
    """Drain a server at these gateways, and wait so many seconds for its last requests.

    After `undo` seconds their hosts undo the drain, even if the run has ended.
    """
    given = DrainInput(server, seconds, undo)
    return _query_each(rigs, lambda rig: _run_verb(rig, "drain", given, DrainState, seconds))


def ready_server(rigs: Mapping[str, Rig], server: str) -> dict[str, RemoteError | None]:
    """Let these gateways send a server requests again. Return by gateway why that failed, if it did."""
    found = _query_each(rigs, lambda rig: _run_verb(rig, "ready", ReadyInput(server), Held))
    return {rig: each if isinstance(each, RemoteError) else None for rig, each in found.items()}


def undo_drain(rigs: Mapping[str, Rig], server: str) -> dict[str, bool | RemoteError]:
    """Undo a drain of a run. Return by gateway whether the drain was still set, unchanged since."""
    return _query_each(rigs, lambda rig: _run_verb(rig, "ready", ReadyInput(server, ours=True), Held).held)


def renew_drain(rigs: Mapping[str, Rig], server: str) -> dict[str, bool | RemoteError]:
    """Restart the time until hosts undo a drain. Return by gateway whether the drain was still set."""
    return _query_each(rigs, lambda rig: _run_verb(rig, "renew", RenewInput(server), Held).held)


def _run_verb(rig: Rig, verb: str, given: object, kind: type[T], seconds: int = 0) -> T:
    return query_verb(Remote(rig.connect), f"llamaherd.gateway.{verb}", given, kind, _SECONDS + seconds)


def _query_each(rigs: Mapping[str, Rig], ask: Callable[[Rig], T]) -> dict[str, T | RemoteError]:
    return query_all(rigs, partial(_result_or_error, ask))


def _result_or_error(ask: Callable[[Rig], T], rig: Rig) -> T | RemoteError:
    try:
        return ask(rig)
    except RemoteError as error:
        return error


WAKE_SECONDS = 180
"""The longest wait for a rig: one that was off boots, and checks its memory before."""
_PAUSE_SECONDS = 3.0
_PROBE_SECONDS = 30


def wake_rigs(
    gateways: Mapping[str, Rig], rigs: Mapping[str, Rig], report: Report, seconds: float = WAKE_SECONDS
) -> set[str]:
    """Let gateways wake rigs, and wait until the hosts respond. Print what happens, and return those that respond."""
    for name in rigs:
        report(f"{name}: it does not respond; waking it, for up to {seconds:.0f} s")
    woken = query_all(rigs, partial(_wake, gateways, report=report, seconds=seconds))
    return {name for name, is_awake in woken.items() if is_awake}


def _wake(gateways: Mapping[str, Rig], rig: Rig, *, report: Report, seconds: float) -> bool:
    """Return whether a host responds within the limit, while gateways send it packets."""
    began = time.monotonic()
    while True:
        sent = wake_rig(gateways, rig.rig)
        if not any(isinstance(each, Woken) for each in sent.values()):
            for name, each in sent.items():
                report(f"{rig.rig}: {name} did not wake it: {each}")
            return False
        if _responds(rig):
            report(f"{rig.rig}: awake after {time.monotonic() - began:.0f} s")
            return True
        if time.monotonic() - began > seconds:
            report(f"{rig.rig}: it does not respond {seconds:.0f} s after the first packet")
            return False
        time.sleep(_PAUSE_SECONDS)


def _responds(rig: Rig) -> bool:
    """Return whether a host responds, if only with an error. sshd may not run yet while it boots."""
    try:
        query_verb(Remote(rig.connect), "llamaherd.server_control.pauses", NoInput(), Pauses, _PROBE_SECONDS)
    except UnreachableError:
        return False
    except RemoteError as error:
        return "refused" not in error.message
    return True
