"""A server as a unit of systemd."""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.layout import UNITS
from llamaherd.plan.base import TextFile
from llamaherd.plan.server import ServerSpec
from llamaherd.render import render
from llamaherd.text.quoting import Written

RESTART, RESTART_HASHED = "always", "on-failure"
"""The restart policy of units, and the one that specs hash: a change of the policy alone restarts no server."""
RESTART_SECONDS = 10
START_LIMIT_SECONDS = 600
START_LIMIT_TIMES = 3

PRIVILEGES = (
    ("UMask", "0077"),
    ("NoNewPrivileges", "yes"),
    ("CapabilityBoundingSet", ""),
    ("AmbientCapabilities", ""),
)
"""What it has of root: nothing."""

GPU_NODES = (
    ("char-nvidia", "rw"),
    ("char-nvidia-frontend", "rw"),
    ("char-nvidiactl", "rw"),
    ("char-nvidia-uvm", "rwm"),
    ("char-nvidia-caps", "r"),
    ("/dev/dxg", "rw"),
)
"""Devices that CUDA opens. The last is WSL's."""

NO_DEVICES = (("PrivateDevices", "yes"), ("DevicePolicy", "closed"), ("ProcSubset", "pid"))
"""For a server without a GPU. CUDA reads more of /proc than processes."""

LOOPBACK_ONLY = (("IPAddressDeny", "any"), ("IPAddressAllow", "localhost"))

SANDBOX = (
    ("LockPersonality", "yes"),
    ("MemoryDenyWriteExecute", "yes"),
    ("PrivateIPC", "yes"),
    ("PrivateTmp", "yes"),
    ("ProtectClock", "yes"),
    ("ProtectControlGroups", "yes"),
    ("ProtectHome", "yes"),
    ("ProtectHostname", "yes"),
    ("ProtectKernelLogs", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectKernelTunables", "yes"),
    ("ProtectProc", "invisible"),
    ("ProtectSystem", "strict"),
    ("RemoveIPC", "yes"),
    ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX"),
    ("RestrictNamespaces", "yes"),
    ("RestrictRealtime", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("SystemCallArchitectures", "native"),
    ("SystemCallErrorNumber", "EPERM"),
    ("SystemCallFilter", "@system-service"),
    ("SystemCallFilter", "~@privileged"),
)
"""What every server lives in."""


def unit(server: ServerSpec, spec: str) -> TextFile:
    """The unit of a server, whose process says which spec it was started from."""
    text = render(
        "serve/llama-server.service.j2",
        s=server,
        spec=spec,
        privileges=_settings(PRIVILEGES),
        nodes=GPU_NODES,
        no_devices=_settings(NO_DEVICES),
        loopback_only=_settings(LOOPBACK_ONLY),
        sandbox=_settings(SANDBOX),
        restart=RESTART if spec else RESTART_HASHED,
        restart_seconds=RESTART_SECONDS,
        start_limit_seconds=START_LIMIT_SECONDS,
        start_limit_times=START_LIMIT_TIMES,
    )
    return TextFile(path=str(UNITS / f"{server.service}.service"), text=text)


def _settings(pairs: Iterable[tuple[str, str]]) -> Written:
    """Lines of a unit, of words that are ours."""
    return Written("\n".join(f"{key}={value}" for key, value in pairs))
