"""Rigs with cards that are not there: Debian 12 and 13, each made anew, beside a repository of NVIDIA's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llamaherd.box import image
from llamaherd.box.cli import BOX
from llamaherd.box.host import BoxHost, File
from tests.box.bench import Bench
from tests.support.fake_kernel import FakeCard, files

RELEASES: Mapping[str, tuple[image.Debian, int]] = {
    "debian-12": (image.BOOKWORM, 2211),
    "debian-13": (image.TRIXIE, 2212),
}
"""What a rig runs, by the inventory's name for it, and the port of its sshd."""


@dataclass(frozen=True)
class GpuRig(Bench):
    """A rig with cards, and the folder that its inventory lies in."""

    os: str

    @property
    def kernel(self) -> str:
        """The kernel that runs, which is this machine's."""
        return self.sh("uname -r")

    @property
    def address(self) -> str:
        """Where the rig finds this machine."""
        return self.sh("ip route show default | cut -d ' ' -f 3")

    def fit(self, cards: Sequence[FakeCard]) -> None:
        """Put cards in, as they show after a boot."""
        made = files(self.kernel, cards).items()
        put = [(path, text.encode() if isinstance(text, str) else text) for path, text in made]
        self.host.put(*(File(path, data, 0o755 if data.startswith(b"#!") else 0o644) for path, data in put))
        self.sh("systemctl enable -q fake-kernel")
        self.host.reboot()

    def version(self, package: str) -> str:
        """Which version of a package is installed; empty for none."""
        asked = f"dpkg-query -W -f '${{db:Status-Status}} ${{Version}}' {package} 2>/dev/null"
        status, _, version = self.sh(asked, check=False).partition(" ")
        return version if status == "installed" else ""

    def use(self, declared: Mapping[str, str]) -> None:
        """Make a repository known to apt by hand."""
        self.sh(
            "apt-get -qq update && apt-get -qq install --no-install-recommends curl && mkdir -p /etc/apt/keyrings && "
            f"curl -fsS -o /etc/apt/keyrings/own.asc {declared['url']}/{declared['key']} && "
            f"echo 'deb [signed-by=/etc/apt/keyrings/own.asc] {declared['url']}/ /' >/etc/apt/sources.list.d/own.list"
        )


def bare(os: str, folder: Path) -> GpuRig:
    """A rig of this release from nothing. What apt has fetched for earlier ones is kept."""
    debian, port = RELEASES[os]
    name = f"llamaherd-deb{debian.version}"
    # Caches of its own: apt locks the folder of packages, and another rig may use it at the same time.
    host = BoxHost(name, port, BOX / name, caches=name, debian=debian, reboots=True)
    host.down()
    host.up()
    return GpuRig(host, folder, os)
