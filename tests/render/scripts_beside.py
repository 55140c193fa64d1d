"""Scripts of what stands beside servers: gateways with their address and page, what watches, power, and WSL."""

from __future__ import annotations

from collections.abc import Callable

from llamaherd.gateway.ask import ask_script as gateway_ask
from roles.chat_page.state import inspect as chat_inspect
from roles.chat_page.verify import question as chat_question
from roles.gateway.verify import question as gateway_question
from roles.monitoring.verify import question as monitoring_question
from roles.virtual_address.state import inspect as address_inspect
from roles.virtual_address.verify import question as address_question
from tests.render.pieces import (
    power,
)
from tests.render.plans import (
    CHATTING,
    GATEWAY,
    HELD,
    SHARING,
    WATCHING,
    WSL,
)
from tests.support import ours as verify
from tests.support.ours import inspect_script
from tests.support.virtual_address import shared_by

BESIDE: dict[str, Callable[[], str]] = {
    "observe_gateway": lambda: inspect_script(GATEWAY),
    "verify_gateway": lambda: gateway_question(GATEWAY),
    "observe_chat": lambda: chat_inspect(CHATTING),
    "verify_chat": lambda: chat_question(CHATTING),
    "ask_gateway": lambda: gateway_ask("drain", "box.chat", "60"),
    "ask_gateway_to_take_back": lambda: gateway_ask("ready", "box.chat", ours=True),
    "ask_gateway_to_renew": lambda: gateway_ask("renew", "box.chat"),
    "observe_virtual_address": lambda: address_inspect(SHARING["box"]),
    "verify_virtual_address": lambda: address_question(SHARING["box"]),
    "virtual_address": lambda: shared_by(SHARING["box"]).program.text,
    "observe_monitoring": lambda: inspect_script(WATCHING["box"]),
    "verify_monitoring": lambda: monitoring_question(WATCHING["box"]),
    "observe_power": lambda: inspect_script(HELD),
    "verify_power": lambda: verify.question(HELD),
    "gpu_power": lambda: power(HELD).program.text,
    "observe_wsl": lambda: inspect_script(WSL),
}
"""By the names of their golden files."""
