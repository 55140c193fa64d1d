"""Models' part of the program on hosts. Here: the units that fetch and share models, which outlive the connection."""

from __future__ import annotations

from collections.abc import Iterable

from llamaherd.layout import FETCH_USER, LAUNCHER
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.services import last_lines
from llamaherd.onhost.system import Ended, FailedError, System

PROGRAM = LAUNCHER
_SANDBOX = (
    *("Type=exec", f"User={FETCH_USER}", "Nice=10"),
    *("ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "PrivateDevices=yes"),
    *("NoNewPrivileges=yes", "CapabilityBoundingSet=", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX"),
    *("ProtectKernelModules=yes", "ProtectKernelTunables=yes", "ProtectControlGroups=yes", "RestrictNamespaces=yes"),
    *("LockPersonality=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes", "SystemCallArchitectures=native"),
    *("SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM"),
)


def start_unit(system: System, unit: str, properties: Iterable[str], words: Iterable[str], seconds: float) -> Ended:
    """Start the fetcher's program in a unit of its own, and return how that ended: also of what it starts first."""
    systemctl(system, "reset-failed", unit)
    options = [word for each in (*_SANDBOX, *properties) for word in ("-p", each)]
    command = ["systemd-run", "-q", f"--unit={unit}", "--collect", *options, PROGRAM, *words]
    return system.run(command, seconds=seconds)


def make_for_fetcher(system: System, *folders: str) -> None:
    """Make folders that belong to the fetching user alone. Raise FailedError."""
    owner = ["-o", FETCH_USER, "-g", FETCH_USER]
    made = system.run(["install", "-d", "-m", "0700", *owner, *folders])
    if not made.ok:
        raise FailedError(f"cannot create {folders[0]}; the reason is above", log=last_lines(made, 3))


def make_folder(system: System, path: str) -> None:
    """Make a folder with those above it, where nothing is. Raise OSError."""
    if system.entry(path) is None:
        system.folder(path)


def reported(system: System, path: str) -> list[str]:
    """Return the lines of a file that the fetcher has written. The folder is that user's: no link is followed."""
    found = system.entry(path)
    return (system.read(path) or "").splitlines() if found and found.kind == "file" else []
