"""The ground that the tests of drivers stand on: real apt against a repository of our own, real dkms, a real reboot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.box.gpu_rigs import RELEASES, GpuRig, bare
from tests.support.apt_repository import AptRepository
from tests.support.fake_kernel import RTX_3090
from tests.support.nvidia_packages import debian_driver, headers, metapackages, pinning

pytestmark = pytest.mark.box

INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get -y -q install --no-install-recommends"


@pytest.fixture(scope="module", params=RELEASES)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuRig]:
    """A rig with a card, and nothing else."""
    made = bare(request.param, tmp_path_factory.mktemp("rig"))
    made.fit([RTX_3090])
    yield made
    made.host.down()


@pytest.fixture(scope="module")
def repository(rig: GpuRig) -> Iterator[AptRepository]:
    """Branch 580 and what leads astray, where the rig can reach it, and known to its apt."""
    packages = [*debian_driver("580.95.05"), pinning("580"), headers(rig.kernel), *metapackages("580.95.05", "13.0")]
    with AptRepository(*packages, host=rig.address) as served:
        rig.use(served.declared)
        yield served


def test_a_rig_has_its_card_and_a_reboot_is_one(rig: GpuRig) -> None:
    looks = "cat /proc/sys/kernel/random/boot_id; ls -A /sys/bus/pci/devices /sys/module; ls -d /run/mark /etc/mark"
    rig.sh("touch /run/mark /etc/mark")
    boot, *before = rig.sh(looks).splitlines()
    rig.host.reboot()
    next_boot, *after = rig.sh(looks, check=False).splitlines()
    assert next_boot != boot
    assert before == ["/sys/bus/pci/devices:", "0000:01:00.0", "", "/sys/module:", "/etc/mark", "/run/mark"]
    assert after == before[:-1]


def test_apt_takes_only_what_the_key_has_signed(rig: GpuRig, repository: AptRepository) -> None:
    rig.sh("apt-get -q -o APT::Update::Error-Mode=any update")
    with AptRepository(pinning("595"), host=rig.address) as stranger:
        source = f"deb [signed-by=/etc/apt/keyrings/own.asc] {stranger.url}/ /"
        rig.sh(f"echo '{source}' >/etc/apt/sources.list.d/stranger.list")
        said = rig.sh("apt-get -q -o APT::Update::Error-Mode=any update 2>&1", check=False)
        rig.sh("rm /etc/apt/sources.list.d/stranger.list")
    assert "signature" in said, said
    assert "NO_PUBKEY" in said or "Missing key" in said, said
    assert repository.packages


def test_a_driver_is_there_after_a_boot_and_not_before(rig: GpuRig, repository: AptRepository) -> None:
    rig.sh("apt-get -q update")
    rig.sh(f"{INSTALL} linux-headers-{rig.kernel} nvidia-driver-pinning-580 python3 kmod pciutils")
    rig.sh(f"{INSTALL} nvidia-driver-cuda nvidia-kernel-open-dkms")
    assert rig.sh("modinfo -F version nvidia") == "580.95.05"
    assert rig.sh("modinfo -F depends nvidia-uvm") == "nvidia"
    assert "installed" in rig.sh("dkms status")
    assert "NVIDIA" in rig.sh("lspci -d 10de:")
    assert "couldn't communicate" in rig.sh("nvidia-smi", check=False)
    rig.host.reboot()
    assert rig.sh("cat /sys/module/nvidia/version") == "580.95.05"
    assert "Open Kernel Module" in rig.sh("cat /proc/driver/nvidia/version")
    assert rig.sh("nvidia-smi --query-gpu=name --format=csv,noheader") == RTX_3090.name

    repository.publish(*debian_driver("580.105.08"), *debian_driver("590.48.01"), *metapackages("590.48.01", "13.1"))
    rig.sh("apt-get -q update")
    assert "Inst nvidia-driver-cuda [580.95.05-1] (580.105.08-1" in rig.sh("apt-get -s upgrade")
    rig.sh(f"{INSTALL} libnvidia-ml1 nvidia-smi nvidia-driver-cuda")
    assert rig.version("libnvidia-ml1") == "580.105.08-1"
    assert "version mismatch" in rig.sh("nvidia-smi", check=False)


def test_a_metapackage_without_the_pin_drags_in_the_next_branch(rig: GpuRig, repository: AptRepository) -> None:
    """What the role must not do; else a test that it has not done so would prove nothing."""
    repository.publish(*debian_driver("590.48.01"))
    rig.sh("apt-get -q update; apt-get -y -q purge nvidia-driver-pinning-580")
    assert "Inst nvidia-driver-cuda " in rig.sh(f"{INSTALL} -s cuda-drivers-580")
    assert "(590.48.01-1" in rig.sh(f"{INSTALL} -s cuda-drivers-580")
