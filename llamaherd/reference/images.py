"""The images that llama.cpp and vLLM publish: their tags, their programs, and their contents.

Source: llama.cpp b11434, .github/workflows/docker.yml (the matrix of tags), docs/docker.md, .devops/*.Dockerfile and
.devops/tools.sh; vLLM 0.33.0, docker/Dockerfile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LLAMA_CPP = "ghcr.io/ggml-org/llama.cpp"
OLD_LLAMA_CPP = "ghcr.io/ggerganov/llama.cpp"
VLLM = ("vllm/vllm-openai", "docker.io/vllm/vllm-openai")

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


def exists(tag: str) -> bool:
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
