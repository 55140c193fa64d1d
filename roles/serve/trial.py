"""What is asked about a container before the one that runs is stopped: its file, its image and its arguments."""

from __future__ import annotations

from llamaherd.backends.compose import pull_policy
from llamaherd.plan import InstancePlan
from llamaherd.render import render
from llamaherd.text.quoting import Written, base64_lines


def container_trial(instance: InstancePlan) -> Written:
    """The script that tries a new Compose file.

    The arguments of an engine that was built here, its build is asked about. An image that starts another program than
    llama-server has no quick answer.
    """
    server, image = instance.server, instance.server.image or ""
    return render(
        "serve/try-container.sh.j2",
        name=instance.name,
        trial=f"llamaherd-trial-{instance.name}",
        text=base64_lines(instance.file.text),
        image=image,
        pulled=pull_policy(image) == "missing",
        asks=instance.build is None and not server.command,
        user=server.user,
        folders=server.folders,
        key_file=instance.key_file,
        environment=server.environment,
        arguments=server.arguments,
    )
