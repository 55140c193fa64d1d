"""Which rigs back each other up, by what `fleet.yaml` says."""

from __future__ import annotations

import pytest

from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.pipeline.fleet_files import backing_up
from tests.support.rigs import changed, cpu_rig

RIGS = {
    name: Rig.model_validate(
        changed(cpu_rig(), {"rig": name, "instances/x": cpu_rig()["instances"]["chat"] | {"port": 9}})
    )
    for name in ("attic", "porch", "six", "six.lan")
}


def fleet(on: list[str], *serve: list[str], falls: bool = False) -> FleetFile:
    """Models by their servers; where one falls back, it does to the next one."""
    models = {
        f"m{number}": {"serve": each, **({"fallback": f"m{number + 1}"} if falls and number + 1 < len(serve) else {})}
        for number, each in enumerate(serve)
    }
    return FleetFile.model_validate({"gateway": {"on": on, "models": models}})


@pytest.mark.parametrize(
    ("declared", "groups"),
    [
        (None, []),
        (FleetFile(), []),
        (fleet(["attic"], ["attic.chat"]), []),
        (fleet(["attic"], ["attic.chat", "attic.x"]), []),
        (fleet(["attic"], ["attic.chat", "porch.chat"], ["six.chat"]), [{"attic", "porch"}]),
        (fleet(["attic", "six"], ["attic.chat", "porch.chat"]), [{"attic", "six"}, {"attic", "porch"}]),
        (fleet(["attic"], ["six.chat", "six.lan.chat"]), [{"six", "six.lan"}]),
        (fleet(["attic"], ["attic.chat", "gone.chat"]), []),
        (fleet(["attic"], ["attic.chat", "porch.chat"], ["porch.x", "attic.x"]), [{"attic", "porch"}]),
        (fleet(["attic"], ["attic.chat"], ["porch.chat"]), []),
        (fleet(["attic"], ["attic.chat"], ["porch.chat"], falls=True), [{"attic", "porch"}]),
        (fleet(["attic"], ["attic.chat"], ["attic.x"], ["porch.chat"], falls=True), [{"attic", "porch"}]),
        (fleet(["attic"], ["attic.chat", "six.chat"], ["porch.chat"], falls=True), [{"attic", "six"}]),
        (fleet(["attic"], ["attic.chat"], ["gone.chat"], falls=True), []),
    ],
)
def test_those_that_answer_for_a_model_or_are_gateways_together(
    declared: FleetFile | None, groups: list[set[str]]
) -> None:
    assert [set(each) for each in backing_up(declared, RIGS)] == groups
