"""What is made of the driver's answer about GPUs: as declared, or what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from llamaherd.cli.verification import print_report
from llamaherd.inventory.schema import Rig
from roles.power import power_checks
from tests.support import ours as verify
from tests.support.power import BOTH, OLD, held
from tests.support.rigs import changed, gpu_rig, planned

DECLARED = {**BOTH, OLD + "fans": "70%"}
PLAN = held(DECLARED)
BARE = planned(gpu_rig())


def notes(old: str, new: str) -> str:
    """Return the notes of both GPUs, as grep prints them."""
    return f"/run/llamaherd/gpu-power/GPU-3090:{old}\n/run/llamaherd/gpu-power/GPU-5090:{new}"


HEADER = "index, uuid, pci.bus_id, power.limit [W], clocks.current.graphics [MHz], fan.speed [%]"
AS_PLANNED = {
    ("power unit", ""): "ActiveState=active\nUnitFileState=enabled",
    ("cards", ""): "\n".join(
        [
            HEADER,
            "0, GPU-3090, 00000000:01:00.0, 280.00, 210, 70",
            "1, GPU-5090, 00000000:21:00.0, 450.00, 2400, [N/A]",
        ]
    ),
    ("held", ""): notes("280 - on 70", "450 210,2400 on -"),
}
UNIT = "llamaherd-gpu-power.service is"
NOT_HELD = "its clocks are not limited to 210 to 2400 MHz: `herd up`"


def judged(changes: dict[tuple[str, str], str]) -> dict[str, tuple[bool, str]]:
    assert PLAN.power
    return {each.name: (each.ok, each.detail) for each in power_checks(PLAN.power, AS_PLANNED | changes)}


def test_cards_as_declared_pass() -> None:
    assert judged({}) == {
        "unit": (True, f"{UNIT} active, enabled"),
        "new": (True, "may draw 450 W; limited to 210 to 2400 MHz"),
        "old": (True, "may draw 280 W; fans at 70 %"),
    }


@pytest.mark.parametrize(
    ("what", "said", "name", "detail"),
    [
        (("power unit", ""), "ActiveState=failed\nUnitFileState=enabled", "unit", f"{UNIT} failed, enabled"),
        (("power unit", ""), "", "unit", f"{UNIT} not there, not there"),
        (("held", ""), "", "new", NOT_HELD),
        (
            ("held", ""),
            notes("280 - on 70", "450 210,900 on"),
            "new",
            "its clocks are not limited to 210 to 2400 MHz: `herd up`",
        ),
        (("cards", ""), "", "old", "nvidia-smi printed nothing"),
        (("cards", ""), "No devices were found\n", "old", "No devices were found"),
        (("cards", ""), "timeout: failed to run command 'nvidia-smi'", "old", "timeout: failed to run command"),
        (("cards", ""), f"{HEADER}\n0, GPU-1, 00000000:01:00.0, 1, 1, 1", "old", "GPU-3090 is not among the 1 GPUs"),
    ],
)
def test_what_is_not_as_declared_fails(what: tuple[str, str], said: str, name: str, detail: str) -> None:
    ok, found = judged({what: said})[name]
    assert not ok
    assert detail in found


@pytest.mark.parametrize(
    ("speed", "note", "found"),
    [
        ("67", "280 - on 70", (True, "may draw 280 W; fans at 67 %")),
        (
            "45",
            "280 - on 70",
            (False, "its fans run at 45 %, declared are 70 %: another was set, or it is too hot; `herd up` sets ours"),
        ),
        ("70", "280 - on", (False, "its fans are not held at 70 %: `herd up`")),
        ("70", "280 - on ?", (False, "its fans are not held at 70 %: `herd up`")),
        ("[N/A]", "280 - on 70", (False, "has no fans that can be set, declared are 70 %")),
    ],
)
def test_fans_are_compared(speed: str, note: str, found: tuple[bool, str]) -> None:
    header = HEADER.replace("clocks.current.graphics", "clocks.gr")
    cards = f"{header}\n0, GPU-3090, 00000000:01:00.0, 280.00, 210, {speed}"
    assert judged({("cards", ""): cards, ("held", ""): notes(note, "450 210,2400 on -")})["old"] == found


def test_a_report_shows_cards_and_fails_where_one_is_not_as_declared(capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig.model_validate(changed(gpu_rig(), DECLARED))
    right = verify.judge(rig, PLAN, AS_PLANNED)
    wrong = verify.judge(rig, PLAN, AS_PLANNED | {("power unit", ""): ""})
    assert [(check.name, check.ok) for check in right.cards] == [("unit", True), ("new", True), ("old", True)]
    assert [replace(each, instances=(), machine=()).ok for each in (right, wrong)] == [True, False]
    print_report(wrong, Console(highlight=False), verbose=True)
    said = capsys.readouterr().out
    assert "\n  power limits, clocks and fans of GPUs\n" in said
    assert "old       may draw 280 W; fans at 70 %\n" in said
    assert verify.judge(Rig.model_validate(gpu_rig()), BARE, AS_PLANNED).cards == ()
