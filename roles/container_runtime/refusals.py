"""Why Docker cannot serve as it is: one that does not do and is not ours to replace."""

from __future__ import annotations

from dataclasses import replace

from llamaherd.host.state import HostState
from llamaherd.plan import Plan, RuntimePlan
from llamaherd.role.refusal import Refusal
from roles.container_runtime import daemon
from roles.container_runtime.changes import merged_settings
from roles.container_runtime.state import DockerState

_SHOWN = 5
"""Names of containers in one sentence."""


def refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """All of it, in Docker's row."""
    return [replace(problem, about="Docker") for problem in runtime_refusals(plan, state)]


def runtime_refusals(plan: Plan, state: HostState) -> list[Refusal]:
    """A Docker that does not do and is not ours to replace, settings that cannot be read, containers in the way."""
    if plan.runtime is None:
        return []
    docker = DockerState.of(state)
    problems = [*_unfit(plan.runtime, docker), *_masked(docker)]
    toolkit = plan.runtime.toolkit
    if toolkit is None:
        return problems
    try:
        merged_settings(docker)
    except daemon.SettingsError as error:
        problems.append(Refusal(str(error), "correct it, or move it away: Docker does not start with such a file"))
    if not problems and _restarts(docker) and docker.running and not (docker.live_restore or toolkit.restart_docker):
        shown = ", ".join(docker.running[:_SHOWN]) + (" and others" if len(docker.running) > _SHOWN else "")
        problems.append(
            Refusal(
                f"Docker must be restarted once to give GPUs to containers, and these run: {shown}",
                "stop them; or write `restart_docker: true` under `gpus: container_toolkit:`, and they are stopped, "
                "and started again where they have a restart policy; or switch `live-restore` on in daemon.json, "
                "`systemctl reload docker`, and they go on",
            )
        )
    return problems


def _unfit(planned: RuntimePlan, docker: DockerState) -> list[Refusal]:
    wanted = ".".join(map(str, planned.docker))
    if docker.origin == "snap":
        message = "the Docker of this host is a snap, which sees neither GPUs nor our folders"
        return [Refusal(message, "`snap remove docker`, which takes its containers along, and run again")]
    if docker.origin == "podman-docker":
        message = "`docker` is podman-docker on this host, and projects of Docker Compose must run here"
        return [Refusal(message, "`apt-get remove podman-docker`, and run again; Podman itself may stay")]
    if docker.there and docker.version < planned.docker:
        found = ".".join(map(str, docker.version)) or "of an unknown version"
        way = f"install Docker {wanted} or newer, from where it came from; that restarts its containers"
        if docker.origin == "docker.io":
            way = f"`apt-get install {' '.join(planned.packages)}`, if that brings {wanted} or newer; it restarts them"
        return [Refusal(f"the Docker of this host is {found}, and {wanted} or newer is needed", way)]
    if docker.there and docker.compose < planned.compose and docker.origin not in {"docker.io", "docker-ce"}:
        least = ".".join(map(str, planned.compose))
        message = f"the Docker of this host has no Compose of {least} or newer"
        return [Refusal(message, "install its Compose plugin from where Docker came from, and run again")]
    return []


def _masked(docker: DockerState) -> list[Refusal]:
    """Who masked a unit meant it: it is not for us to undo."""
    if not docker.masked:
        return []
    names, temporary = list(docker.masked), [name for name, how in docker.masked.items() if how == "masked-runtime"]
    lasting = [name for name in names if name not in temporary]
    ways = [f"`systemctl unmask {' '.join(lasting)}`"] if lasting else []
    ways += [f"`systemctl unmask --runtime {' '.join(temporary)}`"] if temporary else []
    verb = "is" if len(names) == 1 else "are"
    message = f"{' and '.join(names)} {verb} masked, so that systemd does not start Docker"
    return [Refusal(message, f"{' and '.join(ways)}, then `herd up`; servers with `backend: compose` need Docker")]


def _restarts(docker: DockerState) -> bool:
    """Whether the daemon that runs must be restarted: CDI is switched on only while it starts."""
    return docker.answers and not docker.cdi
