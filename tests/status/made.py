"""Fleets as values, for tests."""

from __future__ import annotations

from llamaherd.fleet.gateway_snapshot import GatewaySnapshot, ModelSnapshot, ServerSnapshot
from llamaherd.fleet.snapshot import CardSnapshot, FleetSnapshot, InstanceSnapshot, LastChange, RigSnapshot, Speed
from llamaherd.onhost.gateway import UserRow

AT = "2026-11-25 10:00:00 UTC"
GIB = 1 << 30
SPEED = Speed(43.1, 42.5, 43.7, "2026-11-23T20:15:00Z", "n = 9")
CHAT = InstanceSnapshot("chat", "qwen3.6-35b-a3b", 8080, "serves", "", 2, 4, 0, 3, 41.25, SPEED, 40.0)
CODE = InstanceSnapshot("code", "gemma", 8081, "down", "its unit is failed (exit-code)", expected=90.0)
CARD = CardSnapshot("new", "NVIDIA GeForce RTX 5090", 20 * GIB, 32 * GIB, 310.4, 600.0, 64.0, 99.0)
CHANGE = LastChange(
    14, "2026-11-24 10:00:00 UTC", "ann", ("restart chat: its engine is another", "start code: new"), ()
)
GATEWAY = GatewaySnapshot(
    (
        ModelSnapshot(
            "coder", 1, (ServerSnapshot("duo.chat", "up", 2, 4, 118), ServerSnapshot("six.chat", "down", 0, 2, 7))
        ),
    ),
    (UserRow("tom", 2, 4),),
    0,
)
DUO = RigSnapshot("duo", (CHAT, CODE), (CARD,), CHANGE, ("code is down: its unit is failed; see there",), GATEWAY)
SIX = RigSnapshot("six", away="nothing listens for SSH at six.lan; is it on?", declared=2)
ATTIC = RigSnapshot("attic", (InstanceSnapshot("small", "gemma", 8080, "serves", "", 0, 2, 0, 0, 0.0),))


def status(*rigs: RigSnapshot) -> FleetSnapshot:
    """These rigs at one moment."""
    return FleetSnapshot(AT, rigs)


FLEET = status(DUO, SIX, ATTIC)
