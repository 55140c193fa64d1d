"""The way to a server that is measured: a connection through which it is asked, and which keeps others off.

A host lets one measurement go on at a time. The lock is the connection's: both are gone with this program.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, Self

from llamaherd.bench.asking.client import Target
from llamaherd.diagnostics.findings import UserError
from llamaherd.host.forward import Forward
from llamaherd.host.pipes import Patience
from llamaherd.host.remote import Shell
from llamaherd.host.ssh import RemoteError, place
from llamaherd.inventory.keys import UnreadableKeyError, read_key
from llamaherd.inventory.schema import LOCAL, Connect
from llamaherd.layout import LOCKS
from llamaherd.onhost.exclusivity import HELD, ExclusivityInput
from llamaherd.plan import InstancePlan
from llamaherd.text.quoting import url_host

_SECONDS = 60
_PROHIBITED = "administratively prohibited"
_LETTERS = 200
"""Of who measures."""


class Way:
    """From `with` to its end, `target` is the server of an instance, as it is asked from here.

    `client` is where the requests come from: the host itself, or the machine that it is reached from by SSH.
    """

    target: Target

    def __init__(self, connect: Connect, instance: InstancePlan, who: str) -> None:
        self._connect, self._endpoint = connect, instance.endpoint
        self._who = " ".join(who.split())[:_LETTERS]
        self._shell: Shell | None = None
        self._said: Iterator[str] = iter(())
        self._patience = Patience.within(_SECONDS, "taking the lock of measurements")
        self.client: Literal["host", "controller"] = "host" if connect.host == LOCAL else "controller"

    def __enter__(self) -> Self:
        """Connect. Raises RemoteError, and UserError where there is no key, or another measurement goes on."""
        key = self._key()
        if self.client == "host":
            self.target = Target(self._endpoint.url(), key)
            forward = None
        else:
            port = _free_port()
            self.target = Target(f"http://127.0.0.1:{port}", key)
            forward = Forward(port, url_host(self._endpoint.local_address), self._endpoint.port)
        self._shell = Shell(self._connect, fresh=True, forward=forward)
        try:
            self._keep_others_off(self._shell)
        except BaseException:
            self._shell.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Let go."""
        if self._shell:
            self._shell.hang_up()
            self._shell.close()

    def refused(self) -> UserError | None:
        """That the host's SSH server forwards no ports, where that is why nothing was answered. Then this is over."""
        if self._shell is None:
            return None
        self._shell.hang_up()
        self._patience.renew(_SECONDS)
        with suppress(UserError):
            list(self._said)
        if not any(_PROHIBITED in line for line in self._shell.complaints):
            return None
        return UserError(
            f"the SSH server of {place(self._connect)} forwards no ports, and its servers are asked through it",
            "allow it in sshd_config there: `AllowTcpForwarding local`",
        )

    def _key(self) -> str | None:
        try:
            return read_key(self._endpoint.key) if self._endpoint.key else None
        except UnreadableKeyError as error:
            raise UserError(str(error), "put the key there") from None

    def _keep_others_off(self, shell: Shell) -> None:
        # Kept: what it says is listened to for as long as it is there.
        self._patience.renew(_SECONDS)
        self._said = shell.converse("llamaherd.exclusivity.hold", ExclusivityInput(self._who), self._patience)
        if next(self._said, None) == HELD:
            return
        *_, why = ("it does not report why", *shell.complaints)
        raise RemoteError(f"the lock of this host cannot be taken: {why}", f"inspect {LOCKS} there")


def _free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
