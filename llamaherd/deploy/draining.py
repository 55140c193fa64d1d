"""A server that is changed in a run gets nothing new from its gateways, where others answer in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyinfra import logger
from pyinfra.api import Host

from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.gateway.ask import ask_gateways, drain, ready
from llamaherd.gateway.now import Drained, GatewayNow
from llamaherd.gateway.people import declared_gateway
from llamaherd.inventory.schema import Rig
from llamaherd.pipeline.fleet_file import survey_fleet_file
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Change
from llamaherd.text.terminal import plain

_SPARE = 300
"""Seconds beyond what a switch takes: downloads that its host is in the middle of slow all down."""


@contextmanager
def drained(host: Host, change: Change) -> Iterator[None]:
    """While a server that serves is changed, those of its gateways that have others for it send it nothing new.

    What is in flight there is waited for by its own host. A run that is ended in the middle leaves timers on the hosts
    of gateways, which take it back.
    """
    front = _front(host, change)
    aside = front.step_aside() if front else {}
    try:
        yield
    finally:
        if front and aside:
            front.step_back(aside)


@dataclass(frozen=True)
class _Front:
    """The gateways before a server: their rigs, and for each model that which answers in its place, if one does."""

    host: Host
    server: str
    longest: int
    gateways: Mapping[str, Rig]
    fallbacks: Mapping[str, str | None]

    def step_aside(self) -> Mapping[str, Rig]:
        """Have nothing new sent to it; by which gateways. One that somebody has drained stays so."""
        willing = {}
        for rig, now in ask_gateways(self.gateways).items():
            if not isinstance(now, GatewayNow):
                self._say(f"{rig} goes on sending to {self.server}: {now.message}")
            elif not now.takes(self.server):
                continue
            elif alone := now.without(self.server, self.fallbacks):
                self._say(f"{rig} goes on sending to {self.server}: nobody else answers for {' and '.join(alone)}")
            else:
                willing[rig] = self.gateways[rig]
        aside = {}
        for rig, found in drain(willing, self.server, 0, undo=self.longest).items():
            if isinstance(found, Drained):
                self._say(f"{rig} sends nothing new to {self.server}")
                aside[rig] = self.gateways[rig]
            else:
                self._say(f"{rig} goes on sending to {self.server}: {found.message}")
        return aside

    def step_back(self, aside: Mapping[str, Rig]) -> None:
        """Have requests sent to it again."""
        for rig, problem in ready(aside, self.server).items():
            late = f"{rig} sends nothing to {self.server} for {self.longest} s more at most"
            self._say(f"{late}: {problem.message}" if problem else f"{rig} sends to {self.server} again")

    def _say(self, line: str) -> None:
        logger.info(f"{self.host.print_prefix}{plain(line)}")


def _front(host: Host, change: Change) -> _Front | None:
    """What stands in front of a server that serves; None where nothing does, or what does is not to be known."""
    if change.away is None:
        return None
    folder = Path(host.data.inventory)
    declared = survey_fleet_file(folder if folder.is_dir() else folder.parent).declared
    if declared is None or declared.gateway is None:
        return None
    plan = Plan.model_validate(host.data.plan)
    instance = next((each for each in plan.instances if each.service == change.name), None)
    served = {server for model in declared.gateway.models.values() for server in model.serve}
    names = [each.name for each in instance.members or (instance,)] if instance else []
    if instance is None or served.isdisjoint(f"{plan.rig}.{name}" for name in names):
        return None
    server = f"{plan.rig}.{instance.name}"
    try:
        gateway = declared_gateway(folder)
        return _Front(host, server, _longest(instance), gateway.hosts, gateway.fallbacks)
    except (InventoryError, UserError) as error:
        first = str(error).splitlines()[0]
        logger.info(f"{host.print_prefix}{plain(f'{server} is changed without its gateways being told: {first}')}")
        return None


def _longest(instance: InstancePlan) -> int:
    """Seconds in which it is changed, whatever comes of it: what served before comes back by a second start."""
    gate = instance.gate.seconds if instance.gate else 0
    return gate + 2 * (instance.drain + instance.server.start_seconds) + _SPARE
