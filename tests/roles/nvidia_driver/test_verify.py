"""What is made of a host's answer about its driver: as declared, or what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from llamaherd.cli.verification import print_report
from llamaherd.inventory.schema import Rig
from roles.nvidia_driver import driver_checks
from tests.support import ours as verify
from tests.support.rigs import changed, gpu_rig, planned

DRIVER = {"gpus/driver": {"branch": 580}}
PLAN = planned(gpu_rig(), DRIVER)
# The line of an H100 whose driver is 580.159.04, and that of a driver before the open modules.
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder@U22)"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2026"
AS_PLANNED = {
    ("driver", ""): f"{OPEN}\nGCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)",
    ("driver by its library", ""): "580.159.04",
    ("driver on disk", ""): "580.159.04",
    ("persistence daemon", ""): "LoadState=loaded\nActiveState=active",
}


def judged(changes: dict[tuple[str, str], str]) -> dict[str, tuple[bool, str]]:
    assert PLAN.driver
    return {each.name: (each.ok, each.detail) for each in driver_checks(PLAN.driver, AS_PLANNED | changes)}


def test_a_driver_as_declared_passes() -> None:
    assert judged({}) == {
        "driver": (True, "580.159.04 is loaded, and its library is of that version"),
        "module": (True, "the running kernel has 580.159.04 on disk"),
        "daemon": (True, "nvidia-persistenced is active"),
    }


@pytest.mark.parametrize(
    ("what", "said", "name", "detail"),
    [
        ("driver", "", "driver", "no driver is loaded"),
        ("driver", CLOSED, "driver", "550.163.01 is loaded, declared is 580"),
        ("driver by its library", "580.173.02", "driver", "580.159.04 is loaded, and its library is 580.173.02"),
        ("driver by its library", "Failed to initialize NVML: Driver/library version mismatch", "driver", "mismatch"),
        ("driver by its library", "", "driver", "nvidia-smi reports: nothing"),
        ("driver on disk", "580.173.02", "module", "has 580.173.02 on disk, loaded is 580.159.04"),
        ("driver on disk", "", "module", "has no module on disk"),
        ("persistence daemon", "LoadState=loaded\nActiveState=failed", "daemon", "is failed"),
        ("persistence daemon", "LoadState=not-found\nActiveState=inactive", "daemon", "is not there"),
    ],
)
def test_what_is_not_as_declared_fails(what: str, said: str, name: str, detail: str) -> None:
    ok, found = judged({(what, ""): said})[name]
    assert not ok
    assert detail in found


def test_a_report_shows_the_driver_and_fails_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig.model_validate(changed(gpu_rig(), DRIVER))
    right = verify.judge(rig, PLAN, AS_PLANNED)
    wrong = verify.judge(rig, PLAN, AS_PLANNED | {("driver", ""): ""})
    assert [replace(each, instances=(), machine=()).ok for each in (right, wrong)] == [True, False]
    print_report(wrong, Console(highlight=False), verbose=True)
    said = capsys.readouterr().out
    assert "\n  NVIDIA driver\n" in said
    assert "no driver is loaded" in said
    assert verify.judge(Rig.model_validate(gpu_rig()), planned(gpu_rig()), AS_PLANNED).driver == ()
