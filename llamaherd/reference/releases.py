"""The releases and builds of llama.cpp, and their order."""

from __future__ import annotations

import re
from collections.abc import Mapping

Release = tuple[int, int, int]

BUILDS: Mapping[Release, int] = {
    (0, 1, 2): 10485,  # newreleases.io, ggml-org/llama.cpp v0.1.2: "Nightly build"
    (0, 2, 0): 10566,  # ggml-org/llama.cpp/releases/tag/v0.2.0: "Nightly build"
    (0, 6, 0): 11429,  # ggml-org/llama.cpp/releases/tag/b11429
    (0, 9, 0): 12110,  # ggml-org/llama.cpp/releases/tag/b12110
    (1, 0, 0): 12359,  # mattt/llama.swift/releases/tag/3.0.0: "llama.cpp v1.0.0 … nightly build b12359"
}
"""The build that each release was cut from, in ascending order. Releases that are not here are placed by order."""

_BUILD = re.compile(r"b?(\d{1,7})")
_RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,6}))?")


def is_release(text: str) -> bool:
    """Return whether a text is the name of a release, such as `v1.0.0`."""
    return _RELEASE.fullmatch(text) is not None


def release_order(version: str) -> tuple[int, ...] | None:
    """Return the place of a build (`b11434`) or a release (`v1.0.0`) among all; None for any other text.

    A release without a known build comes right before the next known release, or after the last one.
    """
    if build := _BUILD.fullmatch(version):
        return (int(build[1]),)
    found = _RELEASE.fullmatch(version)
    if found is None:
        return None
    release = (int(found[1]), int(found[2]), int(found[3] or 0))
    if release in BUILDS:
        return (BUILDS[release],)
    later = [build for known, build in BUILDS.items() if known > release]
    return (later[0] - 1 if later else max(BUILDS.values()), *release)
