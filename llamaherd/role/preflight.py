"""What preflight reports: rows of its table, refusals, and the disk space that a role needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.text.terminal import MOST_HELP, one_line

Verdict = Literal["ok", "note", "refused"]


@dataclass(frozen=True)
class Refusal:
    """Why this host must not be changed, and a help. `about` is the row of preflight's table."""

    message: str
    help: str
    about: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", one_line(self.message))  # it quotes what a host printed
        object.__setattr__(self, "help", one_line(self.help, MOST_HELP))

    def __str__(self) -> str:
        return f"{self.message}\n  help: {self.help}"


def disk_row(folder: str) -> str:
    """Return the name of a disk in preflight's table."""
    return f"disk {folder}"


class DiskNeed(NamedTuple):
    """A folder, or its nearest parent that is there: bytes free in it, its device, and bytes that are yet to come."""

    folder: str
    free: int
    device: str
    need: int


@dataclass(frozen=True)
class PreflightRow:
    """One thing that was inspected. If it is not as required, `why` is a sentence and `help` its fix."""

    what: str
    found: str
    wanted: str = ""
    verdict: Verdict = "ok"
    why: str = ""
    help: str = ""

    def __post_init__(self) -> None:
        for name in ("found", "why", "help"):
            object.__setattr__(self, name, one_line(getattr(self, name), MOST_HELP))  # it quotes what a host printed


def comma_list(each: Iterable[object]) -> str:
    """Return things in one cell, with commas between them."""
    return ", ".join(map(str, each))


def is_port_taken(port: int, plan: Plan, state: HostState) -> bool:
    """Return whether a program listens at a port and is no server that this run ends."""
    leaving = {unit.port for unit in state.servers.units.values()} - {each.endpoint.port for each in plan.instances}
    return port in state.system.listening and port not in leaving


def port_refusal(port: int, of: str, about: str = "") -> Refusal:
    """Return the refusal of a port of `fleet.yaml` that is in use."""
    return Refusal(
        f"port {port} of {of} is taken by something else",
        f"see by what with `ss -ltnp 'sport = :{port}'` and stop that, or choose another port in fleet.yaml",
        about,
    )
