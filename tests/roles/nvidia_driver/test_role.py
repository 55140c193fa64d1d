"""The role that brings the driver on pyinfra's @fake connector: a virgin host, one as planned, and drifted ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamaherd.deploy import commands
from llamaherd.plan import Plan
from tests.roles.power.test_role import HOLDS, declared
from tests.support.fake import run
from tests.support.power import BOTH
from tests.support.rigs import GONE, KERNEL, changed, converged, planned

PACKAGES, LOADED, REBOOT = (
    f"nvidia_driver | {name}" for name in ("packages", "loaded", "reboot, if only that loads it")
)
BOOTED = "nvidia_driver.require_booted"
"""Is run until it succeeds."""
SYSTEMS = [
    *((os, "nvidia", 580) for os in ("debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04")),
    *((os, "distribution", 580) for os in ("ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04")),
    ("debian-12", "distribution", 535),
    ("debian-13", "distribution", 550),
    ("ubuntu-24.04", "nvidia", 595),
]


def plan_of(tmp_path: Path, os: str = "ubuntu-24.04", source: str = "nvidia", branch: int = 580, **keys: Any) -> Plan:
    """No server at all, as Debian 12 has no compose."""
    rig = changed(declared(tmp_path), {"instances/small": GONE, "models/gemma": GONE, "engines/image": GONE})
    return planned(rig, {"host/os": os, "gpus/driver": {"branch": branch, "from": source, **keys}})


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """No time passes but what is slept, and that is noted."""
    slept: list[float] = []
    monkeypatch.setattr(commands, "sleep", slept.append)
    monkeypatch.setattr(commands, "monotonic", lambda: sum(slept))
    return slept


@pytest.mark.parametrize(("os", "source", "branch"), SYSTEMS)
def test_a_virgin_host_gets_repository_and_packages(tmp_path: Path, os: str, source: str, branch: int) -> None:
    plan = plan_of(tmp_path, os, source, branch)
    ran = run(plan, [f"os\t{os}", "arch\tx86_64", "systemd\tyes", f"free\t/var/lib\t{10**12}\toverlay"])
    assert not ran.failed
    # Nothing has come of it: the host answers as before, and there is nothing that could be loaded.
    assert [name for name in ran.changed if name.startswith("nvidia_driver")] == [PACKAGES]
    scripts = "\n".join(ran.scripts)
    assert ("developer.download.nvidia.com" in scripts) == (source == "nvidia")
    assert plan.driver
    for package in plan.driver.packages:
        assert package in scripts


@pytest.mark.parametrize(("os", "source", "branch"), SYSTEMS)
def test_a_host_that_is_as_planned_is_left_alone(tmp_path: Path, os: str, source: str, branch: int) -> None:
    plan = plan_of(tmp_path, os, source, branch)
    ran = run(plan, converged(plan, {}))
    assert (ran.changed, ran.failed) == ([], False)
    assert {PACKAGES, LOADED, REBOOT} <= set(ran.operations)
    assert ran.commands == ["inspect"], "one look for all"


DRIFTS = {
    "a package is gone": (("\tnvidia-utils-580\t", "\tnvidia-xconfig\t"), [PACKAGES]),
    "a part of another branch": (
        ("nvidia\tuvm", "nvidia\tuvm\nnvidia\tpackage\tlibnvidia-cfg1-570\t570.1.1-1\tinstalled"),
        [PACKAGES],
    ),
    "headers no longer follow": (("linux-headers-generic", "linux-headers-other"), [PACKAGES]),
    "the daemon would not start": (("persistence\tactive\tenabled", "persistence\tactive\tdisabled"), [PACKAGES]),
    "the daemon does not run": (("persistence\tactive", "persistence\tfailed"), [LOADED]),
    "the module for memory": (("nvidia\tuvm", "nvidia\tfree\t99999999999"), [LOADED]),
    "another is loaded": (("loaded\t580.95.05", "loaded\t580.65.06"), [REBOOT]),
    "a note that did its work": (("nvidia\tuvm", f"nvidia\tuvm\nnvidia\ttried\t580.95.05 {KERNEL}"), [LOADED]),
}


@pytest.mark.parametrize("case", DRIFTS)
def test_a_drift_changes_what_it_concerns(tmp_path: Path, waits: list[float], case: str) -> None:
    drift, concerned = DRIFTS[case]
    plan = plan_of(tmp_path)
    world = "\n".join(converged(plan, {})).replace(*drift)
    assert world != "\n".join(converged(plan, {}))
    ran = run(plan, world.splitlines())
    assert (ran.changed, ran.failed) == (concerned, False)
    assert bool(waits) == (concerned == [REBOOT])


def test_a_reboot_is_asked_for_waited_for_and_judged(tmp_path: Path, waits: list[float]) -> None:
    plan = plan_of(tmp_path)
    world = [line.replace("loaded\t580.95.05", "loaded\t580.65.06") for line in converged(plan, {})]
    ran = run(plan, world)
    verbs = [each["verb"] for each in ran.documents if each["verb"].startswith("nvidia_driver")]
    assert verbs == ["nvidia_driver.reboot", BOOTED, "nvidia_driver.require_driver"]
    assert waits == [commands.ASK_SECONDS]


def test_a_host_that_does_not_come_back_fails(
    tmp_path: Path, waits: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    plan = plan_of(tmp_path)
    world = [line.replace("loaded\t580.95.05", "loaded\t580.65.06") for line in converged(plan, {})]
    caplog.set_level("INFO")
    ran = run(plan, world, broken=lambda script: BOOTED in script)
    assert ran.failed
    assert "did not come back within 900 s of its reboot" in caplog.text
    assert sum(waits) == commands.REBOOT_SECONDS
    assert caplog.text.count("waiting for it to come back") == commands.REBOOT_SECONDS // commands.TELL_SECONDS


@pytest.mark.parametrize(
    ("keys", "drift", "said"),
    [
        ({"reboot": False}, ("loaded\t580.95.05", "loaded\t580.65.06"), "the inventory contains `reboot: false`"),
        ({}, ("loaded\t580.95.05", f"tried\t580.95.05 {KERNEL}"), "was rebooted for driver 580.95.05 already"),
    ],
    ids=["not allowed", "tried already"],
)
def test_a_reboot_that_may_not_be_is_said(
    tmp_path: Path,
    waits: list[float],
    caplog: pytest.LogCaptureFixture,
    keys: dict[str, Any],
    drift: tuple[str, str],
    said: str,
) -> None:
    plan = plan_of(tmp_path, **keys)
    ran = run(plan, [line.replace(*drift) for line in converged(plan, {})])
    assert ran.failed
    assert said in caplog.text
    assert waits == []


def test_cards_that_the_driver_will_show_stop_nothing_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = planned(declared(tmp_path), {**BOTH, "gpus/driver": {"branch": 580}})
    world = ["os\tubuntu-24.04", "arch\tx86_64", "systemd\tyes", f"free\t/var/lib\t{10**12}\toverlay"]
    ran = run(plan, [*world, f"store\t/var/lib\t{10**12}\toverlay\toverlay\trw", "driver\tthere is no nvidia-smi"])
    assert PACKAGES in ran.changed
    assert (ran.failed, HOLDS in ran.changed) == (True, False)
    assert "NVIDIA's driver does not respond: there is no nvidia-smi" in caplog.text
