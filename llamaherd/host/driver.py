"""NVIDIA's driver as a host has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from llamaherd.reference.drivers import PARTS, DriverSource, branch_of, upstream

GLOBS = (*PARTS, "dkms", "linux-image-[!0-9u]*", "linux-headers-[!0-9]*")
"""The packages that a host is asked about: a driver's, and those that stand for the newest kernel and its headers."""


class PackageState(NamedTuple):
    """A package that is installed: its version, and whose repository has that; None where none has it, or both.

    Its maintainer does not tell: NVIDIA's packaging is made from the distributions', and names theirs.
    """

    version: str
    source: DriverSource | None = None

    @property
    def branch(self) -> str | None:
        """The branch of the driver that it is of, where it counts by those."""
        return branch_of(self.version)


class Persistence(NamedTuple):
    """The unit of NVIDIA's persistence daemon, in systemd's words."""

    active: str
    enabled: str


class RefusedDriver(NamedTuple):
    """A driver that did not come up, or was too slow: its kind as a plan has it, when that was, what came back for it,
    and why."""

    version: str
    kind: str
    when: str
    before: str
    why: str
    slower: str = ""
    """`slower`, where it came up, and servers were slower by it than their gates allow."""


@dataclass
class DriverState:
    """What there is of the driver; what is not there is empty or None."""

    packages: dict[str, PackageState] = field(default_factory=dict)
    """By name."""
    loaded: str | None = None
    """The version of the module in the kernel."""
    uvm: bool = False
    """Whether the module for CUDA's memory is loaded too."""
    disk: dict[str, str] = field(default_factory=dict)
    """By kernel, the running one and the next: the version of the module that it would load."""
    library: str = ""
    """The version of the library that nvidia-smi speaks through."""
    says: str = ""
    """Why nvidia-smi shows nothing."""
    runfile: bool = False
    """Whether a driver was installed by NVIDIA's .run file, past the packages."""
    persistence: Persistence | None = None
    components: set[str] = field(default_factory=set)
    """Parts of repositories that apt knows, such as `main` and `non-free`."""
    free: int | None = None
    """Bytes free in /."""
    tried: str = ""
    """Driver and kernel that this host was rebooted for, while that driver is not loaded."""
    kept: str = ""
    """The version that the next boot goes back to, where the one that is installed does not answer."""
    judging: bool = False
    """Whether this boot is finding out just now whether the driver answers, or going back."""
    answered: bool = False
    """Whether the driver answers, and what is `kept` waits until servers' gates have judged it."""
    reading: str = ""
    """What was measured of servers before the driver was changed, as it is kept."""
    refused: RefusedDriver | None = None

    def version(self, library: str) -> str | None:
        """The driver's version, by the package that has it; None where that is not installed."""
        package = self.packages.get(library)
        return upstream(package.version) if package else None
