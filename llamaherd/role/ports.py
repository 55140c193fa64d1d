"""Ports that something else has: nothing of what is declared for them can listen there."""

from __future__ import annotations

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.role.refusal import Refusal


def taken(port: int, plan: Plan, state: HostState) -> bool:
    """Whether something listens there that this run does not end: no server of ours that goes."""
    leaving = {unit.port for unit in state.units.values()} - {each.endpoint.port for each in plan.instances}
    return port in state.listening and port not in leaving


def port_taken(port: int, of: str, about: str = "") -> Refusal:
    """Why nothing is done: a port that `fleet.yaml` says."""
    return Refusal(
        f"port {port} of {of} is taken by something else",
        f"see by what with `ss -ltnp 'sport = :{port}'` and stop that, or choose another port in fleet.yaml",
        about,
    )
