"""Scripts of what stands beside servers: gateways with their address and page, what watches, power, and WSL."""

from __future__ import annotations

from collections.abc import Callable

from llamaherd.gateway.ask import ask_script as gateway_ask
from llamaherd.host.state import HostState
from roles.chat_page.verify import question as chat_question
from roles.gateway.verify import question as gateway_question
from roles.monitoring.verify import question as monitoring_question
from roles.power.changes import power_changes, power_leftovers
from roles.power.state import PowerState
from roles.power.state import UnitState as PowerUnitState
from roles.virtual_address.verify import question as address_question
from roles.wsl.changes import wsl_changes
from tests.render.pieces import (
    in_wsl,
    power,
    script,
    unheld,
)
from tests.render.plans import (
    CHATTING,
    GATEWAY,
    GPU,
    HELD,
    SHARING,
    WATCHING,
    WSL,
)
from tests.support import ours as verify
from tests.support.virtual_address import shared_by

BESIDE: dict[str, Callable[[], str]] = {
    "verify_gateway": lambda: gateway_question(GATEWAY),
    "verify_chat": lambda: chat_question(CHATTING),
    "ask_gateway": lambda: gateway_ask("drain", "box.chat", "60"),
    "ask_gateway_to_take_back": lambda: gateway_ask("ready", "box.chat", ours=True),
    "ask_gateway_to_renew": lambda: gateway_ask("renew", "box.chat"),
    "verify_virtual_address": lambda: address_question(SHARING["box"]),
    "virtual_address": lambda: shared_by(SHARING["box"]).program.text,
    "verify_monitoring": lambda: monitoring_question(WATCHING["box"]),
    "verify_power": lambda: verify.question(HELD),
    "gpu_power": lambda: power(HELD).program.text,
    "step_power": lambda: script(power_changes(HELD, unheld())),
    "step_remove_power": lambda: script(
        power_leftovers(GPU, HostState(parts={PowerState: PowerState(PowerUnitState("active", "enabled", False))}))
    ),
    "step_wsl_files": lambda: script(wsl_changes(WSL, in_wsl())),
    "step_wsl_restart": lambda: script(wsl_changes(WSL, in_wsl(systemd=False))),
}
"""By the names of their golden files."""
