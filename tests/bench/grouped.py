"""A rig with a group of two instances, as it is planned."""

from __future__ import annotations

from tests.support.rigs import changed, cpu_rig, planned

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
