"""Serve's part of a host's state: units, containers and images, what is known of servers, and who holds ports."""

from __future__ import annotations

from llamaherd.host.limits import LIMITS
from llamaherd.host.state import HostState
from llamaherd.plan import InstancePlan, Plan
from roles.serve.exchange import ExchangeState
from roles.serve.keys import KeysState
from roles.serve.onhost.inspected import Found, PlannedContainer, PlannedImage, PlannedUnit, Question


def question(plan: Plan) -> Question:
    """Return what to inspect of servers, and of what decides whether they serve as planned."""
    records = {image.tag: image.record for image in plan.images}
    return Question(
        units=tuple(_unit(each) for each in plan.of("systemd")),
        containers=tuple(_container(each, records) for each in plan.of("compose")),
        images=tuple(PlannedImage(tag, record) for tag, record in records.items()),
        ports=tuple(sorted({instance.endpoint.port for instance in plan.instances})),
        reads=tuple(f"{build.folder}/bin/{target}" for build in plan.builds for target in build.targets),
        stores=tuple(model.folder for model in plan.models),
        limits=LIMITS,
    )


def _unit(instance: InstancePlan) -> PlannedUnit:
    return PlannedUnit(
        service=instance.service,
        inputs=instance.server.inputs,
        variables=instance.variables,
        strange_variables=instance.strange_variables,
        health_path=instance.endpoint.health_path,
        program=instance.server.program or "",
        user=instance.server.user,
        drop_ins=instance.shared_drop_ins,
    )


def _container(instance: InstancePlan, records: dict[str, str]) -> PlannedContainer:
    image = instance.server.image or ""
    return PlannedContainer(
        service=instance.service,
        inputs=instance.server.inputs,
        variables=instance.variables,
        strange_variables=instance.strange_variables,
        health_path=instance.endpoint.health_path,
        image=image,
        image_record=records.get(image, "") if instance.build else "",
        one_process=instance.server.one_process,
        gpus=tuple(card.at for card in instance.server.cards),
        one_gpu=instance.server.one_card,
    )


def take(state: HostState, found: Found) -> None:
    """Add the state of servers to their host's."""
    state.units.update(found.units)
    state.containers.update(found.containers)
    state.serving.update(found.serving)
    state.images.update(found.images)
    state.off_cards.update(found.off_gpus)
    state.closed.extend(found.closed)
    state.projects.update(found.projects)
    for each in found.ports:
        if each.unit:
            state.own_ports[each.port] = each.unit
        else:
            state.holders[each.port] = each.holder
    if found.keys:
        KeysState.within(state).names.update(found.keys)
    if found.cut_off:
        ExchangeState.within(state).cut_off = found.cut_off
