"""Scripts of what stands beside servers: gateways with their address and page, what watches, and WSL."""

from __future__ import annotations

from collections.abc import Callable

from llamaherd.gateway.ask import ask_script as gateway_ask
from tests.render.plans import (
    SHARING,
)
from tests.support.virtual_address import shared_by

BESIDE: dict[str, Callable[[], str]] = {
    "ask_gateway": lambda: gateway_ask("drain", "box.chat", "60"),
    "ask_gateway_to_take_back": lambda: gateway_ask("ready", "box.chat", ours=True),
    "ask_gateway_to_renew": lambda: gateway_ask("renew", "box.chat"),
    "virtual_address": lambda: shared_by(SHARING["box"]).program.text,
}
"""By the names of their golden files."""
