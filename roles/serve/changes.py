"""Servers: one restarts if what runs is not what is planned, and for no other reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llamaherd.converge.steps import RunScript, check_arguments, differs, instance_files, put_files, reads_otherwise
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.limits import declared_limits
from llamaherd.host.looks.serving import ServingState
from llamaherd.host.state import HostState
from llamaherd.layout import GPU_CHECK, SET_ASIDE, STARTED, unit_user
from llamaherd.plan import InstancePlan, Plan, TextFile
from llamaherd.text.render import render


def removal_steps(plan: Plan, seen: HostState) -> list[RunScript]:
    """Stop and forget instances that the inventory no longer has, or has elsewhere."""
    keep = {instance.name for instance in plan.instances}
    units = {unit.removeprefix("llama-") for unit in seen.units} - {i.name for i in plan.of("systemd")}
    # While Compose makes one anew, it has another name.
    containers = {name.removeprefix("llama-") for name in seen.containers if name.startswith("llama-")}
    projects = (seen.projects | containers) - {i.name for i in plan.of("compose")}
    return [
        RunScript(
            render(
                "steps/remove-instance.sh.j2",
                name=name,
                user=unit_user(name),
                unit=name in units,
                project=name in projects,
                forget_key=name not in keep,
            ),
            f"removing {name}",
        )
        for name in sorted(units | projects)
    ]


def unit_steps(instance: InstancePlan, seen: HostState, key: str | None) -> list[RunScript]:
    """Make one systemd instance run as planned. Raises UserError where what others wrote for many units forbids it."""
    changed = [file for file in instance_files(instance, key) if differs(file, seen)]
    unit, serving = seen.units.get(instance.service), seen.serving.get(instance.service, ServingState())
    if serving.shared:
        raise _shared(instance, serving.shared)
    if serving.given_to_all:
        raise _given_to_all(instance, serving.given_to_all)
    current = unit and not _rewritten(changed, seen) and unit.spec == instance.spec and not outdated(instance, seen)
    settled = unit and (unit.active, unit.enabled, unit.needs_reload) == ("active", "enabled", False)
    if current and settled and not changed and not serving.foreign:
        return []
    script = render(
        "steps/switch-unit.sh.j2",
        name=instance.service,
        unit=f"{instance.service}.service",
        timeout=instance.server.start_seconds,
        port=instance.endpoint.port,
        restart=not current,
        run=unit.run if unit else "",
        hangs=serving.hangs,
        foreign=serving.foreign,
        aside=SET_ASIDE,
        spec=instance.spec,
        started=STARTED,
        inputs=instance.server.inputs,
        cards=[card.at for card in instance.server.cards],
        check=_check(instance, changed),
        put=put_files(changed),
    )
    return [RunScript(script, f"starting {instance.service}")]


def project_steps(instance: InstancePlan, seen: HostState, key: str | None) -> list[RunScript]:
    """Make one compose instance run as planned."""
    changed = [file for file in instance_files(instance, key) if differs(file, seen)]
    container = seen.containers.get(instance.service)
    limited = container and container.limits != declared_limits(instance.file.text)
    current = container and container.spec == instance.spec and not outdated(instance, seen)
    current = current and not _rewritten(changed, seen) and not limited
    on_cards = instance.service not in seen.off_cards
    # Another run may be making it just now: nothing is wrong with it but that its record is not written yet.
    half_made = container and container.spec == instance.spec and not limited and on_cards
    half_made = half_made and not _rewritten(changed, seen) and not _wrong_itself(instance, seen)
    if (
        current
        and not changed
        and on_cards
        and container
        and (container.status, container.health) == ("running", "healthy")
    ):
        return []
    script = render(
        "steps/switch-project.sh.j2",
        name=instance.service,
        file=instance.file.path,
        timeout=instance.server.start_seconds,
        port=instance.endpoint.port,
        recreate=not current or not on_cards or container is None or container.health == "unhealthy",
        paused=container is not None and container.status == "paused",
        hangs=serving.hangs if (serving := seen.serving.get(instance.service)) else "",
        run=container.run if container and not half_made else "",
        spec=instance.spec,
        started=STARTED,
        inputs=instance.server.inputs,
        cards=[card.at for card in instance.server.cards],
        one_card=instance.server.one_card,
        gpu_check=GPU_CHECK,
        check=_check(instance, changed),
        put=put_files(changed),
    )
    return [RunScript(script, f"starting {instance.service}")]


def well(plan: Plan, seen: HostState) -> list[str]:
    """The instances that serve on their own host."""

    def serves(instance: InstancePlan) -> bool:
        unit, container = seen.units.get(instance.service), seen.containers.get(instance.service)
        if instance.backend == "systemd":
            return unit is not None and unit.active == "active"
        return container is not None and (container.status, container.health) == ("running", "healthy")

    return [instance.name for instance in plan.instances if serves(instance)]


def outdated(instance: InstancePlan, seen: HostState) -> list[str]:
    """Why what runs is not what would be started now, or would have to be started anew all the same."""
    serving = seen.serving.get(instance.service, ServingState())
    why = [f"{path} has changed since it was started" for path in serving.changed]
    return [*why, *_wrong_itself(instance, seen)]


def _wrong_itself(instance: InstancePlan, seen: HostState) -> list[str]:
    """What is wrong with the process that runs, whatever is recorded of its start."""
    serving = seen.serving.get(instance.service, ServingState())
    why = []
    if serving.argv not in ("", instance.command_line):
        why.append("its arguments are not the declared ones")
    if serving.replaced:
        why.append(f"it runs another program than {serving.replaced}")
    if serving.user:
        why.append(f"it runs as user {serving.user}, not as {instance.server.user}")
    if serving.groups:
        why.append(f"it is in groups of others: {serving.groups}")
    if serving.variables:
        why.append(f"it has other variables than the declared ones: {serving.variables}")
    if serving.hangs:
        why.append(serving.hangs)
    return why


def _rewritten(changed: Sequence[TextFile], seen: HostState) -> bool:
    """Whether one of these files holds another text than the server was started from."""
    return any(reads_otherwise(file, seen) for file in changed)


def _shared(instance: InstancePlan, drop_ins: Mapping[str, str]) -> UserError:
    path, keys = next(iter(drop_ins.items()))
    return UserError(
        f"{path} sets {keys.replace(' ', ', ')} for {instance.service}.service, and for units that are not ours",
        "take that out of the file, or move it away; then `systemctl daemon-reload` and `herd up`, which goes on here",
    )


def _given_to_all(instance: InstancePlan, names: str) -> UserError:
    return UserError(
        f"systemd gives {names.replace(' ', ', ')} to all its units, and so to {instance.service}.service",
        f"`systemctl unset-environment {names}`, or take it out of `DefaultEnvironment=` in /etc/systemd/system.conf; "
        "then `herd up`, which goes on here",
    )


def _check(instance: InstancePlan, changed: Sequence[TextFile]) -> str:
    """The arguments are asked about when the text that holds them is new, and the engine is one that we built."""
    if instance.build_folder is None or instance.file not in changed:
        return ""
    return check_arguments(instance, instance.build_folder)
