"""A container that runs, by Docker and by its Compose file: its image, its limits, its walls. Pure.

Somebody may have changed it by `docker update`, or made it from other files or another image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from llamaherd.host.limits import declared_limits
from llamaherd.plan import InstancePlan, TextFile
from roles.serve.onhost.verified import ContainerFound, ImageFound


def strange_container(planned: InstancePlan, found: ContainerFound, image: ImageFound | None) -> Iterator[str]:
    """Yield how a running container differs from the plan. `image` is the image that its tag names, if built here."""
    if image and len({found.image, image.id, image.made or image.id}) > 1:
        yield f"{planned.server.image} is another image than it runs, or than we made, or gone: `herd up`"
    limits = declared_limits(planned.file.text)
    if differ := sorted({name for name, _ in found.limits.items() ^ limits.items()}):
        yield f"it is not held to what is declared: {', '.join(differ)}"
    if names := otherwise(planned.file, found):
        yield f"it was made with another {', '.join(names)} than declared: `herd up`"


def otherwise(file: TextFile, found: ContainerFound) -> list[str]:
    """By Docker's names, what a container was made with and the one service of its file does not say.

    `ConfigFiles` are those that Compose was given.
    """
    service: dict[str, Any] = yaml.safe_load(file.text)["services"]["server"]
    mounts = sorted((each.source, each.writable) for each in found.mounts)
    right = {
        "ConfigFiles": found.config_files == file.path,
        "User": found.user == service["user"],
        "Mounts": mounts == sorted(_declared_mount(each) for each in service["volumes"]),
        "Privileged": not found.privileged,
        "ReadonlyRootfs": found.read_only,
        "NetworkMode": (found.network == "host") == (service.get("network_mode") == "host"),
        "PidMode": found.pid_mode != "host",
        "IpcMode": found.ipc_mode != "host",
        "CapAdd": not found.added,
        "CapDrop": found.dropped == ("ALL",),
        "SecurityOpt": _has_walls(found.security),
    }
    return [name for name, well in right.items() if not well]


def _has_walls(options: tuple[str, ...]) -> bool:
    """Return whether security options forbid new privileges and disable no protection."""
    given = " ".join(options)
    return "no-new-privileges" in given and "unconfined" not in given


def _declared_mount(volume: Mapping[str, Any]) -> tuple[str, bool]:
    return str(volume["source"]), not volume.get("read_only")
