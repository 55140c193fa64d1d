"""Docker and its Compose, used as they are where they do; and GPUs for containers, by CDI.

Docker is restarted only for what the daemon that runs lacks, and under containers that run only where that is allowed.
"""

from __future__ import annotations

import hashlib

from llamaherd.host.state import HostState
from llamaherd.layout import PINNED
from llamaherd.onhost.document import Secret
from llamaherd.plan import ContainerToolkitPlan, Plan, TextFile
from llamaherd.role.changes import Change, RunVerb, difference, differences, write_on_host, written_files
from llamaherd.role.repositories import repository_changes
from llamaherd.role.way_in import WITHIN, guarded
from roles.container_runtime import daemon
from roles.container_runtime.onhost import UNDO, ConfirmInput, InstallInput, ToolkitInput, WireInput, Within
from roles.container_runtime.state import PACKAGES, DockerState

_STOPPED = "Docker is stopped, and does not start at boot any more"
_LONGEST_INSTALL, _LONGEST_RESTART = 3600, 900
"""Seconds from arming to the end of a script: packages are fetched, or Docker is started and answers."""

_PLUGIN = "docker-compose-plugin"
"""The package of Compose in Docker's own repository, where `docker-ce` is from."""
_CDI_BY_DEFAULT = (28, 3)
"""The first Docker that has CDI switched on without being told (Docker's pages on CDI devices)."""


def docker_changes(plan: Plan, state: HostState) -> list[Change]:
    """Install what is missing of Docker and Compose, and have it run, from every boot on."""
    if plan.runtime is None:
        return []
    docker, planned = DockerState.of(state), plan.runtime
    missing: tuple[str, ...] = ()
    if not docker.there:
        missing = planned.packages
    elif docker.compose < planned.compose:
        missing = (_PLUGIN if docker.origin == "docker-ce" else planned.compose_package,)
    if not missing and docker.active and docker.enabled:
        return _disarmed(docker)
    given = InstallInput(missing, Within(_LONGEST_INSTALL, WITHIN))
    verb = "container_runtime.install"
    if missing:
        lack = "Compose is missing or too old" if docker.there else "there is no Docker"
        how = guarded(verb, given, f"installing {', '.join(missing)}", name=UNDO, undone=_STOPPED)
        return [Change("install", "packages", ", ".join(missing), (lack,), how)]
    idle = "it does not run" if not docker.active else "it does not start at boot"
    how = guarded(verb, given, "starting Docker", name=UNDO, undone=_STOPPED)
    return [Change("start", "service", "docker", (idle,), how)]


def _disarmed(docker: DockerState) -> list[Change]:
    """The login that a run did not get to: without it the host takes back what that run has done."""
    if not docker.armed:
        return []
    why = "an earlier run has changed it, and has not logged in anew since"
    undone = "Docker is as it was before that run"
    how = guarded("container_runtime.confirm", ConfirmInput(), "logging in anew", name=UNDO, undone=undone)
    return [Change("update", "service", "docker", (why,), how)]


def toolkit_changes(plan: Plan, state: HostState) -> list[Change]:
    """NVIDIA's container toolkit, Docker's settings, and a reload or a restart for what the daemon still lacks."""
    if plan.runtime is None or plan.runtime.toolkit is None:
        return []
    toolkit, docker = plan.runtime.toolkit, DockerState.of(state)
    changes: list[Change] = []
    version = _installed(toolkit, docker)
    if version is None or toolkit.repository.sources.path in state.files:
        changes += repository_changes(toolkit.repository, state)
    if version is None:
        (preferences,) = written_files([pins(plan.rig, "@version@")])
        given = ToolkitInput(PACKAGES, toolkit.version or "", preferences)
        says = f"installing NVIDIA's container toolkit {toolkit.version or ''}".rstrip()
        how = RunVerb("container_runtime.install_toolkit", given, says)
        lack = "its packages are not there at one version, which is the planned one"
        changes.append(Change("install", "toolkit", PACKAGES[0], (lack,), how))
    elif why := differences([pins(plan.rig, version)], state):
        put = write_on_host([pins(plan.rig, version)], "writing preferences of apt")
        changes.append(Change("update", "preferences", PINNED, why, put))
    return [*changes, *_wiring_changes(toolkit, docker, state)]


def pins(rig: str, version: str) -> TextFile:
    """What has apt keep the toolkit's packages at one version."""
    text = (
        f"# Written by llamaherd for rig `{rig}`: change the inventory, not this file.\n"
        "# These four go together at one version, and change it together.\n"
        f"Package: {' '.join(PACKAGES)}\nPin: version {version}\nPin-Priority: 1001\n"
    )
    return TextFile(path=PINNED, text=text)


def _wiring_changes(toolkit: ContainerToolkitPlan, docker: DockerState, state: HostState) -> list[Change]:
    before = docker.settings
    merged = merged_settings(docker)
    order = difference(toolkit.order, state)
    enabled = docker.refresh and set(docker.refresh.values()) == {"enabled"}
    why = {
        f"{daemon.PATH} does not have NVIDIA's runtime and CDI": merged != before,
        order: bool(order),
        "what describes GPUs at boot is not enabled": not enabled,
        "the daemon that runs has no CDI": not docker.cdi,
        "the daemon that runs does not know NVIDIA's runtime": daemon.RUNTIME not in docker.runtimes,
        "CDI does not describe all GPUs that containers ask for": not set(toolkit.devices) <= docker.devices,
    }
    reasons = tuple(reason for reason, holds in why.items() if holds)
    if not reasons:
        return []
    given = WireInput(
        path=daemon.PATH,
        before=hashlib.sha256(before).hexdigest() if before is not None else "",
        settings=Secret(merged.decode() if merged != before else ""),
        order=written_files([toolkit.order] if order else []),
        devices=toolkit.devices,
        may_restart=toolkit.restart_docker,
        within=Within(_LONGEST_RESTART, WITHIN),
    )
    undone = f"{daemon.PATH} is as it was, and Docker was restarted"
    how = guarded("container_runtime.wire", given, "giving GPUs to containers", name=UNDO, undone=undone)
    return [Change("update", "service", "docker", reasons, how)]


def _installed(toolkit: ContainerToolkitPlan, docker: DockerState) -> str | None:
    """The version that all four packages have, if it is the one that is wanted."""
    versions = {docker.toolkit.get(package) for package in PACKAGES}
    version = versions.pop()
    if versions or version is None:
        return None
    return version if toolkit.version in (None, version.partition("-")[0]) else None


def merged_settings(docker: DockerState) -> bytes:
    """Docker's settings with ours in them. Raises SettingsError."""
    return daemon.merge(docker.settings, cdi=docker.version < _CDI_BY_DEFAULT or not docker.cdi)
