"""Scripts of what stands beside servers: gateways with their address and page, what watches, power, and WSL."""

from __future__ import annotations

from collections.abc import Callable

from llamaherd.gateway.ask import ask_script as gateway_ask
from llamaherd.host.state import HostState
from llamaherd.role.service import ServiceState
from roles.chat_page.changes import chat_leftovers
from roles.chat_page.state import ChatState
from roles.chat_page.state import inspect as chat_inspect
from roles.chat_page.verify import question as chat_question
from roles.gateway.changes import gateway_leftovers
from roles.gateway.state import GatewayState
from roles.gateway.verify import question as gateway_question
from roles.monitoring.changes import changes_with as watcher_changes
from roles.monitoring.changes import exporter_changes
from roles.monitoring.changes import leftovers as monitoring_leftovers
from roles.monitoring.verify import question as monitoring_question
from roles.power.changes import power_changes, power_leftovers
from roles.power.state import PowerState
from roles.power.state import UnitState as PowerUnitState
from roles.virtual_address.changes import address_changes, address_leftovers
from roles.virtual_address.state import AddressState
from roles.virtual_address.state import inspect as address_inspect
from roles.virtual_address.verify import question as address_question
from roles.wsl.changes import wsl_changes
from tests.render.pieces import (
    chat,
    gateway,
    in_wsl,
    power,
    script,
    unheld,
    watching,
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
from tests.support.ours import inspect_script
from tests.support.prometheus import watcher_of
from tests.support.virtual_address import shared_by

BESIDE: dict[str, Callable[[], str]] = {
    "observe_gateway": lambda: inspect_script(GATEWAY),
    "verify_gateway": lambda: gateway_question(GATEWAY),
    "observe_chat": lambda: chat_inspect(CHATTING),
    "verify_chat": lambda: chat_question(CHATTING),
    "step_chat": lambda: script(chat(CHATTING)),
    "step_remove_chat": lambda: script(chat_leftovers(GPU, HostState(parts={ChatState: ChatState(there=True)}))),
    "ask_gateway": lambda: gateway_ask("drain", "box.chat", "60"),
    "ask_gateway_to_take_back": lambda: gateway_ask("ready", "box.chat", ours=True),
    "ask_gateway_to_renew": lambda: gateway_ask("renew", "box.chat"),
    "step_gateway": gateway,
    "step_gateway_reload": lambda: gateway("reload"),
    "step_gateway_users": lambda: gateway("users"),
    "step_remove_gateway": lambda: script(
        gateway_leftovers(GPU, HostState(parts={GatewayState: GatewayState(ServiceState("active", "", False, ""))}))
    ),
    "observe_virtual_address": lambda: address_inspect(SHARING["box"]),
    "verify_virtual_address": lambda: address_question(SHARING["box"]),
    "virtual_address": lambda: shared_by(SHARING["box"]).program.text,
    "step_virtual_address": lambda: script(address_changes(SHARING["box"], HostState())),
    "step_remove_virtual_address": lambda: script(
        address_leftovers(GPU, HostState(parts={AddressState: AddressState(ServiceState("active", "", False, ""))}))
    ),
    "observe_monitoring": lambda: inspect_script(WATCHING["box"]),
    "verify_monitoring": lambda: monitoring_question(WATCHING["box"]),
    "step_exporter": lambda: script(exporter_changes(WATCHING["duo"], HostState())),
    "step_monitoring": lambda: script(watcher_changes(watcher_of(WATCHING["box"]), HostState(), {"box.chat": "a key"})),
    "step_monitoring_reload": lambda: script(
        watcher_changes(watcher_of(WATCHING["box"]), watching("another"), {"box.chat": "a key"})
    ),
    "step_remove_monitoring": lambda: script(list(monitoring_leftovers(WATCHING["porch"], watching("")))),
    "observe_power": lambda: inspect_script(HELD),
    "verify_power": lambda: verify.question(HELD),
    "gpu_power": lambda: power(HELD).program.text,
    "step_power": lambda: script(power_changes(HELD, unheld())),
    "step_remove_power": lambda: script(
        power_leftovers(GPU, HostState(parts={PowerState: PowerState(PowerUnitState("active", "enabled", False))}))
    ),
    "observe_wsl": lambda: inspect_script(WSL),
    "step_wsl_files": lambda: script(wsl_changes(WSL, in_wsl())),
    "step_wsl_restart": lambda: script(wsl_changes(WSL, in_wsl(systemd=False))),
}
"""By the names of their golden files."""
