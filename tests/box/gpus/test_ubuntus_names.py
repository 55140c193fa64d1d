"""NVIDIA's packages for Ubuntu, whose names have the branch up to 580 and none from 590 on.

There is no Ubuntu here: a Debian 13 says that it is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.box.gpus.rigs import GpuRig, bare
from tests.support.fake_kernel import RTX_3090
from tests.support.nvidia_packages import headers, pinning, ubuntu_driver

PARTS = ("libnvidia-compute", "nvidia-utils", "nvidia-compute-utils", "nvidia-kernel-common", "nvidia-firmware")


@pytest.fixture
def ubuntu(tmp_path: Path) -> Iterator[GpuRig]:
    """A rig with a GPU, which says that it is Ubuntu 24.04."""
    rig = bare("ubuntu-24.04", tmp_path)
    rig.sh("printf 'ID=ubuntu\\nVERSION_ID=\"24.04\"\\nVERSION_CODENAME=noble\\n' >/etc/os-release")
    rig.fit([RTX_3090])
    drivers = [package for version in ("580.95.05", "590.48.01") for package in ubuntu_driver(version)]
    drivers += ubuntu_driver("595.71.05", "refused")
    rig.repository.publish(*drivers, *map(pinning, ("580", "590", "595")), headers(rig.kernel))
    with rig.repository:
        yield rig
    rig.host.down()


def has(rig: GpuRig, version: str, end: str, other_end: str) -> None:
    """The rig has this driver, under these names, and nothing of the one under other names."""
    own = [f"{part}{end}" for part in PARTS] + [f"nvidia-dkms{end}-open"]
    other = [f"{part}{other_end}" for part in PARTS] + [f"nvidia-dkms{other_end}-open"]
    assert {name: rig.version(name) for name in own} == dict.fromkeys(own, f"{version}-0ubuntu1")
    assert not [name for name in other if rig.version(name)]
    assert rig.sh("cat /sys/module/nvidia/version") == version
    assert rig.sh("nvidia-smi --query-gpu=name --format=csv,noheader") == RTX_3090.name


@pytest.mark.rare
def test_a_branch_to_names_without_one_and_back(ubuntu: GpuRig) -> None:
    for branch, version, end, other_end in (
        (580, "580.95.05", "-580", ""),
        (590, "590.48.01", "", "-580"),
        (580, "580.95.05", "-580", ""),
    ):
        ubuntu.declare(ubuntu.rig(branch=branch))
        ended = ubuntu.deploy()
        assert ended.code == 0, ended.output
        has(ubuntu, version, end, other_end)
    again = ubuntu.deploy()
    assert (again.code, again.changes) == (0, 0), again.output


@pytest.mark.rare
def test_one_that_does_not_come_up_goes_back_to_other_names(ubuntu: GpuRig) -> None:
    """What came new goes, and what went comes back from what was kept."""
    ubuntu.declare(ubuntu.rig())
    ended = ubuntu.deploy()
    assert ended.code == 0, ended.output
    ubuntu.declare(ubuntu.rig(branch=595))
    ended = ubuntu.deploy()
    assert ended.code == 1, ended.output
    assert "and 580.95.05 serves again: this host went back to it by itself" in ended.output
    has(ubuntu, "580.95.05", "-580", "")
    again = ubuntu.deploy()
    assert (again.code, "driver 595.71.05 was tried on 20" in again.output) == (1, True), again.output
    has(ubuntu, "580.95.05", "-580", "")
