"""Names and ports of hosts that tests make: those of another checkout's tests on this machine are others."""

import os

SLOT = int(os.environ.get("LLAMAHERD_SLOT", "0"))
"""Which of the checkouts on this machine tests here; the first is none."""

PORTS_OF_A_SLOT = 100
"""Between the ports of one slot and those of the next."""


def slotted(name: str) -> str:
    """Name a host of this checkout's tests."""
    return f"{name}-{SLOT}" if SLOT else name
