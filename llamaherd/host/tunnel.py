"""A port of this machine that leads to a server on its host, by the OpenSSH client."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.remote import Patience, Shell
from llamaherd.host.ssh import Forward, RemoteError, place
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.plan import Endpoint
from llamaherd.text.quoting import url_host

_CLOSING_SECONDS = 2
_SIGN_SECONDS = 20
"""Seconds between two lines from the host while nothing else happens."""
_LONGEST_SECONDS = 20 * 86_400
_PROHIBITED = "administratively prohibited"
_REFUSED = "connect failed"
"""Words of the ssh client for a connection that it could not forward."""

_FIRST_PORT, _PORTS = 20_000, 10_000
"""Ports below those that systems give to programs by themselves."""


class NotListeningError(UserError):
    """The host has refused a connection to the port of the server."""


class Tunnel:
    """A tunnel to a server that listens on its host: from `with` to its end, `url` leads to the server.

    If the host is this machine, `url` is the server's own address.
    """

    url: str

    def __init__(self, connect: Connect, endpoint: Endpoint, port: int | None = None) -> None:
        """Prepare a tunnel from a `port` of this machine, or from any free port."""
        self._connect, self._endpoint, self._port = connect, endpoint, port
        self._shell: Shell | None = None

    def __enter__(self) -> Self:
        """Connect. Raise RemoteError."""
        if self._connect.host == LOCAL:
            self.url = self._endpoint.url()
            return self
        here = self._port or free_port()
        forward = Forward(here, url_host(self._endpoint.local_address), self._endpoint.port)
        self._shell = Shell(self._connect, root=False, fresh=True, forward=forward)
        self.url = f"http://127.0.0.1:{here}"
        return self

    def __exit__(self, *_: object) -> None:
        """End the connection."""
        if self._shell:
            self._shell.close()

    @property
    def alive(self) -> bool:
        """Return whether the connection to the host still exists."""
        return self._shell is None or self._shell.alive

    def keep_open(self) -> None:
        """Wait until the connection ends. Raise RemoteError then, with the reason."""
        assert self._shell
        patience = Patience(silence=3 * _SIGN_SECONDS, total=_LONGEST_SECONDS)
        # It reads what the ssh client prints, too: a full pipe would block the client.
        self._shell.run(f"while sleep {_SIGN_SECONDS}; do echo; done\n", lambda *_: None, patience)
        raise RemoteError(f"the connection to {place(self._connect)} has ended", "run the command again")

    def failure(self) -> UserError | None:
        """Return why a request through the tunnel failed; None if the tunnel is not the reason.

        It ends the connection.
        """
        if self._shell is None:
            return None
        try:
            self._shell.run("exit\n", lambda *_: None, Patience.within(_CLOSING_SECONDS))
        except RemoteError as error:
            if not self._shell.alive:
                return error
            # The server still sends, so the client does not end.
        complaints = self._shell.complaints
        if prohibited := forwarding_error(self._connect, complaints):
            return prohibited
        if any(_REFUSED in line for line in complaints):
            return NotListeningError(
                f"no server on {place(self._connect)} listens on port {self._endpoint.port}",
                "see its state with `herd status`, and start it with `herd up`",
            )
        return None


def forwarding_error(connect: Connect, complaints: Iterable[str]) -> UserError | None:
    """Return the error that the host's SSH server forwards no ports, if the ssh client has reported it."""
    if not any(_PROHIBITED in line for line in complaints):
        return None
    return UserError(
        f"the SSH server of {place(connect)} forwards no ports, but its servers are reached through it",
        "allow it in sshd_config there: `AllowTcpForwarding local`",
    )


def free_port() -> int:
    """Return a port of this machine that is free."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def steady_port(name: str) -> int:
    """Return a port of this machine that is the same for the same name, or any free port if it is taken.

    Browsers keep what a page stores by its port.
    """
    port = _FIRST_PORT + zlib.crc32(name.encode()) % _PORTS
    return port if is_free(port) else free_port()


def is_free(port: int) -> bool:
    """Return whether a program may listen on this port of this machine's loopback."""
    with socket.socket() as one, suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", port))
        return True
    return False
