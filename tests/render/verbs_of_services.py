"""Inputs of the verbs that change gateways and other services, as documents, by the names of their golden files.

They show the first line of each file alone: the texts have golden files of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from llamaherd.host.state import HostState
from llamaherd.onhost.services import ServiceState
from llamaherd.role.changes import Change
from roles.chat_page import ChatState, chat_leftovers
from roles.cuda_toolkit import toolkit_changes
from roles.gateway import GatewayState, gateway_leftovers
from roles.monitoring import changes_with as watcher_changes
from roles.monitoring import exporter_changes
from roles.monitoring import leftovers as monitoring_leftovers
from roles.power import PowerState, power_changes, power_leftovers
from roles.suspend import SuspendState, suspend_changes, suspend_leftovers
from roles.virtual_address import AddressState, address_changes, address_leftovers
from roles.wake import WakeState, wake_changes, wake_leftovers
from roles.wsl import wsl_changes
from tests.render.pieces import chat, gateway, in_wsl, unheld, watching
from tests.render.plans import CHATTING, GPU, HELD, SHARING, SUSPENDING, WAKING, WATCHING, WSL
from tests.render.verbs import document
from tests.support.prometheus import watcher_of

POWERED = ServiceState("active", "enabled", False, "")
RUNNING = ServiceState("active", "", False, "")


def outline(changes: Sequence[Change]) -> str:
    """Return the document of one change, with the first line of each file."""
    return json.dumps(_shortened(json.loads(document(changes))), indent=2, ensure_ascii=False) + "\n"


def _shortened(value: object) -> object:
    if isinstance(value, dict):
        return {key: _first_line(each) if key == "text" else _shortened(each) for key, each in value.items()}
    return list(map(_shortened, value)) if isinstance(value, list) else value


def _first_line(text: str) -> str:
    first, _, rest = text.partition("\n")
    return f"{first} …" if rest else text


SERVICES: dict[str, Callable[[], Sequence[Change]]] = {
    "apply_gateway": lambda: gateway("users"),
    "apply_monitoring": lambda: watcher_changes(
        watcher_of(WATCHING["box"]), watching("another"), {"box.chat": "a key"}
    ),
    "apply_exporter": lambda: exporter_changes(WATCHING["duo"], HostState()),
    "remove_monitoring": lambda: list(monitoring_leftovers(WATCHING["porch"], watching(""))),
    "apply_chat": lambda: chat(CHATTING),
    "remove_chat": lambda: chat_leftovers(GPU, HostState.of(ChatState(there=True))),
    "apply_virtual_address": lambda: address_changes(SHARING["box"], HostState()),
    "remove_virtual_address": lambda: address_leftovers(GPU, HostState.of(AddressState(RUNNING))),
    "apply_wake": lambda: wake_changes(WAKING, HostState()),
    "remove_wake": lambda: wake_leftovers(GPU, HostState.of(WakeState("active"))),
    "apply_suspend": lambda: suspend_changes(SUSPENDING, HostState()),
    "remove_suspend": lambda: suspend_leftovers(GPU, HostState.of(SuspendState("active"))),
    "install_toolkit": lambda: toolkit_changes(GPU, HostState())[-1:],
    "write_wsl_files": lambda: wsl_changes(WSL, in_wsl()),
    "require_systemd": lambda: wsl_changes(WSL, in_wsl(systemd=False))[-1:],
    "apply_power": lambda: power_changes(HELD, unheld()),
    "remove_power": lambda: power_leftovers(GPU, HostState.of(PowerState(POWERED))),
    "remove_gateway": lambda: gateway_leftovers(GPU, HostState.of(GatewayState(RUNNING))),
}
