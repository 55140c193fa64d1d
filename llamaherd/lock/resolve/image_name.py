"""What an image is called: its registry, its name there and its tag."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from llamaherd.diagnostics.findings import UserError

DOCKER_HUB = "docker.io"
_DOCKER_HUB_API = "registry-1.docker.io"
# Names and tags as the OCI distribution API has them ("Pulling manifests").
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
IMAGE_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_HOST = re.compile(r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")


class RegistryError(UserError):
    """A tag that cannot be resolved: one sentence, and a way out. Neither holds a password."""


@dataclass(frozen=True)
class ImageName:
    """An image by registry, name and tag."""

    host: str
    name: str
    tag: str

    @property
    def url(self) -> str:
        """The registry's API. Without TLS only on this machine."""
        host = _DOCKER_HUB_API if self.host == DOCKER_HUB else self.host
        return f"{'http' if is_here(host) else 'https'}://{host}"

    def __str__(self) -> str:
        return f"{self.host}/{self.name}:{self.tag}"


def image_name(image: str) -> ImageName:
    """Take an image's name apart as Docker does: `vllm/vllm-openai:v1` is on Docker Hub. Raises RegistryError."""
    first, slash, rest = image.partition("/")
    if slash and (first == "localhost" or re.search(r"[.:\[]", first)):
        host, path = first, rest
    else:
        host, path = DOCKER_HUB, image
    name, _, tag = path.partition(":")
    if host in ("index.docker.io", _DOCKER_HUB_API):
        host = DOCKER_HUB
    if host == DOCKER_HUB and "/" not in name:
        name = f"library/{name}"
    tag = tag or ("latest" if ":" not in path else "")
    if not (_HOST.fullmatch(host) and url_parts(f"//{host}") and _NAME.fullmatch(name) and IMAGE_TAG.fullmatch(tag)):
        raise RegistryError(f"`{image}` is no name of an image", "write it like `vllm/vllm-openai:v0.11.0`")
    return ImageName(host, name, tag)


def is_here(host: str) -> bool:
    url = url_parts(f"//{host}")
    return url is not None and url.hostname in ("localhost", "127.0.0.1", "::1")


def url_parts(url: str) -> SplitResult | None:
    """A URL's parts, if it has a host and a port that can be."""
    try:
        parts = urlsplit(url)
        return parts if parts.hostname and parts.port != 0 else None
    except ValueError:
        return None
