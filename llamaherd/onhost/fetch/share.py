"""Share the verified files of this host's store with peers over HTTP, for clients with a token, during a fetch."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, BinaryIO

from llamaherd.onhost.fetch import manifest
from llamaherd.onhost.fetch.job import FetchError, Progress, show_size
from llamaherd.onhost.fetch.manifest import Vouched


class SharedStore:
    """The files of a store by sha256. No name that a client sends becomes a path."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._read: dict[Path, tuple[int, int, int]] = {}
        self._files: dict[str, list[Vouched]] = {}

    def names(self) -> list[str]:
        """Return the sha256 of every file that is available now."""
        return [sha256 for sha256 in sorted(self._current()) if self._has(sha256)]

    def _has(self, sha256: str) -> bool:
        stream = self.find(sha256)
        if stream:
            stream.close()
        return stream is not None

    def find(self, sha256: str) -> BinaryIO | None:
        """Open a file, if it is unchanged since it was verified, and only root can change it."""
        for vouched in self._current().get(sha256, []):
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                # Without O_NONBLOCK, opening a named pipe in place of the file would wait.
                handle = os.open(vouched.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                stream = stack.enter_context(os.fdopen(handle, "rb"))
                found = os.fstat(handle)
                if stat.S_ISREG(found.st_mode) and vouched.unchanged(found) and manifest.is_writable_by_us_only(found):
                    stack.pop_all()
                    return stream
        return None

    def _current(self) -> dict[str, list[Vouched]]:
        """Return the entries of the manifests, read again after any of them was added, changed or removed."""
        states = {path: _state(path) for path in manifest.find_manifests(self._store)}
        with self._lock:
            if states != self._read:
                self._files = {}
                for path in states:
                    for each in manifest.read_manifest(path):
                        self._files.setdefault(each.sha256, []).append(each)
                self._read = states
            return self._files


def _state(path: Path) -> tuple[int, int, int]:
    """Return values that change once a file is written anew; zeros if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns


_CONNECTIONS = 64
_PATIENCE = 30.0  # seconds that a client has for a whole request, and to take some bytes of the response
_CHECK_SECONDS = 0.25  # seconds between two checks for silent clients, and for the end
_UNSENT = 256 * 1024
_SENT_AT_ONCE = 64 * 1024 * 1024
_LONGEST = 24 * 3600.0  # seconds that a token is valid, however often it is used, and that a response may take
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)


def serve_store(store: Path, run: Path, bind: str, port: int, idle: float) -> None:
    """Serve until no request with a token has arrived for `idle` seconds. Raise FetchError if it cannot listen."""
    progress = Progress(run)
    try:
        server = _Server(SharedStore(store), run / "secrets", bind, port, _PATIENCE, idle, _LONGEST)
    except OSError as error:
        raise FetchError(
            f"cannot share models at {bind}, port {port}: {error.strerror}",
            "give an address of this host and a port that is free, in `store: share:`",
        ) from None
    with server:
        at = f"{bind}, port {server.server_address[1]}"
        progress.note(f"sharing models at {at}")
        for sent in server.serve_while_needed(idle):
            progress.show(f"sharing models at {at}: {show_size(sent)} were sent")
    progress.note(f"no longer sharing: no request for {idle:g} s")


def byte_range(header: str, size: int) -> range | None:
    """Return the range of a Range header in so many bytes: empty if there is no such part, None if it is to
    be ignored.
    """
    match = _RANGE.fullmatch(header.strip())
    if not match or match.groups() == ("", ""):
        return None  # several ranges, or another unit: the whole file is a valid response too
    first, last = match.groups()
    if not first:
        return range(max(0, size - int(last)), size)
    if last and int(last) < int(first):
        return None
    return range(int(first), min(size, int(last) + 1) if last else size)


class _Server(ThreadingMixIn, TCPServer):
    """A thread for each connection; unlike http.server's own, it queries no DNS for its name, which may take long."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = _CONNECTIONS
    timeout = _CHECK_SECONDS

    def __init__(
        self, shelf: SharedStore, secrets: Path, bind: str, port: int, patience: float, idle: float, longest: float
    ) -> None:
        self.shelf = shelf
        self.patience = patience
        self._idle, self._longest = idle, longest
        self._since: dict[Path, float] = {}
        self._last_used: dict[Path, float] = {}
        self._secrets = secrets
        self._lock = threading.Lock()
        # Connections, and since when each has sent no request. While a response is sent, that is when its token
        # expires.
        self._silent_since: dict[socket.socket, float] = {}
        self._answering = 0
        self._answered = time.monotonic()
        self._sent = 0
        family, _, _, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        super().__init__((str(address[0]), int(address[1])), _Handler)

    def serve_while_needed(self, idle: float) -> Iterator[int]:
        """Serve until no request arrives for `idle` seconds; every second, yield the bytes that were sent if there are
        more.
        """
        yielded, when = 0, time.monotonic()
        while self._answering or time.monotonic() - self._answered < idle:
            # Clients beyond the limit wait in the kernel's queue.
            if len(self._silent_since) < _CONNECTIONS:
                self.handle_request()
            else:
                time.sleep(_CHECK_SECONDS)
            self._drop_the_silent()
            if self._sent != yielded and time.monotonic() - when >= 1:
                yielded, when = self._sent, time.monotonic()
                yield yielded

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._silent_since[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._silent_since.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients disconnect at any time: a fetch that is stopped, a rig that is switched off.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def token_file(self, authorization: str) -> Path | None:
        """Return the file of the token in a header; None for an invalid one. Tokens may change at any time."""
        scheme, _, token = authorization.partition(" ")
        sent = token.strip().encode("latin-1")
        # Each is compared, and each in constant time, so the time reveals nothing.
        same = {path for path, secret in self._tokens().items() if hmac.compare_digest(sent, secret)}
        if scheme.lower() != "bearer" or not same:
            return None
        path = min(same)
        self.used(path)
        return path

    def used(self, token: Path) -> None:
        """Record that a client with this token is active."""
        with self._lock:
            self._last_used[token] = time.monotonic()

    def _tokens(self) -> dict[Path, bytes]:
        """Return the valid tokens. One expires when it was unused for as long as ends the program, or is too old."""
        tokens = {}
        with contextlib.suppress(FileNotFoundError):
            for path in self._secrets.iterdir():
                with contextlib.suppress(OSError):
                    if self._is_over(path):
                        path.unlink()
                    elif token := path.read_bytes().strip():
                        tokens[path] = token
        return tokens

    def _is_over(self, path: Path) -> bool:
        now = time.monotonic()
        with self._lock:
            first, last = self._since.setdefault(path, now), self._last_used.setdefault(path, now)
        return now - last > self._idle or now - first > self._longest

    @contextlib.contextmanager
    def answering(self, connection: socket.socket, token: Path) -> Iterator[None]:
        """Protect a connection while a response is sent to a client with a token, which may be slow; not longer than
        the token is valid.
        """
        with self._lock:
            self._answering += 1
            self._silent_since[connection] = time.monotonic() + self._longest
        try:
            yield
        finally:
            self.used(token)
            with self._lock:
                self._answering -= 1
                self._answered = self._silent_since[connection] = time.monotonic()

    def count(self, sent: int) -> None:
        """Add to the bytes that were sent."""
        with self._lock:
            self._sent += sent

    def _drop_the_silent(self) -> None:
        """Close connections without a whole request for long."""
        with self._lock:
            for connection, since in self._silent_since.items():
                if time.monotonic() - since > self.patience:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.patience)
        # Otherwise megabytes wait in the kernel, and a slow client seems to take nothing for long.
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)

    def log_message(self, *_: object) -> None:
        """Log nothing: a fetch makes thousands of requests."""

    def version_string(self) -> str:
        return "llamaherd"

    def do_GET(self) -> None:
        self._respond()

    def do_HEAD(self) -> None:
        self._respond()

    def _respond(self) -> None:
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # an unrequested body would be read as the next request
        token = self.server.token_file(self.headers.get("Authorization", ""))
        if token is None:
            self._reply(HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": "Bearer"})
            return
        with self.server.answering(self.connection, token):
            if self.path == "/":
                names = json.dumps(self.server.shelf.names()).encode()
                self._reply(HTTPStatus.OK, names, {"Content-Type": "application/json"})
            elif stream := self.server.shelf.find(self.path.removeprefix("/")):
                with stream:
                    self._send_file(stream, f'"{self.path.removeprefix("/")}"')
            else:
                self._reply(HTTPStatus.NOT_FOUND)

    def _send_file(self, stream: BinaryIO, etag: str) -> None:
        """Send a file, or the requested part of it."""
        size = stream.seek(0, 2)
        wanted = None
        if self.headers.get("If-Range", etag) == etag:
            wanted = byte_range(self.headers.get("Range", ""), size)
        if wanted is not None and not wanted:
            self._reply(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers={"Content-Range": f"bytes */{size}"})
            return
        part = range(size) if wanted is None else wanted
        headers = {"Content-Type": "application/octet-stream", "ETag": etag, "Accept-Ranges": "bytes"}
        if wanted is None:
            self._head(HTTPStatus.OK, size, headers)
        else:
            where = f"bytes {part.start}-{part.stop - 1}/{size}"
            self._head(HTTPStatus.PARTIAL_CONTENT, len(part), {**headers, "Content-Range": where})
        if self.command != "HEAD":
            self._body(stream, part)

    def _body(self, stream: BinaryIO, part: range) -> None:
        at = part.start
        while at < part.stop:
            sent = self.connection.sendfile(stream, at, min(_SENT_AT_ONCE, part.stop - at))
            if not sent:  # the file was cut off; the client must notice that its response was, too
                self.close_connection = True
                return
            self.server.count(sent)
            at += sent

    def _reply(self, status: HTTPStatus, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self._head(status, len(body), headers or {})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
