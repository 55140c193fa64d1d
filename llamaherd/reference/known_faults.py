"""Engine builds and CUDA toolkits with known faults: what fails, when it was reported, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from llamaherd.reference.releases import release_order


class BadBuild(NamedTuple):
    """Builds of llama.cpp that fail with a flag, from the first to the last; `value` is a word that the flag takes."""

    first: int
    last: int
    flag: str
    value: str
    fault: str
    reported: str
    source: str

    @property
    def named(self) -> str:
        """The builds in words."""
        return f"builds b{self.first} to b{self.last}"


BAD_BUILDS = (
    BadBuild(10741, 10748, "--spec-type", "draft-mtp", "do not start", "2026-09", "ggml-org/llama.cpp#28196"),
)


def bad_builds(version: str) -> tuple[BadBuild, ...]:
    """Return the rows that contain a version; none for a version that is not a build or release."""
    place = release_order(version)
    return tuple(each for each in BAD_BUILDS if place and (each.first,) <= place < (each.last + 1,))


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
