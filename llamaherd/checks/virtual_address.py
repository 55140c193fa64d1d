"""The address that two gateways share: its network, their listeners, and how they reach each other."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from llamaherd.checks.context import FleetContext
from llamaherd.diagnostics.findings import Finding, Rule
from llamaherd.inventory.schema import Rig

Address = IPv4Address | IPv6Address

PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")))
"""Networks that are private to each home (RFC 1918, RFC 4193)."""
_ALL = {4: "0.0.0.0", 6: "::"}

NOT_OF_TWO = Rule(
    "LH350",
    "An address is shared by another number of gateways than two.",
    why="""
    keepalived on each of the two hosts reports to the peer each second that it runs. With one there is no host to take
    the address over; more than two would each count requests for themselves, which two do already.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:3:12: error LH350: 192.168.1.50 moves between two rigs, and `on` names one
      help: name two rigs in `on`, or leave `address` out
    """,
    language="console",
    fix="name two rigs in `on`, or leave `address` out: a gateway is reached at its rig's own address, too.",
)


def check_gateway_pair(subject: FleetContext) -> Iterator[Finding]:
    """Report one rig, or more than two."""
    for gateway in subject.gateways:
        rigs = set(gateway.on)
        if gateway.address and (len(rigs), len(gateway.on)) != (2, 2):
            named = "one" if len(rigs) == 1 else f"{len(rigs)} of them" if len(rigs) > 2 else "one of them twice"
            message = f"{gateway.address} moves between two rigs, and `on` names {named}"
            help_ = "name two rigs in `on`, or leave `address` out"
            yield NOT_OF_TWO.at(subject.value("address"), message, help_)


NOT_PRIVATE = Rule(
    "LH351",
    "A shared address is not in a private network.",
    why="""
    It is set on an interface of a host and announced to the machines of its network. An address of the internet belongs
    to another network. 127.0.0.1, 0.0.0.0, addresses of groups and those of a single cable mean something else on each
    machine.
    """,
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:3:12: error LH351: 127.0.0.1 is on each machine, and moves nowhere
      help: choose one of the rigs' network that no machine has, outside of the router's DHCP range
    """,
    language="console",
    fix="""
    choose an address of the rigs' own network (10.…, 172.16.… to 172.31.…, 192.168.…, or fd… of IPv6) that no machine
    has, outside of the router's DHCP range.
    """,
)


def check_private_address(subject: FleetContext) -> Iterator[Finding]:
    """Report an address outside of private networks."""
    for gateway in subject.gateways:
        address = ip_address(gateway.address) if gateway.address else None
        if address and not any(address in network for network in PRIVATE):
            help_ = "choose one of the rigs' network that no machine has, outside of the router's DHCP range"
            yield NOT_PRIVATE.at(subject.value("address"), f"{address} {_kind(address)}", help_)


def _kind(address: Address) -> str:
    if address.is_loopback:
        return "is on each machine, and moves nowhere"
    if address.is_unspecified:
        return "means all addresses of a machine"
    if address.is_multicast:
        return "means a group of machines"
    return "is valid on one cable alone" if address.is_link_local else "is not in a private network"


TAKEN = Rule(
    "LH352",
    "A shared address is a rig's own.",
    why="It would be on two machines at once, and each packet would reach one or the other at random.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:3:12: error LH352: 192.168.1.20 is the address of rig `attic`
      help: choose one that no machine has, outside of the router's DHCP range
    """,
    language="console",
    fix="choose an address of the same network that no machine has.",
)


def check_free_address(subject: FleetContext) -> Iterator[Finding]:
    """Report an address that a rig has."""
    for gateway in subject.gateways:
        for name, rig in subject.rigs.items():
            if gateway.address and gateway.address in map(_ip, (rig.address, rig.connect.host)):
                message = f"{gateway.address} is the address of rig `{name}`"
                help_ = "choose one that no machine has, outside of the router's DHCP range"
                yield TAKEN.at(subject.value("address"), message, help_)


NOT_LISTENING = Rule(
    "LH353",
    "The gateways do not listen at the shared address.",
    why="""
    One of the two does not have the address, and cannot listen at an absent address. Each host also probes its own
    gateway. So both listen at all addresses of their hosts: each address requires a key.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:4:11: error LH353: the gateways listen on 127.0.0.1, and must serve 192.168.1.50
      help: write `listen: 0.0.0.0`
    """,
    language="console",
    fix="write `listen: 0.0.0.0`, or `listen: '::'` where the address is one of IPv6.",
)


def check_listen_address(subject: FleetContext) -> Iterator[Finding]:
    """Report gateways that listen at one address of their hosts, or at addresses of the other IP version."""
    for gateway in subject.gateways:
        if gateway.address is None:
            continue
        listen, address = ip_address(gateway.listen), ip_address(gateway.address)
        if not listen.is_unspecified or listen.version < address.version:
            message = f"the gateways listen on {listen}, and must serve {address}"
            written = _ALL[address.version]
            help_ = f"write `listen: {written}`" if address.version == 4 else f"write `listen: '{written}'`"
            yield NOT_LISTENING.at(subject.value("listen"), message, help_)


UNKNOWN_TO_EACH_OTHER = Rule(
    "LH354",
    "Two gateways that share an address do not find each other.",
    why="""
    keepalived on each of them reports to the peer that it runs, at the IP address that it has in their network, and
    accepts no other source. A host name is not an address, and may have another one tomorrow.
    """,
    example="""
    $ herd check
    fleet/fleet.yaml:2:15: error LH354: rig `porch` has the address `porch.lan`, which is not an address of IPv4
      help: give it the one of the network that has 192.168.1.50: `store: {share: {address: 192.168.1.21}}`
    """,
    language="console",
    fix="""
    give each of the two rigs `store: {share: {address: …}}` with the IP address that it has in the network of
    `gateway: {address: …}`.
    """,
)


def check_pair_addresses(subject: FleetContext) -> Iterator[Finding]:
    """Report rigs without an address of the same IP version, or with the same address."""
    for gateway in subject.gateways:
        if gateway.address is None:
            continue
        address = ip_address(gateway.address)
        earlier: dict[str, str] = {}
        for index, name in enumerate(gateway.on):
            rig, place = subject.rigs.get(name), subject.value("on", index)
            if rig is None and name in subject.names:
                message = f"rig `{name}` cannot be read, and its address is needed"
                yield UNKNOWN_TO_EACH_OTHER.at(place, message, "correct that rig's file")
            elif rig and (wrong := _unknown(rig, address, earlier)):
                help_ = f"give it the one of the network that has {address}: "
                help_ += f"`store: {{share: {{address: {_example(address)}}}}}`"
                yield UNKNOWN_TO_EACH_OTHER.at(place, f"rig `{name}` {wrong}", help_)


def _unknown(rig: Rig, address: Address, earlier: dict[str, str]) -> str:
    """Return why the peer does not find this rig; `seen` are the rigs before it, by their addresses."""
    known = _ip(rig.address)
    if known is None or ip_address(known).version != address.version:
        return f"has the address `{rig.address}`, which is not an address of IPv{address.version}"
    if ip_address(known).is_loopback:
        return f"has the address `{known}`, which is each machine's own"
    other = earlier.setdefault(known, rig.rig)
    return "" if other == rig.rig else f"has the address `{known}`, like rig `{other}`"


def _example(address: Address) -> str:
    """Return another address of the same network, in the usual form of home networks."""
    return str(address + 1) if int(address) % 256 < 254 else str(address - 1)


def _ip(text: str) -> str | None:
    """Return an address in the form that is compared; None for a name."""
    try:
        return str(ip_address(text))
    except ValueError:
        return None
