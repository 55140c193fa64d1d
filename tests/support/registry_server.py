"""An image registry over real HTTP: the part of the OCI distribution API that reads manifests, logins, and faults."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

INDEX = "application/vnd.oci.image.index.v1+json"
_TOKEN = "anonymous-or-not"


class Request(NamedTuple):
    """One request as it came in; `login` is the header Authorization."""

    method: str
    path: str
    login: str | None


def index(text: str) -> bytes:
    """An image index, another one for each text."""
    entry = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest_of(text.encode()), "size": 1}
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).encode()


def digest_of(body: bytes) -> str:
    """What a registry calls these bytes."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


class Registry:
    """Images by name and tag, on a free port of this machine.

    `login` is the scheme that is asked for: `bearer` (as Docker Hub and ghcr.io do), `basic`, or None. `user` is a
    `name:password` that is needed to get in; without one, anybody gets a token.
    """

    def __init__(self, images: Mapping[str, bytes], login: str | None = None, user: str | None = None) -> None:
        self.images = dict(images)
        self.login = login
        self.user = user
        self.requests: list[Request] = []
        # Faults: every answer has this status; manifests are not those that their digest is of; there is no such
        # header; HEAD is not known; where tokens are said to be had.
        self.status: int | None = None
        self.corrupt = False
        self.names_digests = True
        self.realm: str | None = None
        # Tags of one answer; the rest follows by `Link`.
        self.page: int | None = None
        self._server = _Server(self)

    def __enter__(self) -> Registry:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def host(self) -> str:
        """What stands before the first slash of its images."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def manifest(self, name: str, reference: str) -> bytes | None:
        """By tag or digest."""
        bodies = [body for image, body in self.images.items() if image.rpartition(":")[0] == name]
        by_digest = {digest_of(body): body for body in bodies}
        return self.images.get(f"{name}:{reference}", by_digest.get(reference))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: `Registry.requests` keeps the record."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        registry = self.server.registry
        login = self.headers.get("Authorization")
        registry.requests.append(Request(self.command, self.path, login))
        url = urlsplit(self.path)
        if registry.status is not None:
            self._send(registry.status, b"{}", {"Retry-After": "7"})
        elif url.path == "/token":
            self._token(parse_qs(url.query), login)
        elif registry.login and login != self._wanted():
            self._send(401, b"{}", {"WWW-Authenticate": self._challenge()})
        elif match := re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", url.path):
            self._manifest(match[1], match[2])
        elif match := re.fullmatch(r"/v2/(.+)/tags/list", url.path):
            tags = [image.rpartition(":")[2] for image in registry.images if image.startswith(f"{match[1]}:")]
            self._tags(match[1], tags, parse_qs(url.query).get("last", [""])[0])
        else:
            self._send(404, b"{}")

    def _tags(self, name: str, tags: list[str], last: str) -> None:
        page = self.server.registry.page or len(tags)
        begin = tags.index(last) + 1 if last else 0
        some = tags[begin : begin + page]
        link = f'</v2/{name}/tags/list?last={some[-1]}&n={page}>; rel="next"' if begin + page < len(tags) else ""
        self._send(200, json.dumps({"name": name, "tags": some}).encode(), {"Link": link} if link else {})

    def _wanted(self) -> str:
        registry = self.server.registry
        return f"Bearer {_TOKEN}" if registry.login == "bearer" else f"Basic {self._user()}"

    def _user(self) -> str:
        return base64.b64encode((self.server.registry.user or "").encode()).decode()

    def _challenge(self) -> str:
        registry = self.server.registry
        if registry.login != "bearer":
            return f'{(registry.login or "").capitalize()} realm="registry"'
        realm = registry.realm or f"http://{registry.host}/token"
        name = self.path.split("/manifests/")[0].removeprefix("/v2/")
        return f'Bearer realm="{realm}",service="registry.lan",scope="repository:{name}:pull"'

    def _token(self, query: Mapping[str, list[str]], login: str | None) -> None:
        asked_right = query.get("service") == ["registry.lan"] and query["scope"][0].startswith("repository:")
        if not asked_right or (self.server.registry.user and login != f"Basic {self._user()}"):
            self._send(401, b"{}")
        else:
            self._send(200, json.dumps({"token": _TOKEN}).encode())

    def _manifest(self, name: str, reference: str) -> None:
        registry = self.server.registry
        body = registry.manifest(name, reference)
        if body is None or INDEX not in self.headers.get("Accept", ""):
            self._send(404, json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN"}]}).encode())
            return
        headers = {"Docker-Content-Digest": digest_of(body)} if registry.names_digests else {}
        self._send(200, body.upper() if registry.corrupt else body, {"Content-Type": INDEX, **headers})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
