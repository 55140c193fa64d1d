"""The CUDA toolkit's part of a host's state: what is at its place, or the room there is for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llamaherd.host.state import HostState, StatePart
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.text.numbers import parse_whole


class RoomState(NamedTuple):
    """Room for a CUDA toolkit: a folder, bytes free there, the device, and the bytes of it that are there already."""

    folder: str
    free: int
    device: str
    begun: int


@dataclass
class ToolkitState(StatePart):
    """What the compiler of the planned toolkit says that it is, empty where it does not run; else room for one."""

    version: str | None = None
    room: RoomState | None = None


def inspect(plan: Plan) -> str:
    """Ask the compiler that is planned."""
    return render("cuda_toolkit/inspect.sh.j2", toolkit=plan.toolkit) if plan.toolkit else ""


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    match kind, fields:
        case "toolkit", [version]:
            ToolkitState.within(state).version = version
        case "room", [folder, size, device, begun]:
            ToolkitState.within(state).room = RoomState(folder, parse_whole(size), device, parse_whole(begun))
        case _:
            return False
    return True
