"""A server as a project of Docker Compose."""

from __future__ import annotations

from llamaherd.layout import PROJECTS
from llamaherd.plan.base import TextFile
from llamaherd.plan.server import ServerSpec
from llamaherd.render import render
from llamaherd.text.quoting import sh

CAPABILITIES_DROPPED = ("ALL",)
SECURITY = ("no-new-privileges:true",)
SCRATCH_MODE = "1777"
RESTART = "unless-stopped"
LOG_SIZE = "10m"
LOG_FILES = 3


def project(server: ServerSpec, spec: str, *, restart: str = RESTART) -> TextFile:
    """The Compose file of a server, whose container says which spec it was made from."""
    text = render(
        "serve/compose.yaml.j2",
        s=server,
        spec=spec,
        pull=pull_policy(server.image or ""),
        entrypoint=entrypoint(server),
        tmpfs=(f"/tmp:size={server.limits.scratch},mode={SCRATCH_MODE}{',exec' * server.limits.scratch_runs}",),
        probe=("CMD", *server.health.probe),
        dropped=CAPABILITIES_DROPPED,
        security=SECURITY,
        restart=restart,
        log_size=LOG_SIZE,
        log_files=LOG_FILES,
    )
    return TextFile(path=str(PROJECTS / server.name / "compose.yaml"), text=text)


def held_to(server: ServerSpec) -> dict[str, str]:
    """What its Compose file holds the container to, by Docker's names."""
    held = {"PidsLimit": str(server.limits.tasks), "CpusetCpus": server.limits.cpus, "RestartPolicy.Name": RESTART}
    return {name: value for name, value in held.items() if value is not None}


def pull_policy(image: str) -> str:
    """An image with a digest is fetched where it is not there; one that was made here is in no registry."""
    return "missing" if "@sha256:" in image else "never"


def entrypoint(server: ServerSpec) -> tuple[str, ...]:
    """What a container starts before its arguments; nothing where its image tells."""
    if server.program:
        return (server.program,)
    if server.key and server.key.variable:
        start = f'{server.key.variable}="$(cat {sh(server.key.path)})" exec {" ".join(map(sh, server.command))} "$@"'
        return ("/bin/sh", "-c", start, server.command[0])
    return ()
