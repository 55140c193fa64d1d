"""A signed repository of apt over real HTTP: flat, as NVIDIA's are, and it may change while hosts use it."""

from __future__ import annotations

import gzip
import hashlib
import os
import posixpath
import shutil
import subprocess
import tempfile
import threading
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support.deb import Package

KEY = "key.asc"
"""Where the key lies, below the repository's URL."""


class AptRepository:
    """Packages, an index of them, and a key made for it alone; use it as a context manager."""

    def __init__(self, *packages: Package, host: str = "127.0.0.1") -> None:
        self.host = host
        self.packages: list[Package] = []
        self.requests: list[str] = []
        """Paths that were asked for, in that order."""
        self.status = 200
        """Anything else is what every request gets."""
        self._files: dict[str, bytes] = {}
        # Not below a test's own folder: gpg's agent listens on a socket in it, and a socket's path is short.
        self._home = Path(tempfile.mkdtemp(prefix="apt-key-"))
        self._gpg(
            "--quick-generate-key", "--passphrase", "", "A repository <nobody@example.org>", "ed25519", "sign", "0"
        )
        listed = self._gpg("--with-colons", "--list-keys").decode()
        self.fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
        """All 40 digits of the key's."""
        self._key = self._gpg("--armor", "--export", self.fingerprint)
        self.publish(*packages)
        self._server = _Server((host, 0), self)

    def __enter__(self) -> AptRepository:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        subprocess.run(["gpgconf", "--homedir", str(self._home), "--kill", "all"], check=False, capture_output=True)
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def url(self) -> str:
        """Where its `InRelease` lies."""
        return f"http://{self._server.server_address[0]!s}:{self._server.server_address[1]}"

    @property
    def declared(self) -> dict[str, str]:
        """The repository as an inventory names it."""
        return {"url": self.url, "key": KEY, "fingerprint": self.fingerprint}

    def publish(self, *packages: Package) -> None:
        """Add packages, beside other versions of theirs that are there."""
        self.packages += packages
        self._index()

    def withdraw(self, *packages: Package) -> None:
        """Have these no longer."""
        self.packages = [package for package in self.packages if package not in packages]
        self._index()

    def get(self, path: str) -> bytes | None:
        """A file by its path."""
        return self._files.get(path)

    @property
    def key(self) -> str:
        """The key, armoured."""
        return self._key.decode()

    def _index(self) -> None:
        stanzas = [
            f"{package.control}Filename: ./{package.filename}\nSize: {len(package.deb)}\n"
            f"SHA256: {hashlib.sha256(package.deb).hexdigest()}\n"
            for package in self.packages
        ]
        index = "\n".join(stanzas).encode()
        indices = {"Packages": index, "Packages.gz": gzip.compress(index, mtime=0)}
        hashes = "".join(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in indices.items())
        date = formatdate(usegmt=True).replace("GMT", "UTC")
        release = f"Origin: NVIDIA\nLabel: NVIDIA CUDA\nArchitectures: amd64\nDate: {date}\nSHA256:\n{hashes}".encode()
        signed = self._gpg("--clearsign", "--digest-algo", "SHA256", told=release)
        debs = {package.filename: package.deb for package in self.packages}
        # In one piece: a host that asks meanwhile gets the old index or the new one, and never parts of both.
        self._files = {**indices, "Release": release, "InRelease": signed, KEY: self._key, **debs}

    def _gpg(self, *arguments: str, told: bytes = b"") -> bytes:
        environment = {**os.environ, "GNUPGHOME": str(self._home)}
        command = ["gpg", "--batch", "--quiet", "--no-tty", "--pinentry-mode", "loopback", *arguments]
        return subprocess.run(command, env=environment, input=told, stdout=subprocess.PIPE, check=True).stdout


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], repository: AptRepository) -> None:
        self.repository = repository
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """Any file of the repository's, whole."""
        repository = self.server.repository
        path = posixpath.normpath(unquote(urlsplit(self.path).path)).strip("/")
        repository.requests.append(path)
        data = repository.get(path)
        status = repository.status if repository.status != 200 else 404 if data is None else 200
        body = data if data is not None and status == 200 else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *said: object) -> None:
        """Nothing: tests have `requests`."""
