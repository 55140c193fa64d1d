"""Inputs of the verbs that no change runs, as the documents that hosts read, by the names of their golden files."""

from __future__ import annotations

from collections.abc import Callable

from llamaherd.fleet.status import status_input
from llamaherd.onhost.files import KeysInput, TextsInput
from llamaherd.onhost.gateway import DrainInput, ReadyInput, RenewInput
from llamaherd.onhost.hardware import HardwareInput
from llamaherd.onhost.reservation import RunLockInput
from llamaherd.onhost.verbs import NoInput
from tests.render.pieces import memory_input
from tests.render.plans import CPU, GATEWAY, GPU
from tests.render.verbs import indented

QUERIES: dict[str, Callable[[], str]] = {
    "host_hold": lambda: indented("llamaherd.reservation.hold_run", RunLockInput("duo", "tom on desk", 60)),
    "query_keys": lambda: indented("llamaherd.files.keys", KeysInput(("chat", "small-group"))),
    "query_texts": lambda: indented("llamaherd.files.texts", TextsInput(("/etc/one", "/etc/o'ne two"))),
    "gateway_drain": lambda: indented("llamaherd.gateway.drain", DrainInput("box.chat", 60, 900)),
    "gateway_ready": lambda: indented("llamaherd.gateway.ready", ReadyInput("box.chat", ours=True)),
    "gateway_renew": lambda: indented("llamaherd.gateway.renew", RenewInput("box.chat")),
    "status_cpu": lambda: indented("llamaherd.status.inspect", status_input(CPU)),
    "status_gateway": lambda: indented("llamaherd.status.inspect", status_input(GATEWAY)),
    "status_gpus": lambda: indented("llamaherd.status.inspect", status_input(GPU)),
    "query_hardware": lambda: indented("llamaherd.hardware.inspect", HardwareInput()),
    "query_memory": lambda: indented("llamaherd.engine_memory.estimate", memory_input("reasoner", "boxed")),
    "host_unlock": lambda: indented("llamaherd.reservation.unlock", NoInput()),
}
