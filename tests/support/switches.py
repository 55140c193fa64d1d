"""Switches of played hosts: what a run decides from what such a host is, and runs until nothing is left to do."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.state import FileState, HostState
from llamaherd.onhost.document import decode, dump, parse_document
from llamaherd.onhost.servers import ContainerState, Refused, ServingState, UnitState
from llamaherd.onhost.system import FailedError
from llamaherd.plan import RAM, Estimate, Holds, InstancePlan, Plan
from llamaherd.plan.backends import container_limits
from llamaherd.role.changes import RunVerb
from roles.serve.blue_green import candidate_input
from roles.serve.changes import server_changes
from roles.serve.onhost.kept import untried_specs
from roles.serve.onhost.model import SwitchInput
from roles.serve.onhost.switch import switch as run_switch
from roles.serve.transaction import UndeclaredServer
from tests.support.played_host import PlayedHost, Running
from tests.support.rigs import KEY, cpu_rig, planned
from tests.support.states import edited, updated, with_file

MOST_RUNS = 4


def two_plans(name: str, moved: bool = False) -> tuple[Plan, Plan]:
    """Return a plan, and another in which a server has a longer context, or is a container instead of a unit."""
    context = {f"instances/{name}/context": 2048}
    if not moved:
        return planned(cpu_rig()), planned(cpu_rig(), context)
    other = {"chat": "compose", "drafter": "systemd"}[name]
    return planned(cpu_rig()), planned(cpu_rig(), {**context, f"instances/{name}/backend": other})


def instance_of(plan: Plan, name: str) -> InstancePlan:
    """Return an instance of a plan."""
    found = next(each for each in plan.instances if each.name == name)
    holds = Holds(where=RAM, size=8 << 30, weights=1 << 30, kv=0, state=0, compute=0, draft=0)
    memory = Estimate(source="arithmetic", holds=(holds,), resident=1 << 29)
    return found.model_copy(update={"memory": memory})


def observed(host: PlayedHost, instance: InstancePlan) -> HostState:
    """Return what an inspection of a played host finds of one server, and nothing else."""
    seen, service = HostState(), instance.service
    unit, container = host.units.get(service), host.containers.get(service)
    file = f"/etc/systemd/system/{service}.service"
    if file in host.files or (unit and unit.state != "inactive"):
        unit = unit or Running("inactive")
        active = unit.state == "active"
        seen = updated(
            seen,
            units={
                service: UnitState(
                    unit.state,
                    "enabled" if service in host.enabled else "disabled",
                    host.loaded.get(service) != (host.files[file].text if file in host.files else None),
                    str(unit.run),
                    unit.spec if active else "",
                    instance.endpoint.port if active else None,
                    instance.endpoint.port,
                )
            },
        )
    if container:
        health = "healthy" if container.state in ("running", "paused") else "unhealthy"
        seen = updated(
            seen,
            containers={
                service: ContainerState(
                    container.state,
                    health,
                    str(container.run),
                    container.spec,
                    instance.endpoint.port,
                    container_limits(instance.server),
                )
            },
        )
    for path in (instance.file.path, instance.key_file):
        have = host.files.get(path or "")
        if path and have:
            sha256 = hashlib.sha256(have.text.encode()).hexdigest()
            seen = with_file(seen, path, FileState(f"{have.mode:o}", ("0", have.owner), 0, sha256))
    seen = edited(
        seen, projects={each.split("/")[4] for each in host.files if each.startswith("/etc/llamaherd/compose/")}
    )
    return updated(seen, serving={service: _serving(host, instance)})


def _serving(host: PlayedHost, instance: InstancePlan) -> ServingState:
    service = instance.service
    kept = f"/var/lib/llamaherd/kept/{service}"
    refused = (host.read(f"/var/lib/llamaherd/refused/{service}") or "").strip().split("\t")
    return ServingState(
        untried=tuple(sorted(untried_specs(host, kept))),
        beside=f"/run/systemd/system/llamaherd-beside-{instance.name}.service" in host.files,
        refused=Refused(*refused) if len(refused) == 3 else None,
    )


def decided(
    host: PlayedHost, plan: Plan, name: str, *, going: Sequence[UndeclaredServer] = (), retry: bool = False
) -> SwitchInput | None:
    """Return what a run would do to a server, as it travels; None where nothing. Raise UserError for no second try."""
    instance = instance_of(plan, name)
    seen = observed(host, instance)
    candidate = candidate_input(plan, instance) if host.room and _serves_otherwise(host, instance) else None
    found = server_changes(
        instance, seen, KEY if instance.endpoint.key else None, candidate=candidate, going=going, retry=retry
    )
    if not found:
        return None
    how = found[0].how
    assert isinstance(how, RunVerb)
    assert isinstance(how.given, SwitchInput)
    return decode(SwitchInput, parse_document(dump(how.given).encode()))


def _serves_otherwise(host: PlayedHost, instance: InstancePlan) -> bool:
    """Return whether another version serves by the same backend, and has proved itself: see `fits_beside`."""
    running = host.units if instance.backend == "systemd" else host.containers
    each = running.get(instance.service)
    serves = host.running(instance.service)
    untried = untried_specs(host, f"/var/lib/llamaherd/kept/{instance.service}")
    return bool(each and each.spec == serves and serves not in ("", instance.spec, *untried))


def one_run(
    host: PlayedHost, plan: Plan, name: str, *, going: Sequence[UndeclaredServer] = (), retry: bool = False
) -> str:
    """Run once; return why it failed, or nothing. The host may be killed in it."""
    try:
        given = decided(host, plan, name, going=going, retry=retry)
        if given:
            run_switch(given, host, host)
    except (UserError, FailedError) as error:
        return str(error)
    return ""


def settled(host: PlayedHost, plan: Plan, name: str) -> str:
    """Run until a run changes nothing; return why the last one refused. Fail where that does not come to an end."""
    for _ in range(MOST_RUNS):
        steps = host.steps
        why = one_run(host, plan, name)
        if host.steps == steps:
            return why
    raise AssertionError(f"{MOST_RUNS} runs, and still something to do: {why} {host.log[-6:]}")


def serving_host(plan: Plan, name: str, *, room: bool = False) -> PlayedHost:
    """Return a played host on which a server of a plan serves, and is kept."""
    host = PlayedHost({}, room=room, accounts={instance_of(plan, each.name).server.user for each in plan.instances})
    assert one_run(host, plan, name) == ""
    assert host.running(f"llama-{name}") == instance_of(plan, name).spec, host.log
    host.steps = 0
    return host


def copied(host: PlayedHost) -> PlayedHost:
    """Return a copy of a played host."""
    return replace(
        host,
        fates=dict(host.fates),
        files={path: replace(file) for path, file in host.files.items()},
        links=dict(host.links),
        folders=set(host.folders),
        units={name: replace(each) for name, each in host.units.items()},
        enabled=set(host.enabled),
        loaded=dict(host.loaded),
        containers={name: replace(each) for name, each in host.containers.items()},
        accounts=set(host.accounts),
        log=[],
        held=set(),
        seen=None,
    )
