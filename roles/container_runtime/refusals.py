"""Docker and its Compose, used as they are where they do; and cards for containers, by CDI.

Docker is restarted only for what the daemon that runs lacks, and under containers that run only where that is allowed.
"""

from __future__ import annotations

import hashlib

from llamaherd.converge import daemon
from llamaherd.converge.disks import Refusal
from llamaherd.converge.packages import LOCK_SECONDS, install
from llamaherd.converge.repositories import repository_steps
from llamaherd.converge.steps import RunScript, differs, put_files
from llamaherd.host.looks.docker import PACKAGES, DockerState
from llamaherd.host.state import HostState
from llamaherd.layout import PINNED
from llamaherd.plan import ContainerToolkitPlan, Plan, RuntimePlan, TextFile
from llamaherd.text.quoting import base64_lines
from llamaherd.text.render import render

BACKUP = ".before-llamaherd"
"""Behind the name of Docker's settings: as they were before we first changed them."""

_PLUGIN = "docker-compose-plugin"
"""The package of Compose in Docker's own repository, where `docker-ce` is from."""
_CDI_BY_DEFAULT = (28, 3)
"""The first Docker that has CDI switched on without being told (Docker's pages on CDI devices)."""
_SHOWN = 5
"""Names of containers in one sentence."""


def runtime_refusals(plan: Plan, seen: HostState) -> list[Refusal]:
    """A Docker that does not do and is not ours to replace, settings that cannot be read, containers in the way."""
    if plan.runtime is None:
        return []
    docker = seen.docker
    problems = [*_unfit(plan.runtime, docker), *_masked(docker)]
    toolkit = plan.runtime.toolkit
    if toolkit is None:
        return problems
    try:
        _merged(docker)
    except daemon.SettingsError as error:
        problems.append(Refusal(str(error), "correct it, or move it away: Docker does not start with such a file"))
    if not problems and _restarts(docker) and docker.running and not (docker.live_restore or toolkit.restart_docker):
        shown = ", ".join(docker.running[:_SHOWN]) + (" and others" if len(docker.running) > _SHOWN else "")
        problems.append(
            Refusal(
                f"Docker must be restarted once to give cards to containers, and these run: {shown}",
                "stop them; or write `restart_docker: true` under `gpus: container_toolkit:`, and they are stopped, "
                "and started again where they have a restart policy; or switch `live-restore` on in daemon.json, "
                "`systemctl reload docker`, and they go on",
            )
        )
    return problems


def engine_steps(plan: Plan, seen: HostState) -> list[RunScript]:
    """Install what is missing of Docker and Compose, and have it run, from every boot on."""
    if plan.runtime is None:
        return []
    docker, planned = seen.docker, plan.runtime
    missing: tuple[str, ...] = ()
    if not docker.there:
        missing = planned.packages
    elif docker.compose < planned.compose:
        missing = (_PLUGIN if docker.origin == "docker-ce" else planned.compose_package,)
    if not missing and docker.active and docker.enabled:
        return []
    script = render("steps/docker.sh.j2", install=install(missing) if missing else "")
    return [RunScript(script, f"installing {', '.join(missing)}" if missing else "starting Docker")]


def toolkit_steps(plan: Plan, seen: HostState) -> list[RunScript]:
    """NVIDIA's container toolkit, Docker's settings, and a reload or a restart for what the daemon still lacks."""
    if plan.runtime is None or plan.runtime.toolkit is None:
        return []
    toolkit, docker = plan.runtime.toolkit, seen.docker
    steps: list[RunScript] = []
    version = _installed(toolkit, docker)
    if version is None or toolkit.repository.sources.path in seen.files:
        steps += repository_steps(toolkit.repository, seen)
    if version is None:
        script = render(
            "steps/container-toolkit.sh.j2",
            packages=PACKAGES,
            version=toolkit.version or "",
            preferences=PINNED,
            pins=pins(plan.rig, "@version@").text,
            wait=LOCK_SECONDS,
        )
        steps.append(RunScript(script, f"installing NVIDIA's container toolkit {toolkit.version or ''}".rstrip()))
    elif differs(pins(plan.rig, version), seen):
        steps.append(RunScript(put_files([pins(plan.rig, version)])))
    return [*steps, *_wiring_steps(toolkit, docker, seen)]


def pins(rig: str, version: str) -> TextFile:
    """What has apt keep the toolkit's packages at one version."""
    text = (
        f"# Written by llamaherd for rig `{rig}`: change the inventory, not this file.\n"
        "# These four go together at one version, and change it together.\n"
        f"Package: {' '.join(PACKAGES)}\nPin: version {version}\nPin-Priority: 1001\n"
    )
    return TextFile(path=PINNED, text=text)


def _wiring_steps(toolkit: ContainerToolkitPlan, docker: DockerState, seen: HostState) -> list[RunScript]:
    before = _content(docker)
    merged = _merged(docker)
    order = [toolkit.order] if differs(toolkit.order, seen) else []
    enabled = docker.refresh and set(docker.refresh.values()) == {"enabled"}
    lacks = not docker.cdi or daemon.RUNTIME not in docker.runtimes
    described = set(toolkit.devices) <= docker.devices
    if merged == before and not order and enabled and not lacks and described:
        return []
    script = render(
        "steps/docker-cards.sh.j2",
        path=daemon.PATH,
        backup=BACKUP,
        before=hashlib.sha256(before).hexdigest() if before is not None else "",
        content=base64_lines(merged) if merged != before else "",
        order=put_files(order),
        devices=toolkit.devices,
        may_restart=toolkit.restart_docker,
    )
    return [RunScript(script, "giving cards to containers")]


def _unfit(planned: RuntimePlan, docker: DockerState) -> list[Refusal]:
    wanted = ".".join(map(str, planned.docker))
    if docker.origin == "snap":
        message = "the Docker of this host is a snap, which sees neither cards nor our folders"
        return [Refusal(message, "`snap remove docker`, which takes its containers along, and run again")]
    if docker.origin == "podman-docker":
        message = "`docker` is podman-docker on this host, and projects of Docker Compose are to run here"
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


def _installed(toolkit: ContainerToolkitPlan, docker: DockerState) -> str | None:
    """The version that all four packages have, if it is the one that is wanted."""
    versions = {docker.toolkit.get(package) for package in PACKAGES}
    version = versions.pop()
    if versions or version is None:
        return None
    return version if toolkit.version in (None, version.partition("-")[0]) else None


def _merged(docker: DockerState) -> bytes:
    return daemon.merge(_content(docker), cdi=docker.version < _CDI_BY_DEFAULT or not docker.cdi)


def _content(docker: DockerState) -> bytes | None:
    return docker.settings.content if docker.settings else None
