"""A rig with a group of two instances, as it is planned."""

from __future__ import annotations

from llamaherd.inventory.schema import Rig
from llamaherd.plan import Plan
from tests.support.gateway import fleet_of
from tests.support.ours import plan
from tests.support.rigs import changed, cpu_rig, hub_lock, planned

_ALIKE = {"engine": "main", "port": 8090, "group": "card"}
RIG = changed(
    cpu_rig(),
    {
        "instances/one": {**_ALIKE, "model": "gemma", "context": 8192, "expect": {"decode": 10}},
        "instances/two": {**_ALIKE, "model": "moe", "context": 4096, "parallel": 2, "draft": {"mtp": 2}},
    },
)
GROUPED = planned(RIG)
CARD = next(each for each in GROUPED.instances if each.name == "card")
KEYED = {f"instances/{name}/api_key": {"env": "CHAT_KEY"} for name in ("one", "two")}


def watched() -> Plan:
    """The same rig with a key, which watches itself."""
    rig = Rig.model_validate(changed(RIG, KEYED))
    return plan(rig, hub_lock(), {"box": rig}, fleet=fleet_of("monitoring: {on: box}"))
