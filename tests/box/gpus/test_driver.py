"""A driver brought, loaded by a real reboot in the middle of a run, kept, moved and brought back."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest

from tests.box.bench import Declared, Ended
from tests.box.gpus.rigs import GpuRig
from tests.support.deb import Package
from tests.support.nvidia_packages import debian_driver, headers, pinning

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
    # What a package has left behind in preferences would count on.
    assert rig.sh("ls /etc/apt/preferences.d | grep pinning") == f"nvidia-driver-pinning-{branch}"
    assert rig.sh("modinfo -F version nvidia; cat /sys/module/nvidia/version") == f"{version}\n{version}"
    assert rig.sh("nvidia-smi --query-gpu=name --format=csv,noheader") == "NVIDIA GeForce RTX 3090"
    assert (
        rig.sh("systemctl is-active nvidia-persistenced; systemctl is-enabled nvidia-persistenced") == "active\nenabled"
    )


def unchanged(rig: GpuRig) -> None:
    """The next run changes nothing, and does not boot the host."""
    boots = rig.host.boots()
    ended = rig.deploy()
    assert (ended.code, ended.changes) == (0, 0), ended.output
    assert rig.host.boots() == boots


def moved(rig: GpuRig, **driver: Any) -> Ended:
    """Declare a driver and deploy: it succeeds, boots the host once, and the next run changes nothing."""
    boots = rig.host.boots()
    rig.declare(rig.rig(**driver))
    ended = rig.deploy()
    assert ended.code == 0, ended.output
    assert rig.host.boots() == boots + 1, ended.output
    unchanged(rig)
    return ended


def refused(rig: GpuRig, declared: Declared, *sentences: str) -> None:
    """Declare what cannot be: the run fails with these sentences and no traceback, and the host is as it was."""
    before, boots = rig.apt(), rig.host.boots()
    rig.declare(declared)
    ended = rig.deploy()
    assert ended.code == 1, ended.output
    assert "Traceback" not in ended.output
    assert [each for each in sentences if each not in ended.output] == [], ended.output
    assert rig.apt() == before
    assert rig.host.boots() == boots


def test_a_bare_rig_gets_its_driver_and_boots_in_the_middle_of_the_run(rig: GpuRig, first: Ended) -> None:
    assert first.code == 0, first.output
    has(rig, NEWEST)
    assert "rebooting: no driver is loaded" in first.output
    log = rig.sh("cat /var/log/dpkg.log")
    assert log.index(" install nvidia-driver-pinning-580:") < log.index(" install nvidia-driver-cuda:")
    unchanged(rig)


def test_what_appears_in_the_repository_moves_nothing(driven: GpuRig) -> None:
    """Neither our next run, nor the owner's upgrade, nor the distribution's by night, which moves all else."""
    older, newer = (Package("other", f"{number}-1") for number in (1, 2))
    driven.repository.publish(older)
    driven.sh("apt-get -q update; apt-get -q -y install --no-install-recommends other unattended-upgrades")
    driven.repository.publish(*debian_driver("580.126.20"), *debian_driver("595.71.05"), newer)
    everything = 'Unattended-Upgrade::Origins-Pattern { "origin=*"; };'
    driven.sh(f"echo '{everything}' >/etc/apt/apt.conf.d/99everything; apt-get -q update; unattended-upgrade -v")
    driven.sh("rm /etc/apt/apt.conf.d/99everything")
    assert driven.version("other") == "2-1"
    driven.sh("DEBIAN_FRONTEND=noninteractive apt-get -q -y dist-upgrade")
    has(driven, NEWEST)
    unchanged(driven)


@only_13
def test_killed_between_driver_and_reboot(driven: GpuRig) -> None:
    """The next run boots the host once, and all is well."""
    boots = driven.host.boots()
    driven.declare(driven.rig(branch=590))
    ended = driven.killed(signal.SIGKILL, lambda line: "driver 590.48.01 is installed" in line)
    assert "rebooting" not in ended.output
    assert driven.host.boots() == boots
    assert "version mismatch" in driven.sh("nvidia-smi", check=False)
    ended = moved(driven, branch=590)
    assert f"rebooting: the kernel runs driver {NEWEST}, its libraries are 590.48.01" in ended.output
    has(driven, "590.48.01")


@only_13
def test_back_to_a_version_of_the_branch_before(driven: GpuRig) -> None:
    """While the distribution's own updates run: they are waited for."""
    hold = "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, 2); time.sleep(20)"
    driven.sh(f'systemd-run -q --unit other-apt python3 -c "{hold}"; sleep 1')
    moved(driven, version="580.95.05")
    has(driven, "580.95.05")


@only_13
def test_a_version_that_is_not_there(driven: GpuRig) -> None:
    refused(driven, driven.rig(version="580.99.99"), "has no driver 580.99.99", "it has 580.95.05", "590.48.01")


@only_13
def test_a_driver_that_somebody_holds(driven: GpuRig) -> None:
    driven.sh("apt-mark hold libcuda1 nvidia-kernel-open-dkms")
    refused(driven, driven.rig(branch=595), "on hold", "apt-mark unhold")
    driven.sh("apt-mark unhold libcuda1 nvidia-kernel-open-dkms")


@only_13
def test_no_headers_of_the_kernel_that_boots(driven: GpuRig) -> None:
    """Modules of the next driver could not be made: said before anything is moved, as the old one still works."""
    package = headers(driven.kernel)
    driven.repository.withdraw(package)
    driven.sh(f"apt-get -q -y purge {package.name}")
    refused(driven, driven.rig(branch=595), f"there are no headers of kernel {driven.kernel}")
    driven.repository.publish(package)
    driven.sh(f"apt-get -q update; apt-get -q -y install {package.name}")


@only_13
def test_a_repository_that_is_another_or_does_not_answer(driven: GpuRig) -> None:
    """Ours is forgotten first, as on a host that has none yet."""
    sources = "/etc/apt/sources.list.d/llamaherd-nvidia.sources"
    driven.sh(f"mv {sources} /root")
    rig = driven.rig(branch=595)
    wrong = rig["gpus"]["repository"] | {"fingerprint": "0" * 40}
    another = rig | {"gpus": rig["gpus"] | {"repository": wrong}}
    refused(driven, another, f"is not the one that is declared, {'0' * 40}", driven.repository.fingerprint)
    driven.repository.status = 503
    refused(driven, rig, "could not be fetched")
    driven.repository.status = 200
    driven.sh(f"mv /root/llamaherd-nvidia.sources {sources}; apt-get -q update")


@only_13
def test_packages_without_anything_in_them_are_no_driver(driven: GpuRig) -> None:
    """apt reports success, as with `cuda-drivers` 615.71.09, whose packages bring no driver: the module is proved."""
    version = "620.70.06"
    hollow = [replace(each, depends=(), files={}, scripts={}) for each in debian_driver(version)]
    driven.repository.publish(*hollow, pinning("620"))
    boots = driven.host.boots()
    driven.declare(driven.rig(branch=620))
    ended = driven.deploy()
    assert ended.code == 1, ended.output
    assert "Traceback" not in ended.output
    assert f"driver {version} is installed, and kernel {driven.kernel}, which the next boot starts, has" in ended.output
    assert driven.host.boots() == boots
    assert driven.sh("cat /sys/module/nvidia/version") != version
    driven.declare(driven.rig(version=NEWEST))
    ended = driven.deploy()
    assert ended.code == 0, ended.output
    has(driven, NEWEST)
