"""What can stand in a gateway's way: its port is somebody else's, or its address is none of the host's."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from llamaherd.host.state import HostState
from llamaherd.plan import Plan
from llamaherd.role.facts import Row
from llamaherd.role.ports import port_taken, taken
from llamaherd.role.reach import networks
from llamaherd.role.refusal import Refusal
from roles.gateway.state import GatewayState


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """A port that is taken, and an address that the host has not."""
    if plan.gateway is None:
        return
    port, listen = plan.gateway.port, ip_address(plan.gateway.listen)
    running = GatewayState.of(state).running
    if taken(port, plan, state) and not (running and running.port == port):
        yield port_taken(port, "the gateway", "gateway")
    own = {str(each.ip) for each in networks(state.addresses)}
    if own and not (listen.is_loopback or listen.is_unspecified or str(listen) in own):
        yield Refusal(
            f"the gateway is to listen on {listen}, which is no address of this host",
            f"it has {', '.join(sorted(own))}: choose one of them, or bring that one up",
            "gateway",
        )


def facts(plan: Plan, state: HostState) -> Iterator[Row]:
    """The gateway's port."""
    if plan.gateway:
        running = GatewayState.of(state).running
        found = f"listens on port {running.port}" if running else "none runs"
        yield Row("gateway", found, f"port {plan.gateway.port}")
