"""From a fleet's file to the address that two gateways have in turn: which hosts, and how each runs keepalived. Pure.

Facts: keepalived.conf(5) of 2.2.7; its sources 2.2.4 to 2.3.3 where that does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.gateway import Gateway
from llamaherd.layout import ADDRESS, ADDRESS_PROGRAM, ADDRESS_RUN, ADDRESS_UNIT, ASK_USER, GATEWAY_UNIT, UNITS
from llamaherd.plan import TextFile, VirtualAddressPlan, digest
from llamaherd.plan.endpoint import Endpoint
from llamaherd.render import render
from llamaherd.role.role import Planning, PlanPart

PACKAGES = frozenset({"iproute2", "keepalived"})
ROUTER = 117
"""The two know each other by it (VRRP's virtual router id). Another keepalived on their hosts, or a router beside them,
is more likely to have a small number, or one that ends an address."""
PRIORITIES = (150, 100)
"""Of the first and the second rig of `on`. They count where nobody has the address, or both took it at once."""


def plan(planning: Planning) -> PlanPart:
    """The address, on the two rigs that it is declared for."""
    gateway, rig = planning.fleet.gateway if planning.fleet else None, planning.rig
    if gateway is None or gateway.address is None or rig.rig not in gateway.on:
        return PlanPart()
    made = plan_virtual_address(gateway, gateway.address, rig.rig, {**planning.rigs, rig.rig: rig})
    return PlanPart(packages=PACKAGES, fields={"virtual_address": made})


def plan_virtual_address(gateway: Gateway, address: str, here: str, rigs: Mapping[str, Rig]) -> VirtualAddressPlan:
    """What a rig has of the address."""
    own, peer = rigs[here], next(rigs[name] for name in gateway.on if name != here)
    priority = PRIORITIES[gateway.on.index(here)]
    config = _config(gateway, address, own, peer, priority)
    length = ip_address(address).max_prefixlen
    program = render("virtual_address/virtual-address.sh.j2", address=address, length=length, peer=peer.address)
    return VirtualAddressPlan(
        address=address,
        own=own.address,
        peer=peer.address,
        peer_rig=peer.rig,
        priority=priority,
        config=TextFile(path=str(ADDRESS / "keepalived.conf"), text=config),
        unit=_unit(here, config, program),
        program=TextFile(path=str(ADDRESS_PROGRAM), text=program, mode="0755"),
    )


def _config(gateway: Gateway, address: str, own: Rig, peer: Rig, priority: int) -> str:
    """What keepalived reads, but for the interface, which only the host knows."""
    asked = Endpoint(listen=gateway.listen, port=gateway.port, models=(), streams=1)
    return render(
        "virtual_address/keepalived.conf.j2",
        rig=own.rig,
        user=ASK_USER,
        scheme="https" if gateway.tls else "http",
        host=asked.local_address,
        port=gateway.port,
        router=ROUTER,
        priority=priority,
        own=own.address,
        peer=peer.address,
        address=address,
        length=ip_address(address).max_prefixlen,
    )


def _unit(rig: str, config: str, program: str) -> TextFile:
    """The unit, which names a hash of itself and of what it runs by: a process by something else is told apart."""
    text = render(
        "virtual_address/address.service.j2",
        rig=rig,
        gateway=GATEWAY_UNIT,
        program=ADDRESS_PROGRAM,
        folder=ADDRESS,
        run=ADDRESS_RUN,
    )
    return TextFile(path=str(UNITS / ADDRESS_UNIT), text=text.replace("@SPEC@", digest(text, config, program)))


def unit_spec(made: VirtualAddressPlan) -> str:
    """The hash that the unit names."""
    return made.unit.text.partition("LLAMAHERD_SPEC=")[2].split("\n", 1)[0]
