"""Package names of Debian, Ubuntu and NVIDIA: build tools, Compose, and the parts of NVIDIA's driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal

BUILD_PACKAGES = ("cmake", "ninja-build", "g++", "ccache", "git", "libssl-dev", "ca-certificates", "curl")
RELEASE_PACKAGES = ("libgomp1",)
"""Packages of a host with an engine that its authors have built. OpenSSL's libraries come with sshd."""
COMPOSE_PACKAGES = {
    "debian-13": ("docker.io", "docker-cli", "docker-compose"),
    "ubuntu-22.04": ("docker.io", "docker-compose-v2"),
    "ubuntu-24.04": ("docker.io", "docker-compose-v2"),
    "ubuntu-26.04": ("docker.io", "docker-compose-v2"),
}
IMAGE_PACKAGES = {
    "debian-13": ("libssl3t64",),
    "ubuntu-22.04": ("libssl3",),
    "ubuntu-24.04": ("libssl3t64",),
    "ubuntu-26.04": ("libssl3t64",),
}


DriverSource = Literal["nvidia", "distribution"]
KernelModules = Literal["open", "proprietary"]

DRIVER_FAMILIES = (
    *("nvidia-driver*", "nvidia-open*", "nvidia-headless*", "nvidia-dkms*", "nvidia-kernel*", "nvidia-firmware*"),
    *("nvidia-utils*", "nvidia-compute-utils*", "nvidia-smi", "nvidia-persistenced", "nvidia-modprobe"),
    *("nvidia-settings", "nvidia-xconfig", "nvidia-alternative", "nvidia-legacy-check", "nvidia-suspend-common"),
    *("nvidia-egl*", "nvidia-vulkan*", "nvidia-opencl*", "nvidia-vdpau*", "nvidia-cuda-mps", "nvidia-libopencl1"),
    *("libcuda1", "libcudadebugger1", "libnvcuvid1", "libnvoptix1", "libnvidia-[!c]*"),
    *("libnvidia-cfg1*", "libnvidia-compute*", "libnvidia-common*", "libnvidia-compiler*"),
    *("libgl1-nvidia*", "libglx-nvidia*", "libegl-nvidia*", "libgles-nvidia*", "libxnvctrl*"),
    *("firmware-nvidia-gsp*", "firmware-nvidia-graphics", "xserver-xorg-video-nvidia*"),
    *("linux-modules-nvidia-*", "linux-objects-nvidia-*", "linux-signatures-nvidia-*"),
)
"""Names of packages of a driver, in the patterns of shells and apt, without NVIDIA's container packages."""

DRIVER_PARTS = (*DRIVER_FAMILIES, "cuda-drivers*")
"""The same, with the metapackages that pull such in."""

DRIVER_TOOLS = ("nvidia-modprobe", "nvidia-settings", "nvidia-xconfig")
"""Of those, the packages that work with any driver: Debian 13 has nvidia-modprobe 570 and driver 550."""

DESKTOP_DRIVER = (
    *("nvidia-driver", "nvidia-driver-[0-9]*", "nvidia-driver-libs*", "nvidia-driver-bin", "nvidia-driver-open"),
    *("nvidia-open", "nvidia-settings", "nvidia-egl*", "nvidia-vulkan*", "nvidia-vdpau*", "libnvidia-gl*"),
    *("libgl1-nvidia*", "libglx-nvidia*", "libegl-nvidia*", "libgles-nvidia*", "xserver-xorg-video-nvidia*"),
)
"""Of those, the packages that a desktop needs: llamaherd never removes them."""

NEVER_INSTALLED = ("cuda", "cuda-[0-9]*", "cuda-drivers*", "cuda-runtime-*", "cuda-demo-suite-*", "cuda-compat-*")
"""Packages that bring a driver of their own choice, or libraries of another one that GeForce GPUs refuse."""

DISTRIBUTIONS_OWN = (
    *("src:nvidia-graphics-drivers*", "src:nvidia-open-gpu-kernel-modules*", "src:linux-restricted-modules*"),
    *("src:nvidia-persistenced", "src:nvidia-modprobe", "src:nvidia-settings", "src:nvidia-xconfig"),
)
"""Source packages of the driver in Debian and Ubuntu. NVIDIA's packages also need the rest of Debian's contrib."""

UNSUFFIXED = 590
"""Since this branch, NVIDIA's packages for Ubuntu have names without it (its driver installation guide)."""

OPEN_BY_DEFAULT = 560
"""Since this branch, NVIDIA installs the open modules by default; before it they did not work with GeForce GPUs (its
driver installation guide).
"""

OPEN_ONLY = 615
"""Since this branch there are open modules only (the release notes of 615.71.09)."""

OWN_BRANCH: Mapping[str, int] = {"debian-12": 535, "debian-13": 550}
"""The only branch of a Debian release (its package lists)."""

UBUNTU_BRANCHES: Mapping[str, frozenset[int]] = {
    "ubuntu-22.04": frozenset({470, 535, 550, 570, 580}),
    "ubuntu-24.04": frozenset({470, 535, 550, 570, 580, 590, 595}),
    "ubuntu-26.04": frozenset({470, 535, 570, 580, 590, 595, 610, 615}),
}
"""Branches in Ubuntu's archive (its package lists, 2026); it gets new ones, and empties old ones."""


def matches_package(name: str, globs: tuple[str, ...]) -> bool:
    """Return whether one of these patterns matches a package's name."""
    return any(fnmatchcase(name, glob) for glob in globs)


def upstream_version(version: str) -> str:
    """Return the driver's own version of a package's: `580.95.05` for `580.95.05-0ubuntu1`."""
    return version.partition(":")[2].partition("-")[0] if ":" in version else version.partition("-")[0]


def branch_of(version: str) -> str | None:
    """Return `580` for a version of the driver; None if a package counts otherwise, such as by kernels or by dates."""
    found = re.fullmatch(r"(\d{3})(\.\d+)+", upstream_version(version))
    return found[1] if found else None
