"""Instances that the inventory no longer has: stopped and forgotten, but not before what comes in their place serves.

A server that is given another name is one that goes and one that comes. Which one takes whose place, nobody says: what
goes stays until all that come have answered a prompt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from llamaherd.host.serving import ServingState
from llamaherd.host.state import HostState
from llamaherd.inventory.schema import DRAIN_SECONDS
from llamaherd.layout import KEPT, service_of
from llamaherd.memory.instances import MARGIN, SYSTEM_RAM
from llamaherd.plan import RAM, InstancePlan, Plan
from llamaherd.render import render
from llamaherd.role.changes import Change, RunScript
from llamaherd.role.role import Run
from llamaherd.text.quoting import is_word
from roles.serve.ports import held
from roles.serve.transaction import forget, proven, serves, tried

_NOT_DECLARED = ("it is not declared",)


@dataclass(frozen=True)
class Going:
    """A server that is not declared any more: a unit, a container, or both."""

    name: str
    unit: bool
    container: bool
    port: bool = False
    """Whether it has the port of the instance that it is seen from, or will have when it starts."""
    serves: bool = False
    """Whether it runs."""

    @property
    def service(self) -> str:
        """Its name to systemd and Docker."""
        return service_of(self.name)

    @property
    def kept(self) -> PurePosixPath:
        """What is kept of it."""
        return KEPT / self.service


def removal_changes(plan: Plan, state: HostState, *, waiting: bool = False) -> list[Change]:
    """Stop and forget instances that the inventory no longer has, unless this run is for others alone, or they wait.

    One that it has by the other backend is left to its switch, until that has been done.
    """
    declared = {instance.name: instance for instance in plan.instances}
    stay = waiting or not plan.whole("serve")
    return [
        Change(
            "remove",
            "server",
            each.service,
            ("it is declared elsewhere",) if each.name in declared else _NOT_DECLARED,
            RunScript(
                render(
                    "serve/remove.sh.j2",
                    name=each.name,
                    kept=each.kept,
                    drain=DRAIN_SECONDS,
                    forget=forget(each.name, unit=each.unit, project=each.container, key=each.name not in declared),
                ),
                f"removing {each.name}",
            ),
        )
        for each in strange(plan, state)
        if (_has_come(declared[each.name], state) if each.name in declared else not stay)
    ]


def strange(plan: Plan, state: HostState) -> Iterator[Going]:
    """What is there and not declared so."""
    units = {unit.removeprefix("llama-") for unit in state.units} - {i.name for i in plan.of("systemd")}
    # While Compose makes one anew, it has another name.
    containers = {name.removeprefix("llama-") for name in state.containers if name.startswith("llama-")}
    projects = (state.projects | containers) - {i.name for i in plan.of("compose")}
    for name in sorted(filter(is_word, units | projects)):  # `herd` writes no other name
        yield Going(name, name in units, name in projects)


def _has_come(instance: InstancePlan, state: HostState) -> bool:
    """Whether it serves as planned, by the backend that is declared."""
    if instance.backend == "systemd":
        unit = state.units.get(instance.service)
        come = unit is not None and (unit.active, unit.spec) == ("active", instance.spec)
    else:
        container = state.containers.get(instance.service)
        come = container is not None and (container.health, container.spec) == ("healthy", instance.spec)
    return come and proven(instance, state)


def coming(plan: Plan, state: HostState) -> list[InstancePlan]:
    """The instances of which nothing serves yet that has answered a prompt."""
    return [each for each in plan.instances if not (serves(each, state) and proven(each, state))]


def removals_after(plan: Plan, serving: Sequence[InstancePlan], state: HostState, run: Run) -> list[Change]:
    """What goes once these instances serve: what waited, where the last that comes is one, and none has failed."""
    new = coming(plan, state)
    failed = run.failed or any(_refused(each, state) for each in new if each not in serving)
    if failed or not new or new[-1] not in serving:
        return []
    return [each for each in removal_changes(plan, state) if each.reasons == _NOT_DECLARED]


def _refused(instance: InstancePlan, state: HostState) -> bool:
    refused = state.serving.get(instance.service, ServingState()).refused
    return refused is not None and refused.tried == tried(instance)


def going_of(plan: Plan, state: HostState) -> list[Going]:
    """Return the servers that wait for those that come: they are not declared any more."""
    if not coming(plan, state) or not plan.whole("serve"):
        return []
    declared = {each.name for each in plan.instances}
    return [each for each in strange(plan, state) if each.name not in declared]


def replaced(plan: Plan, instance: InstancePlan, state: HostState) -> tuple[Going, ...]:
    """The servers that wait for those that come, seen from an instance."""
    ports = held(state)
    waiting = {name: unit.waits_for for name, unit in state.units.items()}
    return tuple(
        replace(
            each,
            port=ports.get(each.service, waiting.get(each.service)) == instance.endpoint.port,
            serves=each.service in ports,
        )
        for each in going_of(plan, state)
    )


def giving_way(instance: InstancePlan, going: Sequence[Going]) -> Mapping[str, Any]:
    """What the script of a switch is given of servers that go on until it has been done."""
    return {"going": going, "going_needs": _needs(instance)}


def _needs(instance: InstancePlan) -> str:
    """What must be free for it beside them; empty where that is not certain."""
    if instance.memory is None or instance.memory.doubts or instance.server.one_card:
        return ""
    at = {card.name: card.at for card in instance.server.cards}
    holds = {each.where: each.total for each in instance.memory.holds}
    if not holds.keys() - {RAM} <= at.keys():
        return ""
    gpus = [{"name": name, "at": at[name], "need": need + MARGIN} for name, need in holds.items() if name in at]
    return json.dumps({"ram": holds.get(RAM, 0) + SYSTEM_RAM, "gpus": gpus})
