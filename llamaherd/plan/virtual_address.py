"""An address that two gateways have in turn, as it must be on the host of each."""

from __future__ import annotations

from ipaddress import ip_address

from llamaherd.plan.base import Planned, TextFile


class VirtualAddressPlan(Planned):
    """What one of the two has of it. `own` and `peer` are where the two hosts find each other.

    Where nobody has the address, the higher `priority` takes it. `files` are `config`, by which the host makes
    keepalived's configuration, `unit`, which runs it, and `program`, which knows the host's interfaces.
    """

    address: str
    own: str
    peer: str
    peer_rig: str
    priority: int
    config: TextFile
    unit: TextFile
    program: TextFile

    @property
    def files(self) -> tuple[TextFile, ...]:
        """All that lies on the host."""
        return (self.config, self.unit, self.program)

    @property
    def length(self) -> int:
        """The length of its prefix: it is one address, and no network of its own."""
        return ip_address(self.address).max_prefixlen
