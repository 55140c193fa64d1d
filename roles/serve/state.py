"""Inspect servers: the input of the inspection, the parts of the host's state, and the limits of containers."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import yaml

from llamaherd.host.state import ServersState, StatePart
from llamaherd.onhost.servers import Holder
from llamaherd.plan import InstancePlan, Plan
from roles.serve.onhost.model import InspectedServers, InspectServersInput, PlannedContainer, PlannedImage, PlannedUnit

LIMITS = (
    *("PidsLimit", "Memory", "MemorySwap", "MemoryReservation", "NanoCpus", "CpuShares", "CpuQuota", "CpuPeriod"),
    *("BlkioWeight", "CpusetCpus", "CpusetMems", "RestartPolicy.Name", "RestartPolicy.MaximumRetryCount"),
)
"""Fields of a container's HostConfig: all that `docker update` changes."""


def declared_limits(compose: str) -> dict[str, str]:
    """Return the limits of the one service of a Compose file, by Docker's names."""
    service: dict[str, Any] = yaml.safe_load(compose)["services"]["server"]
    declared = {
        "PidsLimit": service.get("pids_limit"),
        "CpusetCpus": service.get("cpuset"),
        "RestartPolicy.Name": service.get("restart"),
    }
    return {name: str(value) for name, value in declared.items() if value is not None}


@dataclass(frozen=True)
class ServeState(StatePart):
    """Ports, projects and keys of servers, and an exchange that is not finished."""

    holders: Mapping[int, Holder] = field(default_factory=dict)
    """By planned port: the process that holds it and belongs to no server of llamaherd."""
    own_ports: Mapping[int, str] = field(default_factory=dict)
    """By planned port: the unit of llamaherd whose control group contains the process that holds it."""
    projects: Set[str] = frozenset()
    """Names of Compose projects."""
    off_gpus: Set[str] = frozenset()
    """Containers that are healthy and do not use their GPUs: Docker starts containers at boot by itself."""
    keys: Set[str] = frozenset()
    """Names of key files: each is the name of its instance or group."""
    cut_off: str = ""
    """The servers of an exchange that was interrupted; empty if none was."""


def inspection_input(plan: Plan) -> InspectServersInput:
    """Return what to inspect of servers and of all that is compared with the plan."""
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


def state_parts(found: InspectedServers) -> tuple[ServersState, ServeState]:
    """Return the parts of the host's state."""
    servers = ServersState(found.units, found.containers, found.serving, frozenset(found.images), found.closed)
    own = ServeState(
        holders={each.port: each.holder for each in found.ports if not each.unit},
        own_ports={each.port: each.unit for each in found.ports if each.unit},
        projects=frozenset(found.projects),
        off_gpus=frozenset(found.off_gpus),
        keys=frozenset(found.keys),
        cut_off=found.cut_off,
    )
    return servers, own
