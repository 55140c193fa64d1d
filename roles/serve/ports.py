"""Ports that change hands: whoever holds one that another instance is to have is stopped before that one starts."""

from __future__ import annotations

from collections.abc import Collection

from llamaherd.converge.steps import RunScript
from llamaherd.host.state import HostState
from llamaherd.plan import InstancePlan, Plan
from llamaherd.text.render import render


def handover_steps(plan: Plan, seen: HostState, staying: Collection[str] = ()) -> list[RunScript]:
    """Stop the holders of ports that others are to have; each starts again when it is its turn.

    A cycle of them could be entered nowhere else. Those that are `staying` as they are take nothing over.
    """
    declared = {instance.service for instance in plan.instances}
    holders = {port: service for service, port in _held(seen).items() if service in declared}
    return [
        RunScript(
            render(
                "steps/stop-instance.sh.j2",
                name=holder,
                unit=holder in seen.units,
                container=holder in seen.containers,
                port=taker.endpoint.port,
                taker=taker.service,
            )
        )
        for taker in plan.instances
        if taker.name not in staying
        for holder in (holders.get(taker.endpoint.port, taker.service),)
        if holder != taker.service
    ]


def _held(seen: HostState) -> dict[str, int]:
    """By service, the port that it has."""
    running = {name: unit.port for name, unit in seen.units.items() if unit.active in ("active", "activating")}
    running |= {name: each.port for name, each in seen.containers.items() if each.status == "running"}
    return {name: port for name, port in running.items() if port is not None}


def lacks(instance: InstancePlan, plan: Plan, seen: HostState, missing: Collection[str]) -> str | None:
    """What an instance cannot be started without, and is not there; `missing` are models that are not whole."""
    if instance.build and seen.builds.get(instance.build) not in ("done", "intact"):
        return f"its engine `{instance.engine}` is not built"
    if instance.server.image in {image.tag for image in plan.images} - seen.images:
        return f"its image {instance.server.image} is not made"
    for model in plan.models:
        if model.name in missing and (model.name == instance.model or model.folder == instance.draft_folder):
            return f"its model `{model.name}` is not in the store"
    return None
