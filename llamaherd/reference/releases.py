"""The releases and builds of llama.cpp, those with known faults, and the images that llama.cpp and vLLM publish.

Source of the images: llama.cpp b11434, .github/workflows/docker.yml (the matrix of tags), docs/docker.md,
.devops/*.Dockerfile and .devops/tools.sh; vLLM 0.33.0, docker/Dockerfile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

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


LLAMA_CPP_IMAGE = "ghcr.io/ggml-org/llama.cpp"
OLD_LLAMA_CPP_IMAGE = "ghcr.io/ggerganov/llama.cpp"
VLLM_IMAGES = ("vllm/vllm-openai", "docker.io/vllm/vllm-openai")

_FLAVOURS = ("cuda", "cuda12", "cuda13", "rocm", "musa", "intel", "vulkan", "openvino", "s390x")
_TAG = re.compile(rf"(full|light|server)(?:-({'|'.join(_FLAVOURS)}))?(?:-b\d+)?")
FOR_GPUS = re.compile(r"cuda|vulkan|rocm|intel|musa|openvino")

IMAGE_TOOLS: Mapping[str, str] = {
    **dict.fromkeys(("--server", "-s"), "llama-server"),
    **dict.fromkeys(("--run", "-r"), "llama-cli"),
    **dict.fromkeys(("--run-legacy", "-l"), "llama-completion"),
    **dict.fromkeys(("--bench", "-b"), "llama-bench"),
    **dict.fromkeys(("--perplexity", "-p"), "llama-perplexity"),
    **dict.fromkeys(("--quantize", "-q"), "llama-quantize"),
    **dict.fromkeys(("--convert", "-c", "--all-in-one", "-a"), "convert_hf_to_gguf.py"),
}
"""The program that the images of all tools start, by the first argument."""


def is_published_tag(tag: str) -> bool:
    """Return whether llama.cpp publishes an image under this tag."""
    return _TAG.fullmatch(tag) is not None


def serving_tag(tag: str) -> str:
    """Return the tag of the serving image for the same kind of GPU as an existing tag."""
    return f"server{_flavour(tag)}"


def same_tag(tag: str) -> str:
    """Return the existing tag in place of this one: of the same programs, on the same kind of GPU."""
    programs = re.match(r"full|light|server", tag)
    return f"{programs[0] if programs else 'server'}{_flavour(tag)}"


def _flavour(tag: str) -> str:
    known = _TAG.fullmatch(tag)
    if known:
        return f"-{known[2]}" if known[2] else ""
    alike = {"cu": "cuda", "nvidia": "cuda", "gpu": "cuda", "rocm": "rocm", "hip": "rocm", "amd": "rocm"}
    alike |= {"vulkan": "vulkan", "sycl": "intel", "intel": "intel", "musa": "musa", "openvino": "openvino"}
    found = next((flavour for part, flavour in alike.items() if part in tag), None)
    return f"-{found}" if found else ""


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
