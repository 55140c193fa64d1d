"""A model hub over real HTTP, with faults on demand."""

from __future__ import annotations

import hashlib
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.counting import Sent
from tests.support.hub_files import Content, HubFile, HubRepo
from tests.support.hub_handlers import CdnHandler, HubHandler, Request

__all__ = ["Hub", "Request", "gone"]


class Server(ThreadingHTTPServer):
    """One port of a hub."""

    daemon_threads = True

    def __init__(
        self,
        hub: Hub,
        host: str,
        port: int,
        handler: type[BaseHTTPRequestHandler],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.hub = hub
        self.scheme = "https" if tls else "http"
        super().__init__((host, port), handler)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients that are killed in the middle of a body are what several tests are about.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Hub:
    """A hub with repositories as `{"owner/name": {"path": bytes or Path}}`; use it as a context manager.

    With a `token`, every repository is private to it. With `cdn`, file bodies come by redirect from
    a second port, as the public hub's do. The attributes below may be changed while it runs.
    """

    def __init__(
        self,
        repos: Mapping[str, Mapping[str, Content]],
        token: str | None = None,
        *,
        cdn: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.token = token
        self.requests: list[Request] = []
        self.cdn_requests: list[Request] = []
        # Repositories whose metadata is open and whose files are not; those in `granted` are open after all.
        self.gated: set[str] = set()
        self.granted: set[str] = set()
        # Files (by path) that the hub lists without a sha256, whatever their suffix.
        self.not_lfs: set[str] = set()
        # Faults. Each body is cut after so many bytes; bodies of these files are wrong; these files,
        # or URL paths, answer with this status (429 and 503 with `retry_after`, in seconds); bodies
        # come this slowly.
        self.truncate_after: int | None = None
        self.corrupt: set[str] = set()
        self.status: dict[str, int] = {}
        self.retry_after: int | str = 1
        self.bytes_per_second: int | None = None
        # What all bodies together may have of the line, in bytes per second.
        self.line: int | None = None
        self._line_free_at = 0.0
        # More faults of bodies: each stops after so many bytes and stays silent; the head calls the body encoded, or
        # longer by so many bytes, or another range; the whole file is sent whatever is asked; the file has this ETag.
        self.stall_after: int | None = None
        self.encoding: str | None = None
        self.length_off = 0
        self.content_range: str | None = None
        self.ignore_ranges = False
        self.etags: dict[str, str] = {}
        # Faults of every request: the connection is closed without an answer; the answer comes after so many seconds;
        # these URL paths redirect; bodies come from the CDN only with this `signature` in the query.
        self.close_at_once = False
        self.latency = 0.0
        self.redirects: dict[str, str] = {}
        self.signature: str | None = None
        # Called with each request before it is answered: to change the above half-way.
        self.on_request: Callable[[Request], None] = lambda _: None
        self.counted = Sent()
        self._line = threading.Lock()
        # Entries in one answer to a tree request; the rest follows by `Link`.
        self.page_size = 1000
        self._repos: dict[str, HubRepo] = {}
        for repo, files in repos.items():
            self.push(repo, files)
        self._main = Server(self, host, port, HubHandler, tls)
        self._cdn = Server(self, host, 0, CdnHandler) if cdn else None

    def __enter__(self) -> Hub:
        for server in self._servers():
            # The pause between two looks for the end of the test; requests are served at once.
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for server in self._servers():
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        """The endpoint, for HF_ENDPOINT."""
        return _address(self._main)

    @property
    def cdn_url(self) -> str | None:
        """Where the bodies come from; None without a CDN."""
        return _address(self._cdn) if self._cdn else None

    def push(self, repo: str, files: Mapping[str, Content], branch: str = "main") -> str:
        """Make `files` the whole content of a branch; earlier commits stay. Returns the new commit."""
        store = self._repos.setdefault(repo, HubRepo())
        parent = store.branches.get(branch, "")
        tree = {path: HubFile(path, content) for path, content in files.items()}
        named = [f"{path} {file.sha256}" for path, file in sorted(tree.items())]
        commit = hashlib.sha1("\n".join([repo, parent, *named]).encode()).hexdigest()
        store.commits[commit] = tree
        store.branches[branch] = commit
        return commit

    def replace(self, repo: str, path: str, content: Content) -> None:
        """Put other content into the newest commit, as no sound hub does."""
        store = self._repos[repo]
        store.commits[store.branches["main"]][path] = HubFile(path, content)

    def forget(self, repo: str) -> None:
        """Lose every commit, as when history is written anew."""
        self._repos[repo].commits.clear()

    @property
    def sent(self) -> int:
        """Bytes of bodies that were sent, by both ports."""
        return self.counted.bytes

    def wait_for_the_line(self, sent: int) -> None:
        """Return when the line is free for more than these bytes."""
        if self.line is None:
            return
        with self._line:
            self._line_free_at = max(self._line_free_at, time.monotonic() - 0.05) + sent / self.line
            wait = self._line_free_at - time.monotonic()
        time.sleep(max(0.0, wait))

    def commit(self, repo: str, branch: str = "main") -> str:
        """The commit that a branch stands at."""
        return self._repos[repo].branches[branch]

    def repo(self, name: str) -> HubRepo | None:
        """The repository of this name, if there is one."""
        return self._repos.get(name)

    def blob(self, sha256: str) -> HubFile | None:
        """Any file with this content."""
        trees = [tree for repo in self._repos.values() for tree in repo.commits.values()]
        return next((file for tree in trees for file in tree.values() if file.sha256 == sha256), None)

    def _servers(self) -> list[Server]:
        return [server for server in (self._main, self._cdn) if server]


@contextmanager
def gone(repos: Mapping[str, Mapping[str, Content]]) -> Iterator[Hub]:
    """A hub that is not there: nobody listens at its port, and nobody else can take it meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        hub = Hub(repos)
        hub._main.server_close()
        hub._main.server_address = held.getsockname()
        yield hub


def _address(server: Server) -> str:
    return f"{server.scheme}://{server.server_address[0]!s}:{server.server_address[1]}"
