"""The state of containers and images: `docker update` may have changed them since Docker created them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llamaherd.onhost.clients import query_docker
from llamaherd.onhost.system import System, UnknownStateError
from roles.serve.onhost.verified import ContainerFound, ImageFound, Mount, PlannedImage, VerifyServersInput

_CONTAINER = (
    '{"Status":{{json .State.Status}},"Pid":{{json .State.Pid}},'
    '"Health":{{with .State.Health}}{{json .Status}}{{else}}""{{end}},"Image":{{json .Image}},'
    '"User":{{json .Config.User}},"Labels":{{json .Config.Labels}},"Mounts":{{json .Mounts}},'
    '"HostConfig":{{json .HostConfig}}}'
)
_IMAGE = '{"Id":{{json .Id}},"Size":{{json .Size}}}'
_PUBLISHED = "{{.Names}} {{.Ports}}"
_SOCKET = "/var/run/docker.sock"
_MOST_PUBLISHED = 100


@dataclass(frozen=True)
class DockerFound:
    """The state of Docker: containers by instance, images by tag, and ports that running containers publish."""

    containers: Mapping[str, ContainerFound] = field(default_factory=dict)
    images: Mapping[str, ImageFound] = field(default_factory=dict)
    published: tuple[str, ...] = ()


def find_docker(given: VerifyServersInput, system: System) -> DockerFound:
    """Return containers and images of servers. Raise UnknownStateError if Docker runs and does not respond."""
    planned = {each.name: each.service for each in given.servers if not each.unit}
    containers = {name: _container(service, given.limits, system) for name, service in planned.items()}
    images = {each.tag: _image(each, system) for each in given.images}
    return DockerFound(
        {name: found for name, found in containers.items() if found},
        images,
        _published(system),
    )


def _container(service: str, limits: Sequence[str], system: System) -> ContainerFound | None:
    ended = query_docker(system, "inspect", "--type", "container", "--format", _CONTAINER, service)
    if not ended.ok:
        return None
    try:
        return _read_container(json.loads(ended.out), limits)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise UnknownStateError("Docker") from None


def _read_container(shown: Mapping[str, Any], limits: Sequence[str]) -> ContainerFound:
    """Return a container by a line in our format. Raise ValueError, LookupError, TypeError or AttributeError."""
    host, labels = shown["HostConfig"], shown["Labels"] or {}
    return ContainerFound(
        status=str(shown["Status"]),
        health=str(shown["Health"]),
        restart=str(host["RestartPolicy"]["Name"]),
        spec=str(labels.get("llamaherd.spec", "")),
        pid=str(int(shown["Pid"]) or ""),
        image=str(shown["Image"]),
        config_files=str(labels.get("com.docker.compose.project.config_files", "")),
        user=str(shown["User"]),
        limits={name: text for name in limits if (text := _limit(host, name))},
        mounts=tuple(
            Mount(str(each["Source"]), bool(each["RW"])) for each in shown["Mounts"] or () if each["Type"] == "bind"
        ),
        privileged=bool(host["Privileged"]),
        read_only=bool(host["ReadonlyRootfs"]),
        network=str(host["NetworkMode"]),
        pid_mode=str(host["PidMode"]),
        ipc_mode=str(host["IpcMode"]),
        added=tuple(map(str, host["CapAdd"] or ())),
        dropped=tuple(map(str, host["CapDrop"] or ())),
        security=tuple(map(str, host["SecurityOpt"] or ())),
    )


def _limit(host: Mapping[str, Any], name: str) -> str:
    """Return a limit of a container; empty if it has none."""
    value: Any = host
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value in (None, "", 0, -1) else str(value)


def _image(planned: PlannedImage, system: System) -> ImageFound:
    ended = query_docker(system, "image", "inspect", "--format", _IMAGE, planned.tag)
    made = (system.read(planned.record) or "").strip()
    if not ended.ok:
        return ImageFound("", 0, made)
    try:
        shown = json.loads(ended.out)
        return ImageFound(str(shown["Id"]), int(shown["Size"]), made)
    except (ValueError, LookupError, TypeError, RecursionError):
        raise UnknownStateError("Docker") from None


def _published(system: System) -> tuple[str, ...]:
    if system.entry(_SOCKET) is None:
        return ()
    lines = query_docker(system, "ps", "--format", _PUBLISHED).out.splitlines()
    return tuple(lines[:_MOST_PUBLISHED])
