"""Hold the lock of a host by a connection: one run at a time changes the host."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress

from llamaherd.host.program import Events, packed_program, request
from llamaherd.host.protocol import query_verb, result_of
from llamaherd.host.remote import Patience, Remote, RemoteError, Shell
from llamaherd.inventory.schema import Connect
from llamaherd.layout import LOCK_WAIT
from llamaherd.onhost.reservation import RUN_CHANGES, RUN_HELD, RunLockInput, Unlocked
from llamaherd.onhost.verbs import NoInput

_SECONDS = 60
_MOST_CHARACTERS = 200
"""Characters of the user and machine that hold the lock."""


class HostLock:
    """The lock of a run on a host. Other runs wait until it is released, or until its connection ends."""

    def __init__(self, rig: str, connect: Connect, who: str) -> None:
        self._rig, self._connect = rig, connect
        self._who = " ".join(who.split())[:_MOST_CHARACTERS]  # one line of the lock
        self._shell: Shell | None = None
        self._ready: Shell | None = None

    def log_in(self) -> None:
        """Log in ahead: for the lock, or for the first change if this run holds the lock. Raise RemoteError."""
        self._ready = Shell(self._connect, fresh=True)

    def ready(self) -> Shell | None:
        """Return the shell of `log_in`, if it still runs. The caller closes it."""
        shell, self._ready = self._ready, None
        return shell if shell and shell.alive else None

    def take(self, say: Callable[[str], None], wait: int = LOCK_WAIT) -> bool:
        """Take the lock, or keep it. Return whether it was taken now: another run may have changed the host.

        Wait so many seconds for another run, and report that. Raise UserError if another run keeps the lock for longer,
        RemoteError if the host cannot be reached, and NoPythonError.
        """
        if self._shell and self._shell.alive:
            return False
        shell = self.ready() or Shell(self._connect, fresh=True)
        self.give_back()
        complaints: list[str] = []

        def hear(stream: str, line: str) -> None:
            if stream == "stderr":
                complaints.append(line)
            else:
                say(line.rstrip("\n"))

        events = Events(hear)
        document = request("llamaherd.reservation.hold_run", RunLockInput(self._rig, self._who, wait))
        # The verb waits for other runs, and then for changes that a killed run has begun.
        patience = Patience.within(2 * wait + _SECONDS, "waiting for other runs")
        try:
            with closing(shell.values(packed_program(), document, events, patience)) as values:
                if RUN_HELD in values:
                    self._shell = shell
                    return True
            result_of(events, complaints)
            raise RemoteError("this run did not get the lock of the host", "run the command again")
        finally:
            if self._shell is not shell:
                shell.close()

    def note_changes(self) -> None:
        """Let the host note that this run changes it: an interrupted run stores no release."""
        if self._shell:
            with suppress(RemoteError):  # a run that has lost this connection fails anyway
                self._shell.tell(RUN_CHANGES)

    def give_back(self) -> None:
        """Release the lock, and close the shells."""
        for shell in filter(None, (self._shell, self._ready)):
            shell.close()
        self._shell = self._ready = None


def unlock_host(connect: Connect) -> Unlocked:
    """Break the lock of a host. Return the result. Raise RemoteError."""
    return query_verb(Remote(connect), "llamaherd.reservation.unlock", NoInput(), Unlocked, _SECONDS)
