"""A port of a host's own loopback as a port here: by the OpenSSH client, for as long as it is needed."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import suppress
from typing import Self

from llamaherd.diagnostics.endings import end_with_parent
from llamaherd.host.ssh import RemoteError, argv, not_started, place
from llamaherd.inventory.schema import LOCAL, Connect

HERE = "127.0.0.1"
_SECONDS = 30
_EVERY = 0.05
_MOST_ERROR = 64 << 10


def forward_argv(connect: Connect, here: int, there: int) -> list[str]:
    """The command that does it, and nothing else there: no shell, no connection that others share."""
    words = argv(connect, fresh=True)
    at = words.index("--")
    way = ["-N", "-o", "ExitOnForwardFailure=yes", "-L", f"{HERE}:{here}:{HERE}:{there}"]
    return [*words[:at], *way, *words[at:-1]]


class Forward:
    """The way to a port of a host, from `with` to its end; `url` is what is asked. Nobody need listen there yet."""

    def __init__(self, connect: Connect, port: int) -> None:
        self._connect, self._port = connect, port
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://{HERE}:{port}"

    def __enter__(self) -> Self:
        """Open it. Raises RemoteError."""
        if self._connect.host == LOCAL:
            return self
        here = _free_port()
        self._process = subprocess.Popen(
            forward_argv(self._connect, here, self._port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"LC_ALL": "C"},
            preexec_fn=end_with_parent,
        )
        try:
            self._wait(here)
        except BaseException:
            self.__exit__()
            raise
        self.url = f"http://{HERE}:{here}"
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        if self._process:
            assert self._process.stderr
            self._process.stderr.close()
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _wait(self, here: int) -> None:
        assert self._process
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            if (code := self._process.poll()) is not None:
                assert self._process.stderr
                err = os.read(self._process.stderr.fileno(), _MOST_ERROR).decode(errors="replace")
                raise not_started(self._connect, code, err, "")
            with suppress(OSError), socket.create_connection((HERE, here), 1):
                return
            time.sleep(_EVERY)
        raise RemoteError(
            f"{place(self._connect)} passes no connection on within {_SECONDS} s",
            "look whether its sshd allows that (`AllowTcpForwarding`)",
        )


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind((HERE, 0))
        return int(tried.getsockname()[1])
