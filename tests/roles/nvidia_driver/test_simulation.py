"""What apt reports that it would do, and what of it belongs to no driver."""

from __future__ import annotations

import pytest

from roles.nvidia_driver.changes import NAMES
from roles.nvidia_driver.onhost import (
    Action,
    find_problems,
    new_parts,
    next_kernel,
    parse_simulation,
    replaced_parts,
    upstream,
    version_order,
)
from tests.support.driver_host import KERNEL, driver_host
from tests.support.played_host import File

SAID = """\
NOTE: This is only a simulation!
Reading package lists...
The following packages will be REMOVED:
  libnvidia-cfg1-570
Remv libnvidia-cfg1-570 [570.211.01-1]
Purg nvidia-settings [570.1-1]
Inst nvidia-modprobe [570.133.07-1] (590.48.01-1 NVIDIA:590 [amd64]) []
Inst libcuda1 [1:580.95.05-1] (1:590.48.01-1 NVIDIA:590 [amd64])
Inst libnvidia-ml1:i386 (590.48.01-1 NVIDIA:590 [i386])
Inst dkms (3.1-1 Debian:13 [all])
Conf libcuda1 (590.48.01-1 NVIDIA:590 [amd64])
"""


def test_what_apt_would_do_is_read_line_by_line() -> None:
    assert parse_simulation(SAID) == [
        Action("Remv", "libnvidia-cfg1-570", is_installed=True),
        Action("Purg", "nvidia-settings", is_installed=True),
        Action("Inst", "nvidia-modprobe", is_installed=True, version="590.48.01"),
        Action("Inst", "libcuda1", is_installed=True, version="590.48.01"),
        Action("Inst", "libnvidia-ml1:i386", is_installed=False, version="590.48.01"),
        Action("Inst", "dkms", is_installed=False, version="3.1"),
    ]


def test_what_goes_again_on_the_way_back_and_what_comes_back() -> None:
    actions = parse_simulation(SAID)
    assert new_parts(actions, NAMES) == ["libnvidia-ml1:i386"]
    assert new_parts([Action("Inst", "nvidia-modprobe", is_installed=False)], NAMES) == []
    assert replaced_parts(actions, NAMES) == ["libnvidia-cfg1-570", "nvidia-settings", "nvidia-modprobe", "libcuda1"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "Inst cuda-drivers-590 (590.48.01-1 NVIDIA)",
            "would bring cuda-drivers-590, which brings a driver of its own choice",
        ),
        ("Inst libcuda1 [580.95.05-1] (610.43.02-1 NVIDIA)", "would bring libcuda1 of driver 610.43.02"),
        ("Inst libcuda1 (1:610.43.02-1 NVIDIA)", "would bring libcuda1 of driver 610.43.02"),
        ("Inst libcuda1 [580.95.05-1] (590.48.01-1 NVIDIA)", ""),
        # Tools go with any driver, and some parts count otherwise.
        ("Inst nvidia-modprobe (610.43.02-1 NVIDIA)", ""),
        ("Inst nvidia-kernel-common (20240109+1 Debian)", ""),
        ("Inst gcc (4:14.2-1 Debian)", ""),
        ("Remv nvidia-driver-libs [580.95.05-1]", "would remove nvidia-driver-libs, which a desktop may stand on"),
        ("Purg libgl1-nvidia-glvnd-glx [1]", "would remove libgl1-nvidia-glvnd-glx, which a desktop may stand on"),
        ("Remv libnvidia-cfg1 [580.95.05-1]", ""),
        ("Remv libnvidia-container1 [1.17-1]", "would remove libnvidia-container1, which is no part of a driver"),
        ("Remv gnome-shell [48-1]", "would remove gnome-shell, which is no part of a driver"),
    ],
)
def test_what_belongs_to_no_driver_is_a_problem(line: str, problem: str) -> None:
    assert list(filter(None, [problem])) == [*find_problems(parse_simulation(f"{line}\n"), NAMES, "590")]


def test_a_metapackage_of_another_driver_is_two_problems() -> None:
    actions = parse_simulation("Inst cuda-drivers (610.43.02-1 NVIDIA)\n")
    assert len([*find_problems(actions, NAMES, "590")]) == 2


def test_versions_and_kernels_are_sorted_by_their_numbers() -> None:
    kernels = ["6.1.0-9-amd64", "6.1.0-10-amd64", "6.12.1", "5.10"]
    assert sorted(kernels, key=version_order) == ["5.10", "6.1.0-9-amd64", "6.1.0-10-amd64", "6.12.1"]
    assert sorted(["a.1", "1.a"], key=version_order) == ["a.1", "1.a"]
    assert [upstream(each) for each in ("1:590.48.01-1", "580.95.05-0ubuntu1", "")] == ["590.48.01", "580.95.05", ""]


def test_the_next_boot_starts_what_the_link_names_or_the_newest_kernel() -> None:
    host = driver_host("580.95.05")
    assert next_kernel(host) == KERNEL
    host.files.pop(f"/boot/vmlinuz-{KERNEL}")
    assert next_kernel(host) == KERNEL  # that runs, as there is no other one
    host.files |= {f"/boot/vmlinuz-{each}": File("") for each in ("6.1.0-9", "6.1.0-10")}
    assert next_kernel(host) == "6.1.0-10"
