"""What is made of the driver's answer about cards: as declared, or what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llamaherd import verify
from llamaherd.fleet import Rig
from llamaherd.verify_power import power_checks
from llamaherd.verify_show import print_report
from tests.support.power import BOTH, held
from tests.support.rigs import changed, gpu_rig, planned

PLAN = held(BOTH)
BARE = planned(gpu_rig())

HEADER = "index, uuid, pci.bus_id, power.limit [W], clocks.current.graphics [MHz]"
AS_PLANNED = {
    ("power unit", ""): "ActiveState=active\nUnitFileState=enabled",
    ("cards", ""): "\n".join(
        [
            HEADER,
            "0, GPU-3090, 00000000:01:00.0, 280.00, 210",
            "1, GPU-5090, 00000000:21:00.0, 450.00, 2400",
        ]
    ),
    ("held", "GPU-3090"): "280 - on",
    ("held", "GPU-5090"): "450 210,2400 on",
}
UNIT = "llamaherd-gpu-power.service is"


def judged(changes: dict[tuple[str, str], str]) -> dict[str, tuple[bool, str]]:
    assert PLAN.power
    return {name: (ok, detail) for name, ok, detail in power_checks(PLAN.power, AS_PLANNED | changes)}


def test_cards_as_declared_pass() -> None:
    assert judged({}) == {
        "unit": (True, f"{UNIT} active, enabled"),
        "new": (True, "may draw 450 W; held to 210 to 2400 MHz"),
        "old": (True, "may draw 280 W"),
    }


@pytest.mark.parametrize(
    ("what", "said", "name", "detail"),
    [
        (("power unit", ""), "ActiveState=failed\nUnitFileState=enabled", "unit", f"{UNIT} failed, enabled"),
        (("power unit", ""), "", "unit", f"{UNIT} not there, not there"),
        (("held", "GPU-5090"), "", "new", "its clocks are not held to 210 to 2400 MHz: converge"),
        (("held", "GPU-5090"), "450 210,900 on", "new", "its clocks are not held to 210 to 2400 MHz: converge"),
        (("cards", ""), "", "old", "nvidia-smi said nothing"),
        (("cards", ""), "No devices were found\n", "old", "No devices were found"),
        (("cards", ""), "timeout: failed to run command 'nvidia-smi'", "old", "timeout: failed to run command"),
        (("cards", ""), f"{HEADER}\n0, GPU-1, 00000000:01:00.0, 1, 1", "old", "GPU-3090 is not among the 1 cards"),
    ],
)
def test_what_is_not_as_declared_fails(what: tuple[str, str], said: str, name: str, detail: str) -> None:
    ok, found = judged({what: said})[name]
    assert not ok
    assert detail in found


def test_a_report_shows_cards_and_fails_where_one_is_not_as_declared(capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig.model_validate(changed(gpu_rig(), BOTH))
    right = verify.judge(rig, PLAN, AS_PLANNED)
    wrong = verify.judge(rig, PLAN, AS_PLANNED | {("power unit", ""): ""})
    assert [(check.name, check.ok) for check in right.cards] == [("unit", True), ("new", True), ("old", True)]
    assert [replace(each, instances=(), machine=()).ok for each in (right, wrong)] == [True, False]
    print_report(wrong)
    said = capsys.readouterr().out
    assert "duo: power limits and clocks of cards\n" in said
    assert "old       may draw 280 W\n" in said
    assert verify.judge(Rig.model_validate(gpu_rig()), BARE, AS_PLANNED).cards == ()
