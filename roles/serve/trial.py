"""What is checked of a container before the running one is stopped: its file, its image and its arguments."""

from __future__ import annotations

from llamaherd.backends.compose import pull_policy
from llamaherd.plan import InstancePlan
from roles.serve.onhost.model import ContainerCheck


def container_check(instance: InstancePlan) -> ContainerCheck:
    """Return the check of a new Compose file.

    The arguments of an engine that was built on the host are checked by its build. An image that starts another program
    than llama-server cannot check its arguments quickly.
    """
    server, image = instance.server, instance.server.image or ""
    return ContainerCheck(
        text=instance.file.text,
        image=image,
        pulled=pull_policy(image) == "missing",
        reads_arguments=instance.build is None and not server.command,
        user=server.user,
        folders=tuple(server.folders),
        key_file=instance.key_file or "",
        environment=dict(server.environment),
        arguments=tuple(server.arguments),
    )
