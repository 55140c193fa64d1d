"""Two gateways that have an address in turn."""

from __future__ import annotations

import os
import shutil

from llamaherd.inventory.schema import Rig
from llamaherd.lock import Lock
from llamaherd.plan import Plan, VirtualAddressPlan
from tests.support.gateway import fleet_of
from tests.support.ours import plan
from tests.support.rigs import changed, cpu_rig

KEEPALIVED = shutil.which("keepalived", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
ADDRESS = "10.77.0.50"
OWN = {"box": "10.77.0.1", "porch": "10.77.0.2"}
SHARED = f"""
gateway:
  on: [box, porch]
  address: {ADDRESS}
  listen: 0.0.0.0
  users: {{tom: {{key: {{env: TOM_KEY}}}}}}
  models: {{chat: {{serve: [box.chat, porch.chat]}}}}
"""
OVER_IPV6 = ("fd00:77::50", {"box": "fd00:77::1", "porch": "fd00:77::2"})


def sharing_rigs(own: dict[str, str] | None = None) -> dict[str, Rig]:
    """Two rigs that know each other by these addresses, and whose servers each gateway may use."""
    reached = {"instances/chat/listen": "0.0.0.0", "instances/chat/api_key": {"env": "CHAT_KEY"}}
    return {
        name: Rig.model_validate(changed(cpu_rig(), {"rig": name, "store": {"share": {"address": address}}, **reached}))
        for name, address in (own or OWN).items()
    }


def sharing_plans(text: str = SHARED, own: dict[str, str] | None = None) -> dict[str, Plan]:
    """The plans of both."""
    rigs = sharing_rigs(own)
    return {name: plan(rig, Lock(), rigs, fleet=fleet_of(text)) for name, rig in rigs.items()}


def shared_by(planned: Plan) -> VirtualAddressPlan:
    """What a rig has of the address."""
    assert planned.virtual_address
    return planned.virtual_address
