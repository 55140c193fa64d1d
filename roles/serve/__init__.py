"""The role `serve`: run instances as systemd units and Compose projects, as the plan declares them."""

from __future__ import annotations

from collections.abc import Iterator

from llamaherd.host.state import HostState
from llamaherd.plan import InstancePlan, Plan
from llamaherd.role.preflight import PreflightRow, comma_list
from llamaherd.role.role import Inspection, Role, Verification
from roles.serve.container_limits import LIMITS
from roles.serve.describe import describe
from roles.serve.exchange import ExchangeState
from roles.serve.onhost.model import InspectedServers, InspectServersInput, PlannedContainer, PlannedImage, PlannedUnit
from roles.serve.onhost.model import VerifiedServers as Verified
from roles.serve.plan import plan
from roles.serve.ports import addresses_missing, between_holders, ports_taken
from roles.serve.removal import KeysState
from roles.serve.tasks import tasks
from roles.serve.verify import healthy_names, judge_servers, verification_input


def inspection_input(plan: Plan) -> InspectServersInput:
    """Return what to inspect of servers, and of what decides whether they serve as planned."""
    records = {image.tag: image.record for image in plan.images}
    return InspectServersInput(
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


def take_state(state: HostState, found: InspectedServers) -> None:
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


def port_facts(plan: Plan, state: HostState) -> Iterator[PreflightRow]:
    """The ports."""
    if plan.instances:
        ports = sorted(instance.endpoint.port for instance in plan.instances)
        ours = [port for port in ports if port in state.listening]
        yield PreflightRow("ports", f"{comma_list(ours)} in use" if ours else "free", comma_list(ports))


ROLE = Role(
    name="serve",
    summary="Every instance runs as planned, answers, and does so again after a boot.",
    for_instances=True,
    plan=plan,
    files=lambda plan: (
        *(instance.file.path for instance in plan.instances),
        *(instance.key_file for instance in plan.instances if instance.key_file),
    ),
    texts=lambda plan: (instance.file for instance in plan.instances),
    inspection=Inspection("serve.inspection.inspect", inspection_input, InspectedServers, take_state),
    refusals=lambda plan, state: (*addresses_missing(plan, state), *ports_taken(plan, state)),
    facts=port_facts,
    unsettled=between_holders,
    tasks=tasks,
    verification=Verification("serve.verification.verify", verification_input, Verified, healthy_names),
    judge=judge_servers,
    describe=describe,
)
