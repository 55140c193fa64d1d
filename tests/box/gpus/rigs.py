"""Rigs with GPUs that are not there: Debian 12 and 13, each made anew, beside a repository of NVIDIA's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from box import image
from box.cli import BOX
from box.host import BoxHost
from box.inside import File
from tests.box.bench import Bench, Declared
from tests.box.slot import PORTS_OF_A_SLOT, SLOT, slotted
from tests.support.apt_repository import AptRepository
from tests.support.fake_kernel import FakeCard, files


class Made(NamedTuple):
    """What a rig is made from: its name, the port of its sshd, and what runs on it."""

    name: str
    port: int
    debian: image.Debian


DEBIANS: Mapping[str, Made] = {
    "debian-12": Made("llamaherd-deb12", 2211, image.BOOKWORM),
    "debian-13": Made("llamaherd-deb13", 2212, image.TRIXIE),
}
"""By the inventory's name for it."""

UBUNTU = Made("llamaherd-ubuntu", 2213, image.TRIXIE)
"""Debian 13 that says it is Ubuntu 24.04, for names and moves of packages as Ubuntu has them. Its apt is newer."""


@dataclass(frozen=True)
class GpuRig(Bench):
    """A rig with a GPU, which no instance is on, and the repository that its driver comes from."""

    os: str
    repository: AptRepository

    @property
    def kernel(self) -> str:
        """The kernel that runs, which is this machine's."""
        return self.sh("uname -r")

    def rig(self, **driver: Any) -> Declared:
        """The least rig: a GPU and its driver, of branch 580 unless told otherwise."""
        connect = {"host": "127.0.0.1", "port": self.host.port, "user": "owner"}
        connect |= {"key": str(self.host.key), "known_hosts": str(self.host.known_hosts)}
        gpus = {"cuda": "13.0", "cards": {"big": {"model": "RTX 3090"}}, "repository": self.repository.declared}
        return {
            "rig": "box",
            "connect": connect,
            "host": {"os": self.os, "cpu": {"cores": 2}, "ram": "4GB"},
            "gpus": gpus | {"driver": {"branch": 580, **driver}},
            "engines": {},
            "models": {},
            "instances": {},
        }

    def restore(self) -> None:
        """As the next test may find it: what a failed one has declared is gone, its locks and holds too."""
        self.sh("apt-mark unhold $(apt-mark showhold)", check=False)
        self.repository.status = 200
        self.declare(self.rig())
        self.deploy()

    def fit(self, cards: Sequence[FakeCard]) -> None:
        """Put GPUs in, as they show after a boot."""
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

    def apt(self) -> str:
        """All that apt knows and has: the same text means that nothing was changed."""
        installed = self.sh("dpkg-query -W -f '${Package} ${Version} ${Status}\\n'; apt-mark showhold")
        return installed + self.sh("find /etc/apt /etc/modules-load.d -type f -exec sha256sum {} + | sort")


SERVING = Made("llamaherd-driven", 2215, image.TRIXIE)
"""Debian 13 with a server besides."""


def bare(os: str, folder: Path, made: Made | None = None, compilers: str = "") -> GpuRig:
    """A rig of this release from nothing, and an empty repository that it can reach.

    What apt has fetched for earlier ones is kept. `compilers` is whose cache of theirs it shares.
    """
    called, port, debian = made or DEBIANS.get(os, UBUNTU)
    name, port = slotted(called), port + PORTS_OF_A_SLOT * SLOT
    # Caches of its own: apt locks the folder of packages, and another rig may use it at the same time.
    host = BoxHost(name, port, BOX / name, caches=compilers or name, packages=name, debian=debian, reboots=True)
    host.down()
    try:
        host.up()
    except BaseException:  # Ctrl-C too
        host.down()
        raise
    address = host.exec("sh", "-c", "ip route show default | cut -d ' ' -f 3").strip()
    return GpuRig(host, folder, os, AptRepository(host=address))
