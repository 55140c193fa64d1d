"""The lock of a host: one run at a time changes it. It is held by a connection, and gone when that is."""

from __future__ import annotations

from collections.abc import Callable

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.pipes import Patience
from llamaherd.host.protocol import ask_host, question_of, take_facts
from llamaherd.host.remote import Remote, Shell
from llamaherd.inventory.schema import Connect
from llamaherd.layout import LOCK_WAIT
from llamaherd.render import render

_YOURS = "llamaherd: it is yours"
_SECONDS = 60
_LETTERS = 200
"""Of who holds it."""


class Turn:
    """A run's turn on a host. Others wait until it is given back, or until its connection is gone."""

    def __init__(self, rig: str, connect: Connect, who: str) -> None:
        self._rig, self._connect = rig, connect
        self._who = " ".join(who.split())[:_LETTERS]  # one line of the lock, and one field of an answer
        self._shell: Shell | None = None
        self._ready: Shell | None = None

    def log_in(self) -> None:
        """Log in for it, to take it quickly; or, where it is ours, for the first script. Raises RemoteError."""
        self._ready = Shell(self._connect)

    def ready(self) -> Shell | None:
        """The shell that was logged in to, if it still waits. It is the caller's."""
        shell, self._ready = self._ready, None
        return shell if shell and shell.alive else None

    def take(self, say: Callable[[str], None], wait: int = LOCK_WAIT) -> bool:
        """Take it, or keep it. Whether it was taken just now: another run may have changed the host since it was seen.

        Other runs are waited for, so many seconds, which is said. Raises UserError where one goes on for longer,
        RemoteError where the host cannot be asked.
        """
        if self._shell and self._shell.alive:
            return False
        shell = self.ready() or Shell(self._connect)
        self.give_back()
        try:
            script = render("host/turn.sh.j2", rig=self._rig, who=self._who, wait=wait, yours=_YOURS)
            # It waits for other runs, and then for what one of them has begun.
            for line in shell.before_it_listens(script, Patience.within(2 * wait + _SECONDS, "waiting for other runs")):
                if line == _YOURS:
                    self._shell = shell
                    return True
                say(line)
            raise _refused(shell.complaints)
        finally:
            if self._shell is not shell:
                shell.close()

    def give_back(self) -> None:
        """Let the next run have it."""
        for shell in filter(None, (self._shell, self._ready)):
            shell.close()
        self._shell = self._ready = None


def _refused(complaints: list[str]) -> UserError:
    """Why it was not to be had, in the host's words."""
    *_, why, way_out = ("", *complaints) if complaints else ("", "it does not say why", "")
    if way_out.startswith("  help: "):
        return UserError(why, way_out.removeprefix("  help: "))
    return UserError(f"the lock of this host cannot be taken: {way_out or why}", "look at /run/llamaherd/locks there")


def unlock(connect: Connect) -> tuple[bool, str]:
    """Break the lock of a host. Whether it is free now, and who held it, if anybody did. Raises RemoteError."""
    free, by = True, ""

    def take(kind: str, fields: list[str]) -> bool:
        nonlocal free, by
        match kind, fields:
            case "free", []:
                pass
            case (("broken" | "held"), [who]):
                free, by = kind == "broken", who or "somebody"
            case _:
                return False
        return True

    take_facts(ask_host(Remote(connect), unlock_script(), _SECONDS), take)
    return free, by


def unlock_script() -> str:
    """The script that breaks it."""
    return question_of("host/unlock.sh.j2")
