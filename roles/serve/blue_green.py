"""Blue-green switches: if both versions fit, the candidate starts side by side at a port of its own."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from ipaddress import ip_address

from llamaherd.host.state import HostState
from llamaherd.layout import CANDIDATES, LIBEXEC, RUNTIME_UNITS, candidate_service
from llamaherd.memory.instances import MARGIN, SYSTEM_RAM
from llamaherd.onhost.servers import ServingState
from llamaherd.plan import RAM, Holds, InstancePlan, Plan, TextFile
from llamaherd.plan.backends import render_project, render_unit
from llamaherd.plan.instance import ServerSpec
from llamaherd.render import render
from llamaherd.role.changes import written_files
from llamaherd.text.quoting import Written, url_host
from roles.serve.onhost.model import CandidateInput
from roles.serve.transaction import proof_facts, proof_prompt, proven, room_with_old

_PORTS = range(61_000, 65_000)
"""Where such a server listens: above the ports that Linux gives away by itself (ip_local_port_range, 32768 to 60999),
and below the last ones, which programs like."""

_SPARE_SECONDS = 600
"""Seconds beyond two loads and two drains: the candidate ends by itself then."""


def fits_side_by_side(plan: Plan, instance: InstancePlan, state: HostState) -> bool:
    """Return whether a second server has room next to all planned ones, and can replace the running one."""
    # By the plan alone: the host is queried once more. Nothing fits where it is not certain what is taken.
    running = _running(instance, state)
    serving = state.servers.serving.get(instance.service, ServingState())
    if running in (None, instance.spec) or serving.hangs or not proven(instance, state):
        return False
    if instance.memory is None or instance.memory.doubts or instance.server.one_card or instance.members:
        return False
    return all(
        own.total + sum(_held(each, own.where) for each in plan.instances) + _spare(own.where) <= own.size
        for own in instance.memory.holds
    ) and all(each.memory is not None for each in plan.instances)


def _running(instance: InstancePlan, state: HostState) -> str | None:
    """Return the spec that serves by the declared backend, at the declared port; None if nothing does."""
    found = state.servers.units.get(instance.service) if instance.backend == "systemd" else None
    if found and (found.active, found.port) == ("active", instance.endpoint.port):
        return found.spec
    boxed = state.servers.containers.get(instance.service) if instance.backend == "compose" else None
    if boxed and (boxed.health, boxed.port) == ("healthy", instance.endpoint.port):
        return boxed.spec
    return None


def _held(instance: InstancePlan, where: str) -> int:
    holds: tuple[Holds, ...] = instance.memory.holds if instance.memory else ()
    held: int = sum(each.total for each in holds if each.where == where)
    return held


def _spare(where: str) -> int:
    return SYSTEM_RAM if where == RAM else MARGIN


def candidate_input(plan: Plan, instance: InstancePlan) -> CandidateInput:
    """Return what starts a second server, and leads connections to it meanwhile."""
    server = instance.server
    port = _port(plan, instance)
    room = room_with_old(instance)
    assert room is not None  # it fits by the plan
    return CandidateInput(
        port=port,
        files=written_files(candidate_files(instance, candidate_spec(server, port))),
        question=_candidate_prompt(instance, port),
        ram=room.ram,
        gpus=room.gpus,
        listen=instance.endpoint.listen,
        for_others=instance.endpoint.for_others,
        rule=redirect_rule(server.endpoint.listen, server.endpoint.port, port),
        group=server.user,
    )


def redirect_rule(listens: str, port: int, to: int) -> str:
    """Return nftables' rule that leads new connections to another port; existing ones stay."""
    listen = ip_address(listens)
    ip = "ip" if listen.version == 4 else "ip6"
    if listen.is_unspecified:
        at, there = f"{'meta nfproto ipv4 ' * (ip == 'ip')}fib daddr type local", f"redirect to :{to}"
    else:
        at, there = f"{ip} daddr {listen}", f"dnat {ip} to {url_host(str(listen))}:{to}"
    return f"{at} tcp dport {port} tcp flags & (fin | syn | rst | ack) == syn {there}"


def _port(plan: Plan, instance: InstancePlan) -> int:
    """Return the candidate's port: the same each time, and no declared one."""
    declared = {each.endpoint.port for each in plan.instances}
    first = zlib.crc32(instance.name.encode()) % len(_PORTS)
    turned: tuple[int, ...] = (*_PORTS[first:], *_PORTS[:first])
    return next(port for port in turned if port not in declared)


def candidate_spec(server: ServerSpec, port: int) -> ServerSpec:
    """Return the same server at another port, under another name: for the time of a switch."""
    was, there = f":{server.endpoint.port}/", f":{port}/"
    return server.model_copy(
        update={
            "service": candidate_service(server.name),
            "arguments": tuple(_with_port(server.arguments, port)),
            "endpoint": server.endpoint.model_copy(update={"port": port}),
            "health": server.health.model_copy(
                update={"probe": tuple(word.replace(was, there) for word in server.health.probe)}
            ),
        }
    )


def _with_port(arguments: tuple[str, ...], port: int) -> Iterator[str]:
    before = ""
    for word in arguments:
        yield str(port) if before == "--port" else word
        before = word


def _candidate_prompt(instance: InstancePlan, port: int) -> dict[str, object]:
    """Return the candidate's prompt."""
    # Its speed shows nothing while another server works next to it.
    elsewhere = instance.model_copy(update={"server": candidate_spec(instance.server, port)})
    return {**proof_prompt(elsewhere), **proof_facts(elsewhere), "floor": 0}


def candidate_files(instance: InstancePlan, server: ServerSpec) -> list[TextFile]:
    """Return the candidate's unit, and its Compose file: gone with the next boot."""
    boxed = instance.backend == "compose"
    compose_file = CANDIDATES / f"{instance.name}.yaml"
    text = render(
        "serve/candidate.service.j2",
        s=server,
        unit=Written("" if boxed else render_unit(server, instance.spec).text),
        file=str(compose_file),
        wait=str(LIBEXEC / "wait-healthy"),
        longest=2 * (server.start_seconds + instance.drain) + _SPARE_SECONDS,
        table=server.service,
    )
    files = [TextFile(path=str(RUNTIME_UNITS / f"{server.service}.service"), text=text)]
    if boxed:
        written = render_project(server, instance.spec, restart="no")
        files.append(written.model_copy(update={"path": str(compose_file)}))
    return files
