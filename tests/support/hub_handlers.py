"""What a hub answers: the routes that huggingface_hub and `curl -C -` use, and the faults that it was told to have."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from tests.support.hub_files import HubFile, HubRepo

if TYPE_CHECKING:
    from tests.support.hub_server import Hub, Server

_CHUNK = 64 * 1024
_SENT_AT_ONCE = 512 * 1024
_LFS_SUFFIXES = (".gguf", ".safetensors", ".bin", ".dat")


class Request(NamedTuple):
    """One request as it came in; `range` is the header as sent, `path` has its query."""

    method: str
    path: str
    range: str | None
    had_auth: bool


class RefusedError(Exception):
    """The answer is a status, with what the public hub says beside it."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        if code:
            self.headers["X-Error-Code"] = code
        self.headers["X-Error-Message"] = message


class Handler(ABC, BaseHTTPRequestHandler):
    """What both ports do: note the request, answer with a file, and the faults of either."""

    protocol_version = "HTTP/1.1"
    server: Server

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
        except RefusedError as refusal:
            self.json({"error": str(refusal)}, refusal.status, refusal.headers)

    @abstractmethod
    def record(self) -> list[Request]:
        """Where requests are noted."""

    @abstractmethod
    def route(self, url: SplitResult) -> None:
        """Answer a request. Raises RefusedError."""

    def fail(self, status: int) -> None:
        headers = {"Retry-After": str(self.hub.retry_after)} if status in (429, 503) else {}
        raise RefusedError(status, "", f"fault {status}", headers)

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
                raise RefusedError(416, "", "no such range", {"Content-Range": f"bytes */{file.size}"})
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
            part = file.read(at, min(_CHUNK if pace is None else max(1, min(_CHUNK, pace // 200)), stop - at))
            at += len(part)
            with self.hub.counted.piece() as count:
                self.wfile.write(_inverted(part) if file.path in self.hub.corrupt else part)
                count(len(part))
            self.hub.wait_for_the_line(len(part))
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
            while start < stop:
                with self.hub.counted.piece() as count:
                    sent = self.connection.sendfile(stream, start, min(_SENT_AT_ONCE, stop - start))
                    count(sent)
                if not sent:
                    break
                self.hub.wait_for_the_line(sent)
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


class CdnHandler(Handler):
    """Contents by their sha256."""

    def record(self) -> list[Request]:
        return self.hub.cdn_requests

    def route(self, url: SplitResult) -> None:
        if self.hub.signature and url.query != f"signature={self.hub.signature}":
            raise RefusedError(403, "", "the signature has expired")
        file = self.hub.blob(url.path.removeprefix("/blobs/"))
        if file is None:
            raise RefusedError(404, "", "no such blob")
        self.file(file, {})


class HubHandler(Handler):
    """Metadata, and files by repository, revision and path."""

    def record(self) -> list[Request]:
        return self.hub.requests

    def route(self, url: SplitResult) -> None:
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(.+))?", url.path):
            self._api(match[1], match[2] or "revision/main", parse_qs(url.query))
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", url.path):
            self._resolve(match[1], unquote(match[2]), unquote(match[3]))
        else:
            raise RefusedError(404, "", "no such route")

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
            raise RefusedError(404, "", "no such route")

    def _repo(self, name: str) -> HubRepo:
        # A plain-http hub must name its errors: the client guesses them from a bare 401 only on https.
        sent = self.headers.get("Authorization")
        if self.hub.token and sent and sent != f"Bearer {self.hub.token}":
            raise RefusedError(401, "", "Invalid credentials in Authorization header")
        repo = self.hub.repo(name)
        if repo is None or (self.hub.token and not sent):
            raise RefusedError(404 if sent else 401, "RepoNotFound", "Repository not found")
        return repo

    def _commit(self, name: str, repo: HubRepo, revision: str) -> tuple[str, Mapping[str, HubFile]]:
        commit = repo.branches.get(revision, revision)
        if commit not in repo.commits:
            raise RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision} in {name}")
        return commit, repo.commits[commit]

    def _refuse_gated(self, name: str) -> None:
        if name in self.hub.gated - self.hub.granted:
            status = 403 if "Authorization" in self.headers else 401
            raise RefusedError(status, "GatedRepo", f"Access to model {name} is restricted")

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
            raise RefusedError(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
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
