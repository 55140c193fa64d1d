"""Render a `ServerSpec` as a systemd unit or as a Docker Compose project."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llamaherd.inventory.schema import Backend
from llamaherd.layout import PROJECTS, UNITS
from llamaherd.plan.artifacts import TextFile, digest
from llamaherd.plan.instance import ServerSpec
from llamaherd.render import render
from llamaherd.text.quoting import Written, sh

UNIT_RESTART, UNIT_RESTART_HASHED = "always", "on-failure"
"""The restart policy of units, and the one that specs hash: a change of the policy alone restarts no server."""
RESTART_SECONDS = 10
START_LIMIT_SECONDS = 600
START_LIMIT_TIMES = 3

PRIVILEGES = Written(
    """\
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities="""
)
"""Settings that take all of root's privileges from a server."""

GPU_NODES = (
    ("char-nvidia", "rw"),
    ("char-nvidia-frontend", "rw"),
    ("char-nvidiactl", "rw"),
    ("char-nvidia-uvm", "rwm"),
    ("char-nvidia-caps", "r"),
    ("/dev/dxg", "rw"),
)
"""Devices that CUDA opens. The last is WSL's."""

NO_DEVICES = Written(
    """\
PrivateDevices=yes
DevicePolicy=closed
ProcSubset=pid"""
)
"""For a server without a GPU. CUDA reads more of /proc than processes."""

LOOPBACK_ONLY = Written(
    """\
IPAddressDeny=any
IPAddressAllow=localhost"""
)

SANDBOX = Written(
    """\
LockPersonality=yes
MemoryDenyWriteExecute=yes
PrivateIPC=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
SystemCallFilter=~@privileged"""
)
"""The sandbox of every server."""


def render_unit(server: ServerSpec, spec: str) -> TextFile:
    """Return the unit of a server. A variable of its process contains the spec that it was started from."""
    text = render(
        "serve/llama-server.service.j2",
        s=server,
        spec=spec,
        privileges=PRIVILEGES,
        nodes=GPU_NODES,
        no_devices=NO_DEVICES,
        loopback_only=LOOPBACK_ONLY,
        sandbox=SANDBOX,
        restart=UNIT_RESTART if spec else UNIT_RESTART_HASHED,
        restart_seconds=RESTART_SECONDS,
        start_limit_seconds=START_LIMIT_SECONDS,
        start_limit_times=START_LIMIT_TIMES,
    )
    return TextFile(path=str(UNITS / f"{server.service}.service"), text=text)


CAPABILITIES_DROPPED = ("ALL",)
SECURITY = ("no-new-privileges:true",)
SCRATCH_MODE = "1777"
CONTAINER_RESTART = "unless-stopped"
LOG_SIZE = "10m"
LOG_FILES = 3


def render_project(server: ServerSpec, spec: str, *, restart: str = CONTAINER_RESTART) -> TextFile:
    """Return the Compose file of a server. A label of its container contains the spec that it was made from."""
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


def container_limits(server: ServerSpec) -> dict[str, str]:
    """Return the limits of its Compose file, by Docker's names."""
    held = {
        "PidsLimit": str(server.limits.tasks),
        "CpusetCpus": server.limits.cpus,
        "RestartPolicy.Name": CONTAINER_RESTART,
    }
    return {name: value for name, value in held.items() if value is not None}


def pull_policy(image: str) -> str:
    """Return Compose's pull policy: an image with a digest is fetched if it is missing, others were built here."""
    return "missing" if "@sha256:" in image else "never"


def entrypoint(server: ServerSpec) -> tuple[str, ...]:
    """Return the entry point of a container; empty if its image sets it."""
    if server.program:
        return (server.program,)
    if server.key and server.key.variable:
        start = f'{server.key.variable}="$(cat {sh(server.key.path)})" exec {" ".join(map(sh, server.command))} "$@"'
        return ("/bin/sh", "-c", start, server.command[0])
    return ()


BACKENDS: Mapping[Backend, Callable[[ServerSpec, str], TextFile]] = {"systemd": render_unit, "compose": render_project}


def server_definition(backend: Backend, server: ServerSpec) -> tuple[str, TextFile]:
    """Return the spec of a server, and the file that defines it.

    The spec is the hash of the whole text without the spec itself, so that it covers everything that matters.
    """
    write = BACKENDS[backend]
    spec = digest(write(server, "").text)
    return spec, write(server, spec)
