"""A driver that does not come up after its reboot: the one before comes back by itself, and is said to have."""

from __future__ import annotations

import signal
import time

import pytest

from box.errors import BoxError
from tests.box.bench import HERD
from tests.box.gpus.rigs import GpuRig
from tests.box.gpus.test_driver import NEWEST, has, moved, only_13
from tests.support.nvidia_packages import Fault, debian_driver, pinning

pytestmark = [only_13]

REFUSED, HANGS = "610.43.02", "620.10.01"
KEPT = "/var/lib/llamaherd/driver-before"
PLACES = f"{KEPT} /etc/systemd/system/llamaherd-driver-undo.service /run/llamaherd/driver-armed"
UP = [HERD, "up", "-v", "--yes"]


@pytest.fixture
def tempted(driven: GpuRig) -> GpuRig:
    """The rig with the newest driver of 580, whose repository has two that do not come up."""
    faults: dict[str, Fault] = {REFUSED: "refused", HANGS: "hangs"}
    if not driven.repository.get(f"libcuda1_{HANGS}-1_amd64.deb"):
        for version, fault in faults.items():
            driven.repository.publish(*debian_driver(version, fault), pinning(version[:3]))
    # By its version: one of the same branch that other tests have left would stay.
    driven.declare(driven.rig(version=NEWEST))
    ended = driven.up("--yes")
    assert ended.code == 0, ended.output
    has(driven, NEWEST)
    driven.sh("rm -f /var/lib/llamaherd/driver-refused")
    return driven


def went_back(rig: GpuRig) -> None:
    """It has the former driver, which answers, and nothing is left of what was kept."""
    has(rig, NEWEST)
    assert rig.sh(f"ls -d {PLACES} 2>/dev/null", check=False) == ""
    assert rig.sh("cut -f 1,4 /var/lib/llamaherd/driver-refused") == f"{REFUSED}\t{NEWEST}"


def settles(rig: GpuRig, boots: int) -> None:
    """Wait until it has booted so often, and nothing is judged any more."""
    asked = f"test ! -d {KEPT} && systemctl is-system-running --wait"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            if rig.host.boots() >= boots and rig.sh(asked, check=False) in ("running", "degraded"):
                return
        except BoxError:
            pass  # it is going down
        time.sleep(1)
    raise AssertionError(f"after 300 s it has booted {rig.host.boots()} times, not {boots}")


def test_one_that_the_kernel_refuses_goes_back_and_is_not_tried_again(tempted: GpuRig) -> None:
    boots = tempted.host.boots()
    tempted.declare(tempted.rig(branch=610))
    ended = tempted.up("--yes")
    assert ended.code == 1, ended.output
    assert f"the host restores {NEWEST} if 610 does not respond" in ended.output
    assert f"driver {NEWEST} is kept" in ended.output
    assert f"driver {REFUSED} did not come up (nvidia-smi: NVIDIA-SMI has failed" in ended.output
    assert f"and {NEWEST} serves again: this host went back to it by itself" in ended.output
    assert tempted.host.boots() == boots + 2
    went_back(tempted)

    before = tempted.apt()
    again = tempted.up("--yes")
    assert again.code == 1, again.output
    assert f"driver {REFUSED} was tried on 20" in again.output
    assert f"and {NEWEST} serves as before" in again.output
    assert "`herd up --retry` to try the same again" in again.output
    assert (tempted.apt(), tempted.host.boots()) == (before, boots + 2)

    retried = tempted.up("--yes", "--retry")
    assert retried.code == 1, retried.output
    assert f"driver {REFUSED} did not come up" in retried.output
    assert tempted.host.boots() == boots + 4
    went_back(tempted)


def test_killed_before_the_reboot_it_goes_back_at_the_next_boot_without_a_network(tempted: GpuRig) -> None:
    tempted.declare(tempted.rig(branch=610))
    tempted.killed(signal.SIGKILL, lambda line: f"driver {REFUSED} is installed" in line, UP)
    tempted.repository.status = 503
    boots = tempted.host.boots()
    # Not waited for as other boots are: systemd has not started all until the driver is judged.
    tempted.host.exec("systemctl", "reboot")
    settles(tempted, boots + 2)
    went_back(tempted)
    ended = tempted.up("--yes")
    assert (ended.code, f"driver {REFUSED} was tried on 20" in ended.output) == (1, True), ended.output


@pytest.mark.rare
def test_killed_after_the_reboot_and_booted_while_it_is_judged(tempted: GpuRig) -> None:
    """Who asks meanwhile is told; a boot in the middle begins anew."""
    boots = tempted.host.boots()
    tempted.declare(tempted.rig(branch=610))
    tempted.killed(signal.SIGKILL, lambda line: "waiting for it to come back" in line, UP)
    assert tempted.host.boots() == boots + 1
    ended = tempted.up("--yes")
    assert (ended.code, "still checks it, or rolls back" in ended.output) == (1, True), ended.output
    tempted.host.exec("systemctl", "reboot")
    settles(tempted, boots + 3)
    went_back(tempted)


@pytest.mark.rare
def test_one_that_hangs_goes_back_too(tempted: GpuRig) -> None:
    boots = tempted.host.boots()
    tempted.declare(tempted.rig(branch=620))
    ended = tempted.up("--yes")
    assert ended.code == 1, ended.output
    assert f"driver {HANGS} did not come up (nvidia-smi hangs), and {NEWEST} serves again" in ended.output
    assert tempted.host.boots() == boots + 2
    has(tempted, NEWEST)


@pytest.mark.rare
def test_one_that_cannot_be_kept_is_said_before(tempted: GpuRig) -> None:
    """What the repository has no more and apt has not kept: there is no way back, and the new one comes even so."""
    older = debian_driver(NEWEST)
    tempted.repository.withdraw(*older)
    tempted.sh(f"rm -f /var/cache/apt/archives/*_{NEWEST}-1_*.deb; apt-get -q update")
    ended = moved(tempted, branch=590)
    tempted.repository.publish(*older)
    assert f"driver {NEWEST} cannot be kept, so that nothing brings it back by itself" in ended.output
    assert tempted.sh(f"ls -d {PLACES} 2>/dev/null", check=False) == ""
    has(tempted, "590.48.01")


@pytest.mark.rare
def test_one_that_answers_leaves_nothing_behind(tempted: GpuRig) -> None:
    ended = moved(tempted, branch=590)
    assert f"driver {NEWEST} is kept" in ended.output
    assert tempted.sh(f"ls -d {PLACES} 2>/dev/null", check=False) == ""
