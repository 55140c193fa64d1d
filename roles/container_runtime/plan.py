"""Docker, its Compose, and what gives GPUs to containers. Pure, as all of the plan."""

from __future__ import annotations

from llamaherd.inventory.schema import Rig
from llamaherd.plan import ContainerToolkitPlan, RuntimePlan, TextFile
from llamaherd.plan.devices import cdi_devices
from llamaherd.reference.distributions import COMPOSE_PACKAGES
from llamaherd.render import render
from llamaherd.role.repositories import container_toolkit_repository
from llamaherd.role.role import Planning, PlanPart

DOCKER = (25, 0)
"""The first Docker with `start_interval` (moby's release notes of 25.0.0), which every project of ours has."""

DOCKER_WITH_GPUS = (26, 1)
"""The first that reads what the container toolkit writes about GPUs: CDI 0.7 (its release notes of 1.19.0)."""

COMPOSE = (2, 21)
"""Compose knows `start_interval` from 2.20.2 on (its release notes)."""

ORDER = "/etc/systemd/system/docker.service.d/llamaherd-cards.conf"


def plan(planning: Planning) -> PlanPart:
    """Docker, and the repository of what gives GPUs to containers."""
    gateway = planning.fleet.gateway if planning.fleet else None
    chats = gateway is not None and gateway.chat is not None and gateway.on[0] == planning.rig.rig
    runtime = plan_runtime(planning.rig, chats=chats)
    toolkit = runtime.toolkit if runtime else None
    return PlanPart(repositories=(toolkit.repository,) if toolkit else (), fields={"runtime": runtime})


def plan_runtime(rig: Rig, *, chats: bool = False) -> RuntimePlan | None:
    """What a rig's containers need; None where no instance is one, and neither is the page that people chat on."""
    instances = [each for each in rig.instances.values() if each.backend == "compose"]
    if not instances and not chats:
        return None
    packages = COMPOSE_PACKAGES[rig.host.os]
    on_gpus = [each for each in instances if each.on]
    return RuntimePlan(
        packages=packages,
        compose_package=next(package for package in packages if "compose" in package),
        docker=DOCKER_WITH_GPUS if on_gpus else DOCKER,
        compose=COMPOSE,
        toolkit=_toolkit(rig, sorted({device for each in on_gpus for device in cdi_devices(rig, each)})),
    )


def _toolkit(rig: Rig, devices: list[str]) -> ContainerToolkitPlan | None:
    if rig.gpus is None or not devices:
        return None
    declared = rig.gpus.container_toolkit
    return ContainerToolkitPlan(
        version=declared.version,
        repository=container_toolkit_repository(rig),
        devices=tuple(devices),
        order=TextFile(path=ORDER, text=render("container_runtime/docker-cards.conf.j2", rig=rig.rig)),
        restart_docker=declared.restart_docker,
    )
