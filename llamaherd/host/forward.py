"""A port of this machine, behind which lies one that a host reaches."""

from __future__ import annotations

from typing import NamedTuple


class Forward(NamedTuple):
    """From `here` on the loopback of this machine to an address and a port of the host's; IPv6 in brackets."""

    here: int
    address: str
    port: int

    @property
    def options(self) -> tuple[str, ...]:
        """For the ssh client, which ends where the port cannot be had."""
        return ("-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{self.here}:{self.address}:{self.port}")
