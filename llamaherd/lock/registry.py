"""Resolve an image's tag to its digest by the OCI distribution API, with the logins of `docker login`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, urlsplit

from llamaherd.diagnostics.findings import UserError
from llamaherd.text.numbers import parse_json

if TYPE_CHECKING:
    from httpx2 import Client


DOCKER_HUB = "docker.io"
_DOCKER_HUB_API = "registry-1.docker.io"
# Names and tags as the OCI distribution API has them ("Pulling manifests").
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
IMAGE_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_HOST = re.compile(r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")


class RegistryError(UserError):
    """A tag that cannot be resolved: one sentence, and a fix. Neither holds a password."""


@dataclass(frozen=True)
class ImageName:
    """An image by registry, name and tag."""

    host: str
    name: str
    tag: str

    @property
    def url(self) -> str:
        """The URL of the registry's API. Without TLS only on this machine."""
        host = _DOCKER_HUB_API if self.host == DOCKER_HUB else self.host
        return f"{'http' if is_local(host) else 'https'}://{host}"

    def __str__(self) -> str:
        return f"{self.host}/{self.name}:{self.tag}"


def image_name(image: str) -> ImageName:
    """Split an image's name like Docker: `vllm/vllm-openai:v1` is on Docker Hub. Raise RegistryError."""
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
        raise RegistryError(f"`{image}` is not the name of an image", "write it like `vllm/vllm-openai:v0.11.0`")
    return ImageName(host, name, tag)


def is_local(host: str) -> bool:
    url = url_parts(f"//{host}")
    return url is not None and url.hostname in ("localhost", "127.0.0.1", "::1")


def url_parts(url: str) -> SplitResult | None:
    """Return a URL's parts, if its host and port are valid."""
    try:
        parts = urlsplit(url)
        return parts if parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


_DOCKER_HUB_LOGIN = "https://index.docker.io/v1/"  # the name in the file of `docker login`


def docker_logins() -> dict[str, str]:
    """Return the logins in the file of `docker login`, by host: base64 of user and password.

    A login in a credential helper is not read.
    """
    folder = os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker"
    try:
        entries = json_object(Path(folder, "config.json").read_bytes()).get("auths")
    except (OSError, RuntimeError):
        return {}
    found: dict[str, str] = {}
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        login = entry.get("auth") if isinstance(entry, dict) else None
        if isinstance(login, str) and _is_base64(login):
            host = re.sub(r"^https?://|/.*", "", key)
            found[DOCKER_HUB if key == _DOCKER_HUB_LOGIN else host] = login
    return found


def _is_base64(text: str) -> bool:
    try:
        return b":" in base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False


def json_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    try:
        value = parse_json(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


TIMEOUT = 30.0  # seconds without a response
_MAX_MANIFEST = 4 << 20  # bytes; the size that registries must allow (OCI distribution 1.1, "Pushing Manifests")
_MAX_RESPONSE = 1 << 20  # bytes of a token, of a page of tags
_MAX_TAGS = 10_000  # that are compared with a missing one
_PAGE, _MAX_PAGES = 1000, 60  # tags of a page, and pages: ghcr.io has some ten thousand tags of llama.cpp
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_LOGIN = "check the spelling; if it is private, `docker login {host}` first"


def digest_of(image: str) -> str:
    """Query the registry for the digest of an image's tag: `sha256:…` of the manifest or index.

    The manifest itself proves the registry's digest. Raise RegistryError.
    """
    from llamaherd.bounded import BoundedClient, Bounds

    name = image_name(image)
    # The limits of each response are below: this one is for redirects, and responses that are not read.
    with _sentences(name), BoundedClient(Bounds(2 * _MAX_MANIFEST, TIMEOUT)) as client:
        return _Session(client, name).digest()


def tags_of(image: str) -> tuple[str, ...]:
    """Query the registry for the tags of an image, as many as some pages list. Raise RegistryError."""
    from llamaherd.bounded import BoundedClient, Bounds

    name = image_name(image)
    with _sentences(name), BoundedClient(Bounds(2 * _MAX_MANIFEST, TIMEOUT)) as client:
        return tuple(_Session(client, name).every_tag())


@dataclass(frozen=True)
class _Response:
    """A response; the names of its headers have no case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class _Session:
    """Requests about one image. `authorization` is the header that the registry requires after the first of them."""

    client: Client
    image: ImageName
    authorization: str | None = None
    logins: Mapping[str, str] = field(default_factory=docker_logins)

    def digest(self) -> str:
        """Return the digest of the tag. Raise RegistryError."""
        # HEAD first: it does not count against Docker Hub's limit for an hour.
        named = self._query("HEAD", f"manifests/{self.image.tag}").headers.get("Docker-Content-Digest", "")
        if named and not _DIGEST.fullmatch(named):
            raise RegistryError(f"{self.image.host} lists no sha256 for {self.image}", "use another tag or registry")
        body = self._query("GET", f"manifests/{named or self.image.tag}").body
        actual = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if named and actual != named:
            raise RegistryError(
                f"{self.image.host} returned a manifest for {self.image} whose digest is another one ({named[:19]}…)",
                "try again; if it stays so, do not use this registry",
            )
        manifest = json_object(body)
        if manifest.get("schemaVersion") != 2:
            raise RegistryError(
                f"{self.image.host} responded, but not as a registry does, or in a format of before 2016",
                "check the image's name, and any proxy in between",
            )
        return actual

    def every_tag(self) -> Iterator[str]:
        """Yield the tags of the image, page by page. Raise RegistryError."""
        last = ""
        for _ in range(_MAX_PAGES):
            response = self._query("GET", f"tags/list?n={_PAGE}{f'&last={quote(last)}' if last else ''}")
            tags = [each for each in json_object(response.body).get("tags") or () if isinstance(each, str)]
            yield from (each for each in tags if IMAGE_TAG.fullmatch(each))
            if not tags or 'rel="next"' not in response.headers.get("Link", ""):
                return
            last = tags[-1]

    def _query(self, method: str, path: str) -> _Response:
        """Return a successful response, after a login if the registry requires that. Raise RegistryError."""
        response = self._send(method, path)
        if response.status == 401 and self.authorization is None:
            self.authorization = self._authorise(response.headers.get("WWW-Authenticate", ""))
            response = self._send(method, path)
        if response.status != 200:
            raise self._refusal(response)
        return response

    def _send(self, method: str, path: str) -> _Response:
        headers = {"Accept": ", ".join(_MANIFESTS) if path.startswith("manifests/") else "application/json"}
        if self.authorization:
            headers["Authorization"] = self.authorization
        return self._fetch(method, f"{self.image.url}/v2/{self.image.name}/{path}", headers, _MAX_MANIFEST)

    def _fetch(
        self, method: str, url: str, headers: Mapping[str, str], most: int, query: Mapping[str, str] | None = None
    ) -> _Response:
        """Return a response with its body, if that has no more than `most` bytes. Raise RegistryError."""
        with self.client.stream(method, url, headers=headers, params=query) as response:
            body = bytearray()
            for piece in response.iter_bytes():
                body += piece
                if len(body) > most:
                    raise RegistryError(f"{self.image.host} returned more than a registry does", _CHECK)
            return _Response(response.status_code, response.headers, bytes(body))

    def _authorise(self, challenge: str) -> str:
        """Return the Authorization header that the registry's challenge requires. Raise RegistryError."""
        scheme, _, rest = challenge.partition(" ")
        parameters = dict(_PARAMETER.findall(rest))
        login = self.logins.get(self.image.host)
        if scheme.lower() == "basic":
            if login is None:
                raise self._no_access(401)
            return f"Basic {login}"
        realm = url_parts(parameters.get("realm", ""))
        if scheme.lower() != "bearer" or realm is None:
            raise RegistryError(f"{self.image.host} requires an unknown kind of login", _CHECK)
        if realm.scheme != "https" and not is_local(realm.netloc):
            raise RegistryError(f"{self.image.host} requires the login to be sent without TLS", _CHECK)
        headers = {"Authorization": f"Basic {login}"} if login else {}
        scope = {"scope": parameters.get("scope") or f"repository:{self.image.name}:pull"}
        service = {"service": parameters["service"]} if "service" in parameters else {}
        response = self._fetch("GET", realm.geturl(), headers, _MAX_RESPONSE, service | scope)
        if response.status != 200:
            raise self._refusal(response)
        granted = json_object(response.body)
        token = granted.get("token") or granted.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise RegistryError(f"{self.image.host} returned no token", _CHECK)
        return f"Bearer {token}"

    def _refusal(self, response: _Response) -> RegistryError:
        host, status = self.image.host, response.status
        if status in (401, 403):
            return self._no_access(status)
        if status == 404:
            return RegistryError(f"{host} has no image {self.image.name} with the tag `{self.image.tag}`", self._tags())
        if status == 429:
            seconds = response.headers.get("Retry-After", "")
            when = f"in {seconds} seconds" if seconds.isdecimal() else "later"
            return RegistryError(
                f"{host} has received too many requests (429)",
                f"try again {when}; `docker login {host}` raises the limit",
            )
        if status >= 500:
            return RegistryError(f"{host} has a failure ({status})", "try again later")
        return RegistryError(f"{host} returned status {status} for {self.image}", _CHECK)

    def _no_access(self, status: int) -> RegistryError:
        host = self.image.host
        if host in self.logins:
            help_ = f"check the spelling; if it is private, the login of `docker login {host}` has no access to it"
        else:
            help_ = _LOGIN.format(host=host)
        return RegistryError(f"{host} has no public image {self.image.name} ({status})", help_)

    def _tags(self) -> str:
        """Return the nearest existing tags."""
        known: list[str] = []
        # Only to help: whatever goes wrong here, the sentence about the tag matters.
        with suppress(Exception):
            response = self._send("GET", "tags/list")
            tags = json_object(response.body).get("tags") if response.status == 200 else None
            known = [tag for tag in list(tags or ())[:_MAX_TAGS] if isinstance(tag, str) and IMAGE_TAG.fullmatch(tag)]
        close = get_close_matches(self.image.tag, known, n=5, cutoff=0.4) or known[-5:]
        if close:
            return f"nearest: {', '.join(f'`{tag}`' for tag in close)}"
        return _LOGIN.format(host=self.image.host)


_CHECK = "check the image's name, and any proxy in between"


@contextmanager
def _sentences(image: ImageName) -> Iterator[None]:
    """Turn the client's exceptions into RegistryError; its own texts may quote the request."""
    import httpx2

    from llamaherd.bounded import ExcessError

    host = image.host
    try:
        yield
    except ExcessError as error:
        raise RegistryError(f"{host} {error}", _CHECK) from None
    except httpx2.TimeoutException:
        raise RegistryError(
            f"{host} did not respond within {TIMEOUT:.0f} seconds", "try again; check the network and any proxy"
        ) from None
    except (httpx2.TooManyRedirects, httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError):
        raise RegistryError(f"{host} responded, but not as a registry does", _CHECK) from None
    except httpx2.RequestError as error:
        # Errors of the operating system about a connection are safe to repeat, and worth it.
        reason = str(error) if isinstance(error, httpx2.ConnectError) else type(error).__name__
        raise RegistryError(
            f"{host} cannot be reached ({reason})", "check the network, any proxy (HTTPS_PROXY) and the image's name"
        ) from None
