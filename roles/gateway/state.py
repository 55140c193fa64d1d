"""The gateway's part of a host's state: its unit, what the process that runs has read, and the distribution's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llamaherd.host.state import HostState, StatePart
from llamaherd.layout import GATEWAY, GATEWAY_TALK, GATEWAY_UNIT
from llamaherd.plan import Plan
from llamaherd.render import render
from llamaherd.role.service import ServiceState
from llamaherd.text.numbers import parse_whole


class RunningState(NamedTuple):
    """What the process says: its configuration's hash, its port, and whether its maps are those of the files."""

    spec: str
    port: int | None
    maps_are_read: bool


@dataclass
class GatewayState(StatePart):
    """All of it. `idle_own`: the distribution's unit runs by a configuration that is as it came, and serves nobody."""

    unit: ServiceState | None = None
    running: RunningState | None = None
    idle_own: bool = False


def inspect(plan: Plan) -> str:
    """Ask for it, also where the fleet has its gateway elsewhere by now."""
    if not plan.of_fleet:
        return ""
    return render(
        "gateway/inspect.sh.j2", gateway=plan.gateway is not None, unit=GATEWAY_UNIT, talk=GATEWAY_TALK, folder=GATEWAY
    )


def parse(state: HostState, kind: str, fields: Sequence[str]) -> bool:
    """Take in one line of the answer; returns whether it was about that."""
    match kind, fields:
        case "gateway", ["unit", active, enabled, needs_reload, spec]:
            GatewayState.within(state).unit = ServiceState(active, enabled, needs_reload == "yes", spec)
        case "gateway", ["running", said, maps]:
            spec, _, port = said.partition("/")
            running = RunningState(spec, parse_whole(port) if port else None, maps == "same")
            GatewayState.within(state).running = running
        case "gateway", ["idle-own"]:
            GatewayState.within(state).idle_own = True
        case _:
            return False
    return True
