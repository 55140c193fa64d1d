"""A model hub over real HTTP: the routes that huggingface_hub and `curl -C -` use, and faults on demand."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from tests.support.hub_files import Content, HubFile

_CHUNK = 64 * 1024
_SENT_AT_ONCE = 512 * 1024
_LFS_SUFFIXES = (".gguf", ".safetensors", ".bin", ".dat")


class Request(NamedTuple):
    """One request as it came in; `range` is the header as sent, `path` has its query."""

    method: str
    path: str
    range: str | None
    had_auth: bool


@dataclass
class _Repo:
    commits: dict[str, dict[str, HubFile]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)


class _Server(ThreadingHTTPServer):
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
        # Bytes of bodies that were sent, by both ports.
        self.sent = 0
        self._counting = threading.Lock()
        # Entries in one answer to a tree request; the rest follows by `Link`.
        self.page_size = 1000
        self._repos: dict[str, _Repo] = {}
        for repo, files in repos.items():
            self.push(repo, files)
        self._main = _Server(self, host, port, _HubHandler, tls)
        self._cdn = _Server(self, host, 0, _CdnHandler) if cdn else None

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
        store = self._repos.setdefault(repo, _Repo())
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

    def count(self, sent: int) -> None:
        """Note that so many bytes of a body were sent; returns when the line is free for more."""
        with self._counting:
            self.sent += sent
            if self.line is None:
                return
            self._line_free_at = max(self._line_free_at, time.monotonic() - 0.05) + sent / self.line
            wait = self._line_free_at - time.monotonic()
        time.sleep(max(0.0, wait))

    def commit(self, repo: str, branch: str = "main") -> str:
        """The commit that a branch stands at."""
        return self._repos[repo].branches[branch]

    def repo(self, name: str) -> _Repo | None:
        """The repository of this name, if there is one."""
        return self._repos.get(name)

    def blob(self, sha256: str) -> HubFile | None:
        """Any file with this content."""
        trees = [tree for repo in self._repos.values() for tree in repo.commits.values()]
        return next((file for tree in trees for file in tree.values() if file.sha256 == sha256), None)

    def _servers(self) -> list[_Server]:
        return [server for server in (self._main, self._cdn) if server]


def _address(server: _Server) -> str:
    return f"{server.scheme}://{server.server_address[0]!s}:{server.server_address[1]}"


class _RefusedError(Exception):
    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        if code:
            self.headers["X-Error-Code"] = code
        self.headers["X-Error-Message"] = message


class _Handler(ABC, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    @property
    def hub(self) -> Hub:
        return self.server.hub

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: `Hub.requests` keeps the record."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, self.path, self.headers.get("Range"), "Authorization" in self.headers)
        self.record().append(request)
        self.hub.on_request(request)
        if self.hub.close_at_once:
            self.close_connection = True
            return
        time.sleep(self.hub.latency)
        url = urlsplit(self.path)
        try:
            if url.path in self.hub.redirects:
                self.head(302, 0, {"Location": self.hub.redirects[url.path]})
                return
            if url.path in self.hub.status:
                self.fail(self.hub.status[url.path])
            self.route(url)
        except _RefusedError as refusal:
            self.json({"error": str(refusal)}, refusal.status, refusal.headers)

    @abstractmethod
    def record(self) -> list[Request]:
        """Where requests are noted."""

    @abstractmethod
    def route(self, url: SplitResult) -> None:
        """Answer a request. Raises _RefusedError."""

    def fail(self, status: int) -> None:
        headers = {"Retry-After": str(self.hub.retry_after)} if status in (429, 503) else {}
        raise _RefusedError(status, "", f"fault {status}", headers)

    def json(self, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.head(status, len(body), {"Content-Type": "application/json", **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def head(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def file(self, file: HubFile, headers: Mapping[str, str]) -> None:
        """Answer with the file, or with the part that Range asks for where If-Range allows that."""
        if file.path in self.hub.status:
            self.fail(self.hub.status[file.path])
        etag = self.hub.etags.get(file.path, f'"{file.sha256}"')
        start, end, status = 0, file.size, 200
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        conditional = self.headers.get("If-Range", etag) == etag and not self.hub.ignore_ranges
        if wanted and any(wanted.groups()) and conditional:
            first, last = wanted.groups()
            start = int(first) if first else max(0, file.size - int(last))
            end = min(file.size, int(last) + 1) if first and last else file.size
            if start >= end:
                raise _RefusedError(416, "", "no such range", {"Content-Range": f"bytes */{file.size}"})
            status = 206
        extra = {}
        if status == 206:
            extra["Content-Range"] = self.hub.content_range or f"bytes {start}-{end - 1}/{file.size}"
        if self.hub.encoding:
            extra["Content-Encoding"] = self.hub.encoding
        length = end - start + self.hub.length_off
        self.head(status, length, {"ETag": etag, "Accept-Ranges": "bytes", **headers, **extra})
        if self.command != "HEAD":
            self._body(file, start, end)

    def _body(self, file: HubFile, start: int, end: int) -> None:
        limits = [start + limit for limit in (self.hub.truncate_after, self.hub.stall_after) if limit is not None]
        stop = min(end, *limits) if limits else end
        at = start
        if file.file and self.hub.bytes_per_second is None and file.path not in self.hub.corrupt:
            at = self._send_file(file.file, start, stop)
        while at < stop:
            pace = self.hub.bytes_per_second
            if pace is not None and self._is_deserted():
                # A first write to a client that was killed would pass, and be counted as sent.
                raise ConnectionResetError
            part = file.read(at, min(_CHUNK if pace is None else max(1, min(_CHUNK, pace // 50)), stop - at))
            at += len(part)
            self.wfile.write(_inverted(part) if file.path in self.hub.corrupt else part)
            self.hub.count(len(part))
            if pace is not None:
                time.sleep(len(part) / pace)
        if stop < end and self.hub.stall_after is not None:
            # Until the client has had enough.
            self.rfile.read(1)
        if stop < end:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def _send_file(self, path: Path, start: int, stop: int) -> int:
        """Send bytes of a file of this machine without looking at them; returns where that ended."""
        self.wfile.flush()
        with path.open("rb") as stream:
            while start < stop and (sent := self.connection.sendfile(stream, start, min(_SENT_AT_ONCE, stop - start))):
                self.hub.count(sent)
                start += sent
        return start

    def _is_deserted(self) -> bool:
        """Whether the client has closed its end."""
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False


def _inverted(part: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in part)


class _CdnHandler(_Handler):
    def record(self) -> list[Request]:
        return self.hub.cdn_requests

    def route(self, url: SplitResult) -> None:
        if self.hub.signature and url.query != f"signature={self.hub.signature}":
            raise _RefusedError(403, "", "the signature has expired")
        file = self.hub.blob(url.path.removeprefix("/blobs/"))
        if file is None:
            raise _RefusedError(404, "", "no such blob")
        self.file(file, {})


class _HubHandler(_Handler):
    def record(self) -> list[Request]:
        return self.hub.requests

    def route(self, url: SplitResult) -> None:
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(.+))?", url.path):
            self._api(match[1], match[2] or "revision/main", parse_qs(url.query))
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", url.path):
            self._resolve(match[1], unquote(match[2]), unquote(match[3]))
        else:
            raise _RefusedError(404, "", "no such route")

    def _api(self, name: str, call: str, query: Mapping[str, list[str]]) -> None:
        repo = self._repo(name)
        verb, _, rest = call.partition("/")
        if verb == "refs":
            branches = [
                {"name": branch, "ref": f"refs/heads/{branch}", "targetCommit": commit}
                for branch, commit in repo.branches.items()
            ]
            self.json({"branches": branches, "converts": [], "tags": []})
        elif verb == "auth-check":
            self._refuse_gated(name)
            self.json({})
        elif verb == "revision":
            commit, files = self._commit(name, repo, unquote(rest))
            self.json(
                {
                    "id": name,
                    "sha": commit,
                    "private": self.hub.token is not None,
                    "gated": "auto" if name in self.hub.gated else False,
                    "siblings": [self._sibling(file, "blobs" in query) for file in files.values()],
                }
            )
        elif verb == "tree":
            commit, files = self._commit(name, repo, unquote(rest))
            self._tree(f"/api/models/{name}/tree/{commit}", list(files.values()), query)
        elif verb == "paths-info":
            _, files = self._commit(name, repo, unquote(rest))
            asked = parse_qs(self.body.decode()).get("paths", [])
            self.json([self._entry(files[path]) for path in asked if path in files])
        else:
            raise _RefusedError(404, "", "no such route")

    def _repo(self, name: str) -> _Repo:
        # A plain-http hub must name its errors: the client guesses them from a bare 401 only on https.
        sent = self.headers.get("Authorization")
        if self.hub.token and sent and sent != f"Bearer {self.hub.token}":
            raise _RefusedError(401, "", "Invalid credentials in Authorization header")
        repo = self.hub.repo(name)
        if repo is None or (self.hub.token and not sent):
            raise _RefusedError(404 if sent else 401, "RepoNotFound", "Repository not found")
        return repo

    def _commit(self, name: str, repo: _Repo, revision: str) -> tuple[str, Mapping[str, HubFile]]:
        commit = repo.branches.get(revision, revision)
        if commit not in repo.commits:
            raise _RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision} in {name}")
        return commit, repo.commits[commit]

    def _refuse_gated(self, name: str) -> None:
        if name in self.hub.gated - self.hub.granted:
            status = 403 if "Authorization" in self.headers else 401
            raise _RefusedError(status, "GatedRepo", f"Access to model {name} is restricted")

    def _in_lfs(self, file: HubFile) -> bool:
        return file.path.endswith(_LFS_SUFFIXES) and file.path not in self.hub.not_lfs

    def _sibling(self, file: HubFile, blobs: bool) -> dict[str, object]:
        entry: dict[str, object] = {"rfilename": file.path}
        if blobs:
            entry |= {"size": file.size, "blobId": _oid(file)}
            if self._in_lfs(file):
                entry["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": 134}
        return entry

    def _entry(self, file: HubFile) -> dict[str, object]:
        entry: dict[str, object] = {"type": "file", "path": file.path, "size": file.size, "oid": _oid(file)}
        if self._in_lfs(file):
            entry["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
        return entry

    def _tree(self, path: str, files: list[HubFile], query: Mapping[str, list[str]]) -> None:
        start = int(query.get("cursor", ["0"])[0])
        stop = start + self.hub.page_size
        more = f'<{self.hub.url}{path}?recursive=true&expand=false&cursor={stop}>; rel="next"'
        headers = {"Link": more} if stop < len(files) else {}
        self.json([self._entry(file) for file in files[start:stop]], headers=headers)

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repo = self._repo(name)
        self._refuse_gated(name)
        commit, files = self._commit(name, repo, revision)
        file = files.get(path)
        if file is None:
            raise _RefusedError(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        headers = {"X-Repo-Commit": commit}
        if self.hub.cdn_url is None or not self._in_lfs(file):
            self.file(file, headers)
            return
        linked = {"X-Linked-ETag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        signed = f"?signature={self.hub.signature}" if self.hub.signature else ""
        location = {"Location": f"{self.hub.cdn_url}/blobs/{quote(file.sha256)}{signed}"}
        self.head(302, 0, headers | linked | location)


def _oid(file: HubFile) -> str:
    """Some stable git id; nobody checks it against the content."""
    return hashlib.sha1(file.sha256.encode()).hexdigest()
