"""Debian's own driver, from its own mirror, as far as a container can have it: all of it but the module.

The mirror has no headers of the kernel below a container, which Debian never had, so that its dkms has nothing to
compile. Here the rig tells that it is a container, and shows Debian's driver as loaded in that kernel. What is left
out is the module.
"""

from __future__ import annotations

import pytest

from tests.box.gpus.rigs import GpuRig
from tests.support.nvidia_packages import headers

pytestmark = [pytest.mark.parametrize("rig", ["debian-13"], indirect=True)]

OWN = {"branch": 550, "from": "distribution"}
PARTS = ("libcuda1", "libnvidia-ml1", "nvidia-smi", "nvidia-persistenced", "nvidia-kernel-dkms")


@pytest.fixture
def purged(driven: GpuRig) -> GpuRig:
    """The rig without NVIDIA's packages, and without headers of its kernel."""
    driven.sh("apt-get -q -y purge '*nvidia*' libcuda1 'linux-headers-*'; rm -f /etc/apt/preferences.d/*")
    driven.repository.withdraw(headers(driven.kernel))
    return driven


def test_it_is_not_mixed_with_nvidias(driven: GpuRig) -> None:
    before = driven.apt()
    driven.declare(driven.rig(**OWN))
    ended = driven.deploy()
    assert ended.code == 1, ended.output
    assert "this host has a driver of NVIDIA's, but the inventory declares `from: distribution`" in ended.output, (
        ended.output
    )
    assert driven.apt() == before


def test_it_comes_for_real_and_is_known_as_debians(purged: GpuRig) -> None:
    purged.declare(purged.rig(**OWN))
    ended = purged.deploy()
    assert ended.code == 1, ended.output
    assert f"there are no headers of kernel {purged.kernel}" in ended.output, ended.output
    assert not [part for part in PARTS if purged.version(part)]

    # NVIDIA's, of which apt knows newer ones, are kept out.
    version = purged.sh("apt-cache madison libcuda1 | awk '/non-free/ {print $3}' | head -n 1").partition("-")[0]
    assert version.startswith("550.")
    purged.sh(f"mv /usr/local/bin/systemd-detect-virt /root; echo {version} >/run/fake-kernel/module/nvidia/version")
    ended = purged.deploy()
    assert f"driver {version} is installed" in ended.output
    assert {part: purged.version(part).partition("-")[0] for part in PARTS} == dict.fromkeys(PARTS, version)
    assert "Failed to initialize NVML" in purged.sh("nvidia-smi", check=False)
    assert purged.sh("systemctl is-active nvidia-persistenced") == "active"
    assert ended.code == 0, ended.output
    again = purged.deploy()
    assert (again.code, again.changes) == (0, 0), again.output

    purged.declare(purged.rig())
    ended = purged.deploy()
    assert ended.code == 1, ended.output
    assert "this host has a driver of the distribution's, but the inventory declares `from: nvidia`" in ended.output
    assert "libcuda1" in ended.output
