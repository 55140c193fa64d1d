"""Servers that exchange something in one run, such as a port: all of them change, or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from llamaherd.host.state import HostState
from llamaherd.memory.instances import MARGIN, SYSTEM_RAM
from llamaherd.onhost.servers import ServingState
from llamaherd.plan import RAM, InstancePlan, Plan
from llamaherd.role.changes import Change, RunVerb
from llamaherd.role.preflight import comma_list
from roles.serve.onhost.model import CutOffInput, ExchangeInput, ReplacedServer, SwitchInput
from roles.serve.ports import held
from roles.serve.removal import going_of
from roles.serve.state import ServeState
from roles.serve.transaction import UndeclaredServer, holds

CUT_OFF = "a run was cut off while it changed them together"


@dataclass(frozen=True)
class RunningServer:
    """What a server has now: its port, its backend, the spec that runs, and the bytes that it holds, by place."""

    port: int | None = None
    backend: str = ""
    spec: str = ""
    holds: Mapping[str, int] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    """The folders of models that its last start read."""


@dataclass(frozen=True)
class Member:
    """One of the servers that change together, and the change that it would be alone."""

    instance: InstancePlan
    change: Change

    @property
    def given(self) -> SwitchInput:
        """Return the input of its switch."""
        assert isinstance(self.change.how, RunVerb)
        assert isinstance(self.change.how.given, SwitchInput)
        return self.change.how.given


def cut_off_changes(state: HostState) -> list[Change]:
    """Return what ends an interrupted exchange: the previous servers are restored, unless all of it was done."""
    names = ServeState.of(state).cut_off
    if not names:
        return []
    return [Change("restart", "server", names, (CUT_OFF,), RunVerb("serve.exchange.end", CutOffInput(names)))]


def exchanging(plan: Plan, state: HostState) -> dict[str, tuple[InstancePlan, ...]]:
    """Return, by name, the instances that an instance must change together with, itself among them."""
    now = {name: _now(name, state) for name in (*state.servers.units, *state.servers.containers)}
    going = {each.service: each for each in going_of(plan, state)}
    group = {name: {name} for name in (*(each.service for each in plan.instances), *going)}
    paused = {each.name for each in plan.instances if state.pause_left(each.service) is not None}
    for taker, giver in _taken_over(plan, now, going, paused):
        joined = group[taker] | group[giver]
        for each in joined:
            group[each] = joined
    found = {}
    for instance in plan.instances:
        members = tuple(each for each in plan.instances if each.service in group[instance.service])
        if len(members) > 1:
            found[instance.name] = members
    return found


def _now(service: str, state: HostState) -> RunningServer:
    unit, container = state.servers.units.get(service), state.servers.containers.get(service)
    serving = state.servers.serving.get(service, ServingState())
    waits = unit.waits_for if unit and unit.active == "activating" else None
    if unit and unit.active in ("active", "activating"):
        backend, spec = "systemd", unit.spec
    elif container and container.status == "running":
        backend, spec = "compose", container.spec
    else:
        return RunningServer()
    holding = serving.holding.room if serving.holding and serving.holding.spec == spec else {}
    folders = frozenset(serving.loaded.folders) if serving.loaded else frozenset[str]()
    return RunningServer(held(state).get(service, waits), backend, spec, holding, folders)


def _taken_over(
    plan: Plan, now: Mapping[str, RunningServer], going: Mapping[str, UndeclaredServer], paused: Set[str]
) -> Iterator[tuple[str, str]]:
    """Yield the services of which the first is to have what the second has now, and gives up in this run.

    Servers that are paused take nothing.
    """
    planned = {each.service: each for each in plan.instances}
    leaving = {name: has for name, has in now.items() if name in going or _changes(planned.get(name), has)}
    for taker in plan.instances:
        was = now.get(taker.service, RunningServer())
        if taker.name in paused or not _changes(taker, was):
            continue
        scarce = _scarce(taker, now)
        for name, has in leaving.items():
            giver = planned.get(name)
            if giver is not taker and (
                has.port == taker.endpoint.port
                or _gives_room(scarce, giver, has)
                or (giver and (_swap_backends(taker, was, giver, has) or _takes_model(taker, was, giver, has)))
            ):
                yield taker.service, name


def _changes(instance: InstancePlan | None, has: RunningServer) -> bool:
    return instance is not None and instance.spec != has.spec


def _swap_backends(taker: InstancePlan, was: RunningServer, giver: InstancePlan, has: RunningServer) -> bool:
    moves = was.backend not in ("", taker.backend)
    return moves and (was.backend, has.backend) == (giver.backend, taker.backend)


def _takes_model(taker: InstancePlan, was: RunningServer, giver: InstancePlan, has: RunningServer) -> bool:
    """Return whether one is to serve the model that the other serves now, and will not."""
    folders = frozenset(taker.server.folders)
    return has.folders == folders != was.folders and frozenset(giver.server.folders) != folders


def _scarce(taker: InstancePlan, now: Mapping[str, RunningServer]) -> list[str]:
    """Return the places where an instance has no room next to what the other servers hold now."""
    others = [has for name, has in now.items() if name != taker.service]
    sizes = {each.where: each.size for each in taker.memory.holds} if taker.memory else {}
    return [
        place
        for place, need in holds(taker).items()
        if need + sum(has.holds.get(place, 0) for has in others) + (SYSTEM_RAM if place == RAM else MARGIN)
        > sizes[place]
    ]


def _gives_room(scarce: Sequence[str], giver: InstancePlan | None, has: RunningServer) -> bool:
    then = holds(giver) if giver else {}
    return any(has.holds.get(place, 0) > then.get(place, 0) for place in scarce)


def exchange_change(
    plan: Plan, members: Sequence[Member], going: Sequence[UndeclaredServer], state: HostState
) -> Change:
    """Return the change of several servers: it changes all of them or none."""
    names = comma_list(each.instance.service for each in members)
    given = ExchangeInput(
        names=names,
        members=tuple(each.given for each in members),
        replaced=tuple(ReplacedServer(each.name, each.service, each.port) for each in going),
        ports=tuple(sorted({each.endpoint.port for each in plan.instances} | set(held(state).values()))),
    )
    seconds = sum(each.change.away.seconds for each in members if each.change.away)
    first, *rest = (_together(each.change, members, seconds) for each in members)
    how = RunVerb("serve.exchange.run", given, f"changing {names} together")
    return replace(first, how=how, together=tuple(rest))


def _together(change: Change, members: Sequence[Member], seconds: float) -> Change:
    others = comma_list(each.instance.service for each in members if each.instance.service != change.name)
    away = replace(change.away, seconds=seconds, beside=False) if change.away else None
    return replace(change, reasons=(*change.reasons, f"it changes together with {others}"), away=away)
