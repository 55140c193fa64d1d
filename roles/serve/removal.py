"""Remove servers that are no longer declared, and unused keys. A removed server serves until its replacements do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from llamaherd.host.state import HostState
from llamaherd.inventory.schema import DRAIN_SECONDS
from llamaherd.layout import unit_user
from llamaherd.onhost.servers import ServingState
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.changes import Change, RunVerb
from llamaherd.role.role import Run
from llamaherd.text.quoting import is_word
from roles.serve.onhost.model import KeyRemovalInput, RemovalInput
from roles.serve.ports import held
from roles.serve.state import ServeState
from roles.serve.transaction import UndeclaredServer, attempt_identity, proven, serves

_NOT_DECLARED = ("it is not declared",)


def unused_key_changes(instance: InstancePlan, state: HostState) -> list[Change]:
    """Remove the key of an instance that needs none. It comes after its switch: what serves until then reads it."""
    if instance.key_file or instance.name not in ServeState.of(state).keys:
        return []
    return [_key_removal(instance.name, "its server needs no key any more")]


def stray_key_changes(plan: Plan, state: HostState, others: Sequence[str]) -> list[Change]:
    """Remove keys of which there is no server, unless this run is for others alone. `others` go with their own."""
    if not plan.whole("serve"):
        return []
    known = {*(instance.name for instance in plan.instances), *others}
    return [_key_removal(name, "no server has this name") for name in sorted(ServeState.of(state).keys - known)]


def _key_removal(name: str, why: str) -> Change:
    how = RunVerb("serve.removal.remove_key", KeyRemovalInput(name), f"removing the key of {name}")
    return Change("remove", "key", name, (why,), how)


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
            RunVerb("serve.removal.remove", _removal(each, declared=each.name in declared), f"removing {each.name}"),
        )
        for each in undeclared_parts(plan, state)
        if (_has_come(declared[each.name], state) if each.name in declared else not stay)
    ]


def _removal(going: UndeclaredServer, *, declared: bool) -> RemovalInput:
    return RemovalInput(
        name=going.name,
        service=going.service,
        user=unit_user(going.name),
        unit=going.unit,
        container=going.container,
        key=not declared,
        drain_seconds=DRAIN_SECONDS,
    )


def undeclared_parts(plan: Plan, state: HostState) -> Iterator[UndeclaredServer]:
    """Yield servers that exist and are not declared."""
    units = {unit.removeprefix("llama-") for unit in state.servers.units} - {i.name for i in plan.of("systemd")}
    # While Compose makes one anew, it has another name.
    containers = {name.removeprefix("llama-") for name in state.servers.containers if name.startswith("llama-")}
    projects = (ServeState.of(state).projects | containers) - {i.name for i in plan.of("compose")}
    for name in sorted(filter(is_word, units | projects)):  # `herd` writes no other name
        yield UndeclaredServer(name, name in units, name in projects)


def _has_come(instance: InstancePlan, state: HostState) -> bool:
    """Return whether the planned version of an instance serves, by the declared backend."""
    if instance.backend == "systemd":
        unit = state.servers.units.get(instance.service)
        come = unit is not None and (unit.active, unit.spec) == ("active", instance.spec)
    else:
        container = state.servers.containers.get(instance.service)
        come = container is not None and (container.health, container.spec) == ("healthy", instance.spec)
    return come and proven(instance, state)


def coming_instances(plan: Plan, state: HostState) -> list[InstancePlan]:
    """Return the instances without a running server that has responded to a prompt, and without a pause."""
    return [
        each
        for each in plan.instances
        if not (serves(each, state) and proven(each, state)) and state.pause_left(each.service) is None
    ]


def removals_after(plan: Plan, serving: Sequence[InstancePlan], state: HostState, run: Run) -> list[Change]:
    """Return the removals that follow when these instances serve: of the last one, if none has failed."""
    new = coming_instances(plan, state)
    failed = run.failed or any(_refused(each, state) for each in new if each not in serving)
    if failed or not new or new[-1] not in serving:
        return []
    return [each for each in removal_changes(plan, state) if each.reasons == _NOT_DECLARED]


def _refused(instance: InstancePlan, state: HostState) -> bool:
    refused = state.servers.serving.get(instance.service, ServingState()).refused
    return refused is not None and refused.tried == attempt_identity(instance)


def going_of(plan: Plan, state: HostState) -> list[UndeclaredServer]:
    """Return the servers that wait for those that come: they are not declared any more."""
    if not coming_instances(plan, state) or not plan.whole("serve"):
        return []
    declared = {each.name for each in plan.instances}
    return [each for each in undeclared_parts(plan, state) if each.name not in declared]


def replaced_servers(plan: Plan, instance: InstancePlan, state: HostState) -> tuple[UndeclaredServer, ...]:
    """Return the servers that wait for the new ones, from the view of an instance."""
    ports = held(state)
    waiting = {name: unit.waits_for for name, unit in state.servers.units.items()}
    return tuple(
        replace(
            each,
            port=ports.get(each.service, waiting.get(each.service)) == instance.endpoint.port,
            serves=each.service in ports,
        )
        for each in going_of(plan, state)
    )
