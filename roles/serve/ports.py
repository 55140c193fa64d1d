"""Check the ports of servers, and the programs that use them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import ip_address

from llamaherd.host.state import HostState
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.preflight import Refusal
from llamaherd.role.reach import networks
from roles.serve.state import ServeState

DOCKERS_PROXY = "docker-proxy"
"""What holds a container's port before Docker calls the container running, and after it does."""

_HOLDING = frozenset({"running", "paused", "restarting", "removing"})
"""States of containers that hold their ports."""


def held(state: HostState) -> dict[str, int]:
    """Return the port of each service."""
    running = {name: unit.port for name, unit in state.servers.units.items() if unit.active in ("active", "activating")}
    running |= {name: each.port for name, each in state.servers.containers.items() if each.status == "running"}
    return {name: port for name, port in running.items() if port is not None}


def held_by_other(plan: Plan, instance: InstancePlan, state: HostState) -> str | None:
    """Return our server that has an instance's port and is no part of this run."""
    if plan.whole("serve"):
        return None
    others = held(state).keys() - {each.service for each in plan.instances}
    return next((name for name in sorted(others) if held(state)[name] == instance.endpoint.port), None)


def lacks(instance: InstancePlan, plan: Plan, state: HostState, missing: Collection[str]) -> str | None:
    """Return what an instance cannot start without, and is missing; `missing` are incomplete models."""
    if instance.build and state.engines.builds.get(instance.build) not in ("done", "intact"):
        return f"its engine `{instance.engine}` is not built"
    if instance.server.image in {image.tag for image in plan.images} - state.servers.images:
        return f"its image {instance.server.image} is not made"
    for model in plan.models:
        if model.name in missing and model.folder in instance.server.folders:
            return f"its model `{model.name}` is not in the store"
    return None


def between_holders(plan: Plan, state: HostState) -> bool:
    """Return whether a planned port passed between two programs: another run works there just now."""

    def passing(port: int) -> bool:
        holder = ServeState.of(state).holders.get(port)
        return holder is None or (holder.program == DOCKERS_PROXY and not holder.container)

    return any(passing(port) for port in _strange(plan, state))


def _strange(plan: Plan, state: HostState) -> Iterator[int]:
    """Yield planned ports at which no server of ours listens."""
    # Ours is what one of our servers holds now, also one that this run will move or remove, and that is paused.
    units, containers, ports = state.servers.units, state.servers.containers, ServeState.of(state)
    ours = {unit.port for unit in units.values() if unit.active in {"active", "activating", "deactivating"}}
    ours |= {container.port for container in containers.values() if container.status in _HOLDING}
    for instance in plan.instances:
        holder = ports.holders.get(instance.endpoint.port)
        if instance.endpoint.port in ports.own_ports or (holder and holder.container in containers):
            continue
        if instance.endpoint.port in state.system.listening and instance.endpoint.port not in ours:
            yield instance.endpoint.port


def addresses_missing(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Yield addresses that instances listen on, and the host lacks: they could not start."""
    own = {str(each.ip) for each in networks(state.system.addresses)}
    for instance in plan.instances:
        listen = ip_address(instance.endpoint.listen)
        if own and not (listen.is_loopback or listen.is_unspecified or str(listen) in own):
            yield Refusal(
                f"instance `{instance.name}` is to listen on {listen}, which is no address of this host",
                f"it has {', '.join(sorted(own))}: choose one of them, or bring the missing address up",
                "ports",
            )


def ports_taken(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """Yield planned ports that another program uses."""
    strange = set(_strange(plan, state))
    for instance in plan.instances:
        if instance.endpoint.port not in strange:
            continue
        holder = ServeState.of(state).holders.get(instance.endpoint.port)
        port = instance.endpoint.port
        program, help_ = "something else", f"see by what with `ss -ltnp 'sport = :{port}'` and stop that"
        if holder and holder.container:
            program, help_ = f"container {holder.container}", f"stop it (`docker stop {holder.container}`)"
        elif holder:
            program, help_ = f"{holder.program} (process {holder.pid})", "stop that program"
        yield Refusal(
            f"port {port} of instance `{instance.name}` is taken by {program}",
            f"{help_}, or choose another port",
            "ports",
        )
