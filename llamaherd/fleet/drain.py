"""Drain a server at its gateways while it is changed or measured, where other servers can take its requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.fleet.gateway import declared_gateway, drain_server, query_gateways, renew_drain, undo_drain
from llamaherd.fleet.gateway_snapshot import GatewaySnapshot
from llamaherd.inventory.schema import Rig
from llamaherd.onhost.gateway import DrainState
from llamaherd.pipeline.fleet_files import survey_fleet_file
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Report

DRAIN_SECONDS = 900
"""Seconds after which hosts of gateways undo a drain, even if the measuring run has ended: the run renews it."""

_EVERY = 300.0
"""Seconds between two renewals: one that fails does no harm."""


@dataclass(frozen=True)
class ServerGateways:
    """The gateways of a server: their rigs, and for each model its fallback, if there is one.

    `report` prints a line. After `longest` seconds the hosts of gateways undo the drain.
    """

    server: str
    longest: int
    gateways: Mapping[str, Rig]
    fallbacks: Mapping[str, str | None]
    report: Report

    def drain(self, wait: int = 0) -> Mapping[str, Rig]:
        """Drain the server at its gateways, and wait so many seconds for its running requests; return the gateways.

        A drain by hand stays.
        """
        willing = self._willing()
        try:
            drained = drain_server(willing, self.server, wait, undo=self.longest)
        except BaseException:
            undo_drain(willing, self.server)
            raise
        gateways = {}
        for rig, found in drained.items():
            if isinstance(found, DrainState):
                left = f"; {found.left} requests that were sent before are still running" if wait and found.left else ""
                self.report(f"{rig} sends no new requests to {self.server}{left}")
                gateways[rig] = self.gateways[rig]
            else:
                self.report(f"{rig} continues sending to {self.server}: {found.message}")
        return gateways

    def _willing(self) -> Mapping[str, Rig]:
        """Return the gateways that send requests to the server, and have others for all of its models."""
        willing = {}
        for rig, now in query_gateways(self.gateways).items():
            if not isinstance(now, GatewaySnapshot):
                self.report(f"{rig} continues sending to {self.server}: {now.message}")
            elif not now.takes(self.server):
                continue
            elif alone := now.without(self.server, self.fallbacks):
                self.report(f"{rig} continues sending to {self.server}: no other server serves {' and '.join(alone)}")
            else:
                willing[rig] = self.gateways[rig]
        return willing

    def undo(self, gateways: Mapping[str, Rig]) -> None:
        """Undo the drain at the gateways where it is unchanged since."""
        for rig, found in undo_drain(gateways, self.server).items():
            if found is True:
                self.report(f"{rig} sends to {self.server} again")
            elif found is False:
                self.report(f"{rig} is left as it is: the drain of {self.server} was changed, or its time was over")
            else:
                self.report(f"{rig} sends nothing to {self.server} for {self.longest} s more at most: {found.message}")


def gateways_of(
    inventory: Path, plan: Plan, instance: InstancePlan, longest: int, report: Report
) -> ServerGateways | None:
    """Return the gateways of an instance; None if it has none, or if they cannot be queried, which `report` prints."""
    folder = inventory if inventory.is_dir() else inventory.parent
    declared = survey_fleet_file(folder).declared
    if declared is None or declared.gateway is None:
        return None
    served = {server for model in declared.gateway.models.values() for server in model.serve}
    names = [each.name for each in instance.members or (instance,)]
    if served.isdisjoint(f"{plan.rig}.{name}" for name in names):
        return None
    server = f"{plan.rig}.{instance.name}"
    try:
        gateway = declared_gateway(inventory)
        return ServerGateways(server, longest, gateway.hosts, gateway.fallbacks, report)
    except (InventoryError, UserError) as error:
        report(f"the gateways of {server} are not queried: {str(error).splitlines()[0]}")
        return None


@contextmanager
def drained_for_change(inventory: Path, plan: Plan, seconds: Mapping[str, int], report: Report) -> Iterator[None]:
    """Drain instances while they are changed, at those gateways that have other servers for their models.

    `seconds`: the longest that the change takes, by instance. If the run ends in the middle, timers on the hosts of
    gateways undo the drain.
    """
    with ExitStack() as stack:
        for instance in plan.instances:
            if instance.name not in seconds:
                continue
            front = gateways_of(inventory, plan, instance, seconds[instance.name], report)
            if front and (gateways := front.drain()):
                stack.callback(front.undo, gateways)
        yield


@contextmanager
def drained(
    inventory: Path, plan: Plan, instances: Sequence[InstancePlan], report: Report, wait: int = 0
) -> Iterator[None]:
    """Drain instances while they are measured, however long that takes, at the gateways that have other servers.

    Wait so many seconds for their running requests. If the run is interrupted, timers on the hosts of gateways undo the
    drain.
    """
    with ExitStack() as around:
        for instance in instances:
            if front := gateways_of(inventory, plan, instance, DRAIN_SECONDS + wait, report):
                around.enter_context(_renewed(front, wait))
        yield


@contextmanager
def _renewed(front: ServerGateways, wait: int) -> Iterator[None]:
    gateways = front.drain(wait)
    ended = Event()

    def renewing() -> None:
        while gateways and not ended.wait(_EVERY):
            renew_drain(gateways, front.server)

    thread = Thread(target=renewing, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if gateways:
            front.undo(gateways)
