"""A fleet that is watched: one rig that watches, one with GPUs, and one that is left out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from llamaherd.inventory.schema import Rig
from llamaherd.plan import Plan
from tests.support.gateway import fleet_of
from tests.support.ours import plan
from tests.support.rigs import changed, cpu_rig, gpu_rig, hub_lock

HOUSEHOLD = """
gateway:
  on: [duo]
  users: {tom: {key: {env: TOM_KEY}}}
  models: {coder: {serve: [duo.worker]}}
monitoring:
  on: box
  rigs: [duo]
  retention: 90d
  drift: true
  alerts:
    mail: {to: tom@example.org, server: "mail.example.org:587", key: {env: MAIL_KEY}}
    ntfy: {url: "https://ntfy.lan/house", key: {env: NTFY_KEY}}
    webhook: {url: "http://192.0.2.9:8080/hook?from=attic"}
    repeat: 6h
"""
KEYS = {
    "MAIL_KEY": "mail-canary-1",
    "NTFY_KEY": "tk_canary-2",
    "CHAT_KEY": "sk-canary-3",
    "TOM_KEY": "herd-canary-4",
}
"""Variables that hold keys."""
FILES = {
    "alerts-mail": KEYS["MAIL_KEY"],
    "alerts-ntfy": KEYS["NTFY_KEY"],
    "box.chat": KEYS["CHAT_KEY"],
    "duo.worker": KEYS["CHAT_KEY"],
}
"""The same by the files that they are in on the host."""


def rigs(wakes: str = "") -> dict[str, Rig]:
    """Their inventories; a gateway can wake one of them."""
    watching = {"instances/chat/expect": {"decode": "45 t/s"}, "store/share": {"address": "192.0.2.1"}}
    open_ = {"instances/worker/listen": "0.0.0.0", "instances/worker/api_key": {"env": "CHAT_KEY"}}
    open_ |= {"gpus/cards/old/power_limit": "280W"}
    made = {
        "box": changed(cpu_rig(), watching),
        "duo": changed(gpu_rig(), open_),
        "porch": changed(cpu_rig(), {"rig": "porch", "connect": {"host": "porch.lan"}}),
    }
    wake = {"wake": {"mac": "3c:7c:3f:12:ab:cd"}}
    return {name: Rig.model_validate(each | (wake if name == wakes else {})) for name, each in made.items()}


def household(
    text: str = HOUSEHOLD, measured: Mapping[str, float] = MappingProxyType({}), wakes: str = ""
) -> dict[str, Plan]:
    """What each of them must be, by a fleet's file and what was measured."""
    every, fleet = rigs(wakes), fleet_of(text)
    return {name: plan(every[name], hub_lock(), every, fleet=fleet, measured=measured) for name in every}
