"""A container that runs, by Docker and by its Compose file: its image, its limits, its walls. Pure.

Somebody may have changed it by `docker update`, or made it from other files or another image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from llamaherd.host.limits import declared_limits, read_limits
from llamaherd.plan import InstancePlan, TextFile
from llamaherd.text.numbers import parse_json
from llamaherd.text.quoting import Written

_HOST = ("Privileged", "ReadonlyRootfs", "NetworkMode", "PidMode", "IpcMode", "CapAdd", "CapDrop", "SecurityOpt")

WALLS_FORMAT = Written(
    'ConfigFiles={{index .Config.Labels "com.docker.compose.project.config_files"}}{{println}}'
    "User={{.Config.User}}{{println}}Mounts=["
    '{{range .Mounts}}{{if eq .Type "bind"}}[{{.RW}},{{json .Source}}],{{end}}{{end}}null]{{println}}'
    + "{{println}}".join(f"{name}={{{{json .HostConfig.{name}}}}}" for name in _HOST)
)
"""For `docker inspect`: lines of name=value."""


def strange_container(planned: InstancePlan, said: Mapping[str, str]) -> Iterator[str]:
    """What is not as planned about a container that is up."""
    if len({said.get("Runs"), said.get("Tagged"), said.get("Made") or said.get("Tagged")}) > 1:
        yield f"{planned.server.image} is another image than it runs, or than we made, or gone: `herd up`"
    if differ := _other_limits(planned.file.text, said):
        yield f"it is not held to what is declared: {', '.join(differ)}"
    if differ := otherwise(planned.file, said):
        yield f"it was made with another {', '.join(differ)} than declared: `herd up`"


def _other_limits(compose: str, said: Mapping[str, str]) -> list[str]:
    """By Docker's names, what it is held to and should not be, or the other way round."""
    if "Limits" not in said:
        return []
    try:
        differ = read_limits(said["Limits"]).items() ^ declared_limits(compose).items()
    except ValueError:
        return ["what Docker says of its limits"]
    return sorted({name for name, _ in differ})


def otherwise(file: TextFile, said: Mapping[str, str]) -> list[str]:
    """By Docker's names, what a container was made with and the one service of its file does not say.

    `ConfigFiles` are those that Compose was given.
    """
    if "User" not in said:
        return []
    service: dict[str, Any] = yaml.safe_load(file.text)["services"]["server"]
    right = {
        "ConfigFiles": said.get("ConfigFiles") == file.path,
        "User": said["User"] == service["user"],
        "Mounts": _mounts(said.get("Mounts", "")) == sorted(_declared_mount(each) for each in service["volumes"]),
        "Privileged": said.get("Privileged") == "false",
        "ReadonlyRootfs": said.get("ReadonlyRootfs") == "true",
        "NetworkMode": (said.get("NetworkMode") == '"host"') == (service.get("network_mode") == "host"),
        "PidMode": said.get("PidMode") != '"host"',
        "IpcMode": said.get("IpcMode") != '"host"',
        "CapAdd": said.get("CapAdd") in ("null", "[]"),
        "CapDrop": said.get("CapDrop") == '["ALL"]',
        "SecurityOpt": "no-new-privileges" in (given := said.get("SecurityOpt", "")) and "unconfined" not in given,
    }
    return [name for name, well in right.items() if not well]


def _mounts(said: str) -> list[tuple[bool, str]]:
    """What of the host it has, and whether it may write to it. The list that Docker prints ends with `null`."""
    try:
        return sorted((bool(writable), str(source)) for writable, source in parse_json(said)[:-1])
    except (ValueError, TypeError):
        return []


def _declared_mount(volume: Mapping[str, Any]) -> tuple[bool, str]:
    return not volume.get("read_only"), str(volume["source"])
