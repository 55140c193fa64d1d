"""What the distributions call the packages that are needed of them."""

from __future__ import annotations

BUILD_PACKAGES = ("cmake", "ninja-build", "g++", "ccache", "git", "libssl-dev", "ca-certificates", "curl")
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
