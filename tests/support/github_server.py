"""GitHub's API for releases, and their files, over real HTTP."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from typing_extensions import override

REPOSITORY = "ggml-org/llama.cpp"
_API = f"/repos/{REPOSITORY}/releases"


class Github:
    """A server with releases: content by the names of files, by tags, the newest first. A context manager.

    The attributes below may be changed while it runs.
    """

    def __init__(self, releases: Mapping[str, Mapping[str, bytes]], host: str = "127.0.0.1") -> None:
        self.releases = {tag: dict(files) for tag, files in releases.items()}
        self.latest = next(iter(releases), "")
        self.digests = True
        self.drafts: set[str] = set()
        self.status: dict[str, int] = {}
        """The status of responses, by the path that is requested."""
        self.bodies: dict[str, bytes] = {}
        """Other bodies of responses, by the path."""
        self.requests: list[tuple[str, str]] = []
        """The path of each request, and its `Authorization`."""
        github = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                # A client may end in the middle of a body.
                with suppress(ConnectionError):
                    github.respond(self)

            @override
            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> Github:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The endpoint, for GITHUB_API_URL."""
        return f"http://{self._server.server_address[0]!s}:{self._server.server_address[1]}"

    def file_url(self, tag: str, name: str) -> str:
        """Return the URL of a file of a release."""
        return f"{self.url}/{REPOSITORY}/releases/download/{tag}/{name}"

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        """Respond to one request."""
        path = unquote(urlsplit(handler.path).path)
        self.requests.append((path, handler.headers.get("Authorization", "")))
        found = self.bodies.get(path) or self._found(path)
        status = self.status.get(path, 404 if found is None else 200)
        body = found or b"{}"
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _found(self, path: str) -> bytes | None:
        if path == _API:
            return json.dumps([self._release(tag) for tag in self.releases]).encode()
        tag = self.latest if path == f"{_API}/latest" else path.removeprefix(f"{_API}/tags/")
        if tag in self.releases:
            return json.dumps(self._release(tag)).encode()
        _, _, file = path.partition("/releases/download/")
        tag, _, name = file.partition("/")
        return self.releases.get(tag, {}).get(name)

    def _release(self, tag: str) -> dict[str, object]:
        files = self.releases[tag].items()
        return {
            "tag_name": tag,
            "draft": tag in self.drafts,
            "body": "what is new",
            "assets": [
                {
                    "name": name,
                    "browser_download_url": self.file_url(tag, name),
                    "size": len(data),
                    "digest": f"sha256:{hashlib.sha256(data).hexdigest()}" if self.digests else None,
                }
                for name, data in files
            ],
        }
