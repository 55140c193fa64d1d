"""A driver brought, loaded by a real reboot in the middle of a run, kept, moved and brought back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.box.bench import Ended
from tests.box.gpus.rigs import GpuRig
from tests.support.deb import Package
from tests.support.nvidia_packages import debian_driver

pytestmark = pytest.mark.box

NEWEST = "580.105.08"
PARTS = (
    "nvidia-driver-cuda",
    "nvidia-kernel-open-dkms",
    "libcuda1",
    "libnvidia-ml1",
    "nvidia-smi",
    "nvidia-persistenced",
)
TRAPS = (
    "cuda",
    "cuda-13-0",
    "cuda-runtime-13-0",
    "cuda-drivers",
    "cuda-drivers-580",
    "nvidia-driver",
    "nvidia-kernel-dkms",
)

only_13 = pytest.mark.parametrize("rig", ["debian-13"], indirect=True)


def has(rig: GpuRig, version: str) -> None:
    """The rig has this driver: all its packages, the module on disk and in the kernel, and it answers."""
    assert {part: rig.version(part) for part in PARTS} == dict.fromkeys(PARTS, f"{version}-1")
    assert not [name for name in TRAPS if rig.version(name)]
    branch = version.partition(".")[0]
    pins = [name for name in ("580", "590", "595") if rig.version(f"nvidia-driver-pinning-{name}")]
    assert pins == [branch]
    assert rig.sh("modinfo -F version nvidia; cat /sys/module/nvidia/version") == f"{version}\n{version}"
    assert rig.sh("nvidia-smi --query-gpu=name --format=csv,noheader") == "NVIDIA GeForce RTX 3090"
    assert (
        rig.sh("systemctl is-active nvidia-persistenced; systemctl is-enabled nvidia-persistenced") == "active\nenabled"
    )


def moved(rig: GpuRig, *, reboots: int = 1, **driver: Any) -> Ended:
    """Declare a driver and deploy: it succeeds, boots the host as often as said, and the next run changes nothing."""
    boots = rig.host.boots()
    rig.declare(rig.rig(**driver))
    ended = rig.deploy()
    assert ended.code == 0, ended.output
    assert rig.host.boots() - boots == reboots, ended.output
    again = rig.deploy()
    assert (again.code, again.changes) == (0, 0), again.output
    assert rig.host.boots() - boots == reboots
    return ended


def test_a_bare_rig_gets_its_driver_and_boots_in_the_middle_of_the_run(rig: GpuRig, first: Ended) -> None:
    assert first.code == 0, first.output
    has(rig, NEWEST)
    assert "rebooting: no driver is loaded" in first.output
    log = rig.sh("cat /var/log/dpkg.log")
    pinned, driver = (
        log.index(f" install {name}:amd64") for name in ("nvidia-driver-pinning-580", "nvidia-driver-cuda")
    )
    assert pinned < driver
    moved(rig, reboots=0)


def test_what_appears_in_the_repository_moves_nothing(driven: GpuRig) -> None:
    """Neither our next run, nor the owner's upgrade, nor the distribution's by night, which moves all else."""
    other = [Package("other", f"{number}-1") for number in (1, 2)]
    driven.repository.publish(other[0])
    driven.sh("apt-get -q update; apt-get -q -y install other unattended-upgrades")
    driven.repository.publish(*debian_driver("580.126.20"), *debian_driver("595.71.05"), other[1])
    moved(driven, reboots=0)
    everything = 'Unattended-Upgrade::Origins-Pattern { "origin=*"; };'
    driven.sh(f"echo '{everything}' >/etc/apt/apt.conf.d/99everything; apt-get -q update; unattended-upgrade -v")
    assert driven.version("other") == "2-1"
    for how in ("upgrade", "dist-upgrade"):
        driven.sh(f"DEBIAN_FRONTEND=noninteractive apt-get -q -y {how}")
    has(driven, NEWEST)
    driven.sh("rm /etc/apt/apt.conf.d/99everything")
    moved(driven, reboots=0)


@only_13
def test_another_branch_and_back(driven: GpuRig) -> None:
    ended = moved(driven, branch=590)
    assert f"the kernel runs driver {NEWEST}" in ended.output
    has(driven, "590.48.01")
    # Declared by its version: what else the branch has does not matter.
    moved(driven, version="580.95.05")
    has(driven, "580.95.05")
    moved(driven, reboots=0)
    has(driven, "580.95.05")


@only_13
def test_killed_between_driver_and_reboot(driven: GpuRig) -> None:
    boots = driven.host.boots()
    driven.declare(driven.rig(branch=590))
    ended = driven.killed(signal.SIGKILL, lambda line: "driver 590.48.01 is installed" in line)
    assert "rebooting" not in ended.output
    assert driven.host.boots() == boots
    moved(driven, branch=590)
    has(driven, "590.48.01")


@pytest.fixture
def untouched(driven: GpuRig) -> Iterator[GpuRig]:
    """The rig with its driver, which a test does not change."""
    before, boots = driven.apt(), driven.host.boots()
    yield driven
    assert driven.apt() == before
    assert driven.host.boots() == boots


def refused(rig: GpuRig, *sentences: str, **driver: Any) -> None:
    """Declare a driver that cannot be: the run fails, with these sentences and no traceback."""
    rig.declare(rig.rig(**driver))
    ended = rig.deploy()
    assert ended.code == 1, ended.output
    assert "Traceback" not in ended.output
    assert [each for each in sentences if each not in ended.output] == [], ended.output


@only_13
def test_a_version_that_is_not_there(untouched: GpuRig) -> None:
    refused(untouched, "has no driver 580.99.99", "it has", "590.48.01", version="580.99.99")


@only_13
def test_a_driver_that_somebody_holds(driven: GpuRig) -> None:
    driven.sh("apt-mark hold libcuda1 nvidia-kernel-open-dkms")
    before = driven.apt()
    refused(driven, "on hold", "apt-mark unhold", branch=590)
    assert driven.apt() == before


@only_13
def test_no_headers_of_the_kernel_that_boots(driven: GpuRig) -> None:
    """Modules of the next driver could not be made: said before anything is moved, as the old one still works."""
    (held,) = (each for each in driven.repository.packages if each.name.startswith("linux-headers-"))
    driven.repository.withdraw(held)
    driven.sh(f"apt-get -q -y purge {held.name}")
    before = driven.apt()
    refused(driven, f"there are no headers of kernel {driven.kernel}", branch=590)
    assert driven.apt() == before
    driven.repository.publish(held)


@only_13
def test_a_repository_that_does_not_answer_or_is_another(untouched: GpuRig) -> None:
    """Ours is forgotten first, as on a host that has none yet."""
    sources = "/etc/apt/sources.list.d/llamaherd-nvidia.sources"
    kept = untouched.sh(f"cat {sources}; rm {sources}")
    before = untouched.apt()
    rig = untouched.rig(branch=590)
    rig["gpus"]["repository"]["fingerprint"] = "0" * 40
    untouched.declare(rig)
    ended = untouched.deploy()
    assert ended.code == 1, ended.output
    assert f"is not the one that is declared, {'0' * 40}" in ended.output
    assert untouched.repository.fingerprint in ended.output
    untouched.repository.status = 503
    refused(untouched, "could not be fetched", branch=590)
    untouched.repository.status = 200
    assert untouched.apt() == before
    untouched.sh(f"cat >{sources} <<'END'\n{kept}\nEND")


@only_13
def test_apt_is_waited_for(driven: GpuRig) -> None:
    """Who holds it is let finish; a run does not fail because the distribution's own updates are on their way."""
    driven.sh("systemd-run -q --unit other-apt flock /var/lib/dpkg/lock-frontend sleep 1")
    moved(driven, branch=590)
