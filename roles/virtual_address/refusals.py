"""What can stand in the way of a virtual address: the hosts, and the address, are not in one network."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from llamaherd.host.state import HostState
from llamaherd.plan import Plan, VirtualAddressPlan
from llamaherd.role.facts import Row
from llamaherd.role.reach import Network, networks
from llamaherd.role.refusal import Refusal
from roles.virtual_address.state import AddressState

_ROW = "virtual address"


def refusals(plan: Plan, state: HostState) -> Iterator[Refusal]:
    """A host that has another address than its rig, or whose network is another one than that of the address."""
    made, own = plan.virtual_address, networks(state.addresses)
    if made is None or not own:
        return
    here = [each for each in own if each.ip == ip_address(made.own)]
    if not here:
        yield Refusal(
            f"the rig is known as {made.own}, which is no address of its host",
            f"it has {', '.join(sorted(str(each.ip) for each in own))}: name the one of the network that the gateways "
            "share, by `store: {share: {address: …}}` of the rig",
            _ROW,
        )
        return
    yield from _elsewhere(made, here)


def _elsewhere(made: VirtualAddressPlan, here: list[Network]) -> Iterator[Refusal]:
    """The address, or the other host, where no network of this host's address has them."""
    for address, what in ((made.address, "the virtual address"), (made.peer, f"rig {made.peer_rig}")):
        if not any(_in_use(address, each) for each in here):
            network = here[0].network
            yield Refusal(
                f"{what} is {address}, which no machine can have in the network of this rig, {network}",
                "both rigs and the address must be in one network: correct `address` in fleet.yaml, or what the rigs "
                "are known as",
                _ROW,
            )


def _in_use(address: str, network: Network) -> bool:
    """Whether a machine of a network can have an address: its first and last one of IPv4 are nobody's."""
    found, whole = ip_address(address), network.network
    if found.version != network.version or found not in whole:
        return False
    return found.version == 6 or found not in (whole.network_address, whole.broadcast_address)


def facts(plan: Plan, state: HostState) -> Iterator[Row]:
    """Whether keepalived runs."""
    if plan.virtual_address:
        unit = AddressState.of(state).unit
        found = f"its unit is {unit.active}" if unit else "none"
        yield Row(_ROW, found, f"{plan.virtual_address.address}, with {plan.virtual_address.peer_rig}")
