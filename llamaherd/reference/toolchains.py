"""Supported combinations of CUDA toolkits, architectures of GPUs, host compilers and drivers: tables, each with its
source.

No row is a guess. Without a row, a combination is unknown, and causes no finding.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Release = tuple[int, int]
"""A CUDA toolkit: (12, 8) is CUDA 12.8."""

NEWEST_GCC: Mapping[Release, int] = {
    (11, 7): 11,
    (11, 8): 11,
    (12, 0): 12,
    (12, 1): 12,
    (12, 2): 12,
    (12, 3): 12,
    (12, 4): 13,
    (12, 5): 13,
    (12, 6): 13,
    (12, 8): 14,
    (12, 9): 14,
    (13, 0): 15,
    (13, 1): 15,
    (13, 2): 15,
    (13, 3): 15,
    (13, 4): 16,
    (13, 5): 16,
}
"""The newest gcc that nvcc takes: `__GNUC__ >` in include/crt/host_config.h of the toolkit's own nvcc package."""

FIRST_TOOLKIT: Mapping[int, Release] = {
    75: (10, 0),  # the release notes of CUDA 10.0
    80: (11, 0),  # the release notes of CUDA 11.0
    86: (11, 1),  # llama.cpp b11434, ggml/src/ggml-cuda/CMakeLists.txt:38-70, for this and the next two
    89: (11, 8),
    90: (11, 8),
    100: (12, 8),  # from here on: `nvcc --list-gpu-code` of 12.6, 12.8, 12.9, 13.0 and 13.5
    103: (12, 9),
    107: (13, 5),
    110: (13, 0),
    120: (12, 8),
    121: (12, 9),
}
"""The first toolkit that compiles for an architecture. Older architectures are older than any toolkit listed here."""

FIRST_WITH_FAMILIES: Release = (12, 9)
"""The first toolkit that supports the family variants, such as `120f` (`nvcc --list-gpu-code` of 12.8 and 12.9)."""

DROPPED_SINCE: tuple[tuple[int, Release], ...] = ((50, (12, 0)), (75, (13, 0)))
"""Architectures below the number are gone since that toolkit: release notes of CUDA 12.0 (Kepler), and
`nvcc --list-gpu-code` of 12.9 and 13.0 (Maxwell, Pascal, Volta)."""


class BadToolkit(NamedTuple):
    """A toolkit that compiles wrong code, and the first one without the fault."""

    version: tuple[int, int]
    mended: tuple[int, int]
    fault: str
    reported: str
    source: str


BAD_TOOLKITS = (
    BadToolkit(
        (13, 2),
        (13, 3),
        "IQ quants write gibberish",
        "2026-04-04",
        "ggml-org/llama.cpp#21255, #21371, #28581; unslothai/unsloth#4849",
    ),
)
"""13.1 is fine, too. Each source names the toolkit, and unslothai/unsloth#4849 the one that mends it."""

DISTRIBUTION_NVCC = "/usr/bin/nvcc"
"""The compiler of the package `nvidia-cuda-toolkit`, which comes before /usr/local/cuda in `PATH`."""
DISTRIBUTION_TOOLKITS: Mapping[str, str] = {
    "Debian 12": "11.8",
    "Debian 13": "12.4",
    "Ubuntu 22.04": "11.5",
    "Ubuntu 24.04": "12.0",
}
"""The toolkit of that package. None of them compiles for `120` (reported 2025-05-02: ggml-org/llama.cpp#13271; also
#23224, #23118; packages.debian.org and packages.ubuntu.com, nvidia-cuda-toolkit)."""

MISCOMPILING: frozenset[Release] = frozenset(each.version for each in BAD_TOOLKITS)
"""Toolkits that compile wrong code."""

DISTRIBUTION_GCC: Mapping[str, int] = {
    "debian-12": 12,
    "debian-13": 14,
    "ubuntu-22.04": 11,
    "ubuntu-24.04": 13,
    "ubuntu-26.04": 15,
}
"""The gcc of a distribution's package `g++` (their package lists)."""

OLDER_GCC: Mapping[str, tuple[int, ...]] = {"debian-12": (11,), "ubuntu-24.04": (11, 12)}
"""Older ones that a distribution also has, as packages `g++-N`, and that a toolkit needs (their package lists)."""

GLIBC: Mapping[str, Release] = {
    "debian-12": (2, 36),
    "debian-13": (2, 41),
    "ubuntu-22.04": (2, 35),
    "ubuntu-24.04": (2, 39),
    "ubuntu-26.04": (2, 43),
}
"""The C library of a distribution (their package lists)."""

NEWEST_GLIBC: tuple[tuple[Release, Release], ...] = (((13, 0), (2, 40)), ((13, 2), (2, 41)))
"""Toolkits before the first compile with a C library up to the second. glibc 2.41 declares `cospi` and similar
functions, 2.42 `rsqrt`, and nvcc stops where include/crt/math_functions.h, which every file of CUDA includes, declares
them otherwise: read in the nvcc packages of 12.6, 12.8, 12.9 and 13.0, and of 13.1, 13.2, 13.3 and 13.5. No older g++
helps.
"""

FIRST_DRIVER: Mapping[int, int] = {11: 450, 12: 525, 13: 580}
"""The first driver branch for all toolkits of a major version (NVIDIA, CUDA Minor Version Compatibility)."""

BLACKWELL = 100
"""Architectures from this number on need the open kernel modules (NVIDIA's driver installation guide)."""

BLACKWELL_DRIVER = 570
"""The first driver branch for them (the same; Debian 13's 550 does not support them)."""

TURING = 75
"""The oldest architecture of the drivers from DROPPED_DRIVER on (NVIDIA's release notes of branch 590)."""

DROPPED_DRIVER = 590
"""The driver branch that dropped Maxwell, Pascal and Volta."""

LONG_SUPPORTED = 580
"""The last branch before that: good for Maxwell to Blackwell and for CUDA 13, with support until June 2028 (NVIDIA's
list of supported drivers)."""

FIRST_PACKAGED: Mapping[str, Release] = {"debian-12": (12, 3), "ubuntu-22.04": (11, 7), "ubuntu-24.04": (12, 5)}
"""The first toolkit in NVIDIA's repository for a system: the oldest cuda-toolkit packages in its index."""

KEPLER = 50
"""Architectures below this number are Kepler or older."""

KEPLER_DRIVER = 470
"""The last driver branch for them (NVIDIA's list of legacy Unix drivers); it is no longer maintained."""

SUPPORTED_BRANCHES: Mapping[int, str] = {580: "June 2028", 595: "March 2027", 620: "September 2029"}
"""Driver branches that NVIDIA supports, and until when (its list of supported drivers, in the documentation of branch
620, November 2026). New feature branches, such as 615, are not in it: they have no date."""

NEWEST_LISTED = max(SUPPORTED_BRANCHES)
"""The newest branch of that list, which does not cover newer ones."""

ENDED_BRANCHES: Mapping[int, str] = {535: "June 2026", 610: "August 2026"}
"""Driver branches that NVIDIA supported until then and no longer (its list of supported drivers, September 2026)."""


def release(text: str) -> Release | None:
    """Return the toolkit that `12.8` names; None for another text."""
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", text)
    return (int(match[1]), int(match[2])) if match else None


def dotted(toolkit: Release) -> str:
    """Return `12.8` for (12, 8)."""
    return f"{toolkit[0]}.{toolkit[1]}"


def first_toolkit(architecture: str) -> Release:
    """Return the first toolkit that compiles for an architecture such as `86`, `120a` or `120f`; (0, 0) if any does."""
    first = FIRST_TOOLKIT.get(int(architecture.rstrip("af")), (0, 0))
    return max(first, FIRST_WITH_FAMILIES) if architecture.endswith("f") else first


def removed_in(architecture: str) -> Release | None:
    """Return the toolkit that no longer compiles for an architecture, if there is one."""
    number = int(architecture.rstrip("af"))
    return next((toolkit for below, toolkit in DROPPED_SINCE if number < below), None)


def runs_on(built: str, gpu: str) -> bool:
    """Return whether code for one architecture runs on a GPU of another: the same generation, and no newer step of it.

    Code of a variant such as `120a` runs on that architecture alone, and of a family such as `120f` from it on (NVIDIA,
    CUDA C++ Programming Guide, binary compatibility and family-specific features).
    """
    have, need = int(gpu.rstrip("af")), int(built.rstrip("af"))
    return need == have or (not built.endswith("a") and have // 10 == need // 10 and need < have)


def compiles_for(toolkit: Release, architecture: str) -> bool:
    """Return whether a toolkit compiles for an architecture."""
    removed = removed_in(architecture)
    return first_toolkit(architecture) <= toolkit and (removed is None or toolkit < removed)


def newest_glibc(toolkit: Release) -> Release | None:
    """Return the newest C library that a toolkit compiles with; None if no known one is too new."""
    return next((newest for before, newest in NEWEST_GLIBC if toolkit < before), None)


def beside_gcc(system: str, toolkit: Release) -> int | None:
    """Return the newest older g++ that a toolkit takes if the distribution's own is too new; None if it needs none."""
    newest = NEWEST_GCC.get(toolkit)
    if newest is None or DISTRIBUTION_GCC[system] <= newest:
        return None
    return max((gcc for gcc in OLDER_GCC.get(system, ()) if gcc <= newest), default=None)


@dataclass(frozen=True)
class Needs:
    """The requirements of a toolkit: architectures of GPUs, the host's C library, its driver branch if known.

    `first` is the oldest available toolkit.
    """

    architectures: Collection[str]
    glibc: Release
    driver: int | None = None
    first: Release = (0, 0)

    def met_by(self, toolkit: Release) -> bool:
        """Return whether a known toolkit meets all of them."""
        return (
            toolkit not in MISCOMPILING
            and toolkit >= self.first
            and self.glibc <= (newest_glibc(toolkit) or self.glibc)
            and all(compiles_for(toolkit, each) for each in self.architectures)
            and (self.driver is None or self.driver >= FIRST_DRIVER[toolkit[0]])
        )

    def nearest(self, declared: Release) -> Release | None:
        """Return the toolkit that meets all of them: the next newer one than `declared`, or else the last before it."""
        good = [toolkit for toolkit in sorted(NEWEST_GCC) if self.met_by(toolkit)]
        newer = [toolkit for toolkit in good if toolkit > declared]
        return newer[0] if newer else (good[-1] if good else None)
