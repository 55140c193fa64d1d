"""Servers: one restarts if what runs is not what is planned, and for no other reason."""

from __future__ import annotations

from collections.abc import Sequence

from llamaherd.converge.steps import Step, check_arguments, differs, instance_files, put_files
from llamaherd.layout import GPU_CHECK, STARTED, unit_user
from llamaherd.observe import Seen
from llamaherd.planned import InstancePlan, Plan, TextFile
from llamaherd.render import render


def removal_steps(plan: Plan, seen: Seen) -> list[Step]:
    """Stop and forget instances that the inventory no longer has, or has elsewhere."""
    keep = {instance.name for instance in plan.instances}
    units = {unit.removeprefix("llama-") for unit in seen.units} - {i.name for i in plan.of("systemd")}
    containers = {container.removeprefix("llama-") for container in seen.containers}
    projects = (seen.projects | containers) - {i.name for i in plan.of("compose")}
    return [
        Step(
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


def unit_steps(instance: InstancePlan, seen: Seen, key: str | None) -> list[Step]:
    """Make one systemd instance run as planned."""
    changed = [file for file in instance_files(instance, key) if differs(file, seen)]
    unit = seen.units.get(instance.service)
    current = unit and not changed and unit.spec == instance.spec and not outdated(instance, seen)
    if current and unit and (unit.active, unit.enabled, unit.needs_reload) == ("active", "enabled", False):
        return []
    script = render(
        "steps/switch-unit.sh.j2",
        name=instance.service,
        unit=f"{instance.service}.service",
        timeout=instance.load_timeout,
        restart=not current,
        run=unit.run if unit else "",
        spec=instance.spec,
        started=STARTED,
        inputs=instance.inputs,
        cards=[card.at for card in instance.cards],
        check=_check(instance, changed),
        put=put_files(changed),
    )
    return [Step(script, f"starting {instance.service}")]


def project_steps(instance: InstancePlan, seen: Seen, key: str | None) -> list[Step]:
    """Make one compose instance run as planned."""
    changed = [file for file in instance_files(instance, key) if differs(file, seen)]
    container = seen.containers.get(instance.service)
    current = container and not changed and container.spec == instance.spec and not outdated(instance, seen)
    on_cards = instance.service not in seen.off_cards
    if current and on_cards and container and (container.status, container.health) == ("running", "healthy"):
        return []
    script = render(
        "steps/switch-project.sh.j2",
        name=instance.service,
        file=instance.file.path,
        timeout=instance.load_timeout,
        recreate=not current or not on_cards or container is None or container.health == "unhealthy",
        run=container.run if container else "",
        spec=instance.spec,
        started=STARTED,
        inputs=instance.inputs,
        cards=[card.at for card in instance.cards],
        one_card=instance.one_card,
        gpu_check=GPU_CHECK,
        check=_check(instance, changed),
        put=put_files(changed),
    )
    return [Step(script, f"starting {instance.service}")]


def outdated(instance: InstancePlan, seen: Seen) -> list[str]:
    """What an instance that runs was started with, and is something else by now."""
    serving = seen.serving.get(instance.service)
    return serving.changed if serving else []


def _check(instance: InstancePlan, changed: Sequence[TextFile]) -> str:
    """The arguments are asked about when the text that holds them is new, and the engine is one that we built."""
    if instance.build_folder is None or instance.file not in changed:
        return ""
    return check_arguments(instance, instance.build_folder)
