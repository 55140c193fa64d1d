"""Switch servers that take something from each other, such as a port: all of them change, or none.

How to end that is on the disk before the first one is stopped: whatever ends the run, the next one does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from llamaherd.layout import EXCHANGE
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.document import DocumentError, decode, dump, parse_document
from llamaherd.onhost.services import locked
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.backends import (
    ContainerBackend,
    UnitBackend,
    ensure_account,
    forget,
    free_port,
    other_kind,
    stop_both,
)
from roles.serve.onhost.kept import (
    note_refused,
    read_version,
    remove_unused,
    restore_files,
)
from roles.serve.onhost.model import CutOffInput, ExchangeInput, Server, SwitchInput
from roles.serve.onhost.probation import start_probation
from roles.serve.onhost.removal import drain_kept, let_go, restore_replaced
from roles.serve.onhost.states import Outcome, State
from roles.serve.onhost.switch import HOST_IS_SLOW, JOURNAL, RETRY, Switch, start_previous
from roles.serve.onhost.tools import TOOLS, Tools

DONE = f"{EXCHANGE}/done"
"""That all of them serve as declared."""
_MOST = 8 << 20
_SCRIPT_SECONDS = 86_400


def exchange(given: ExchangeInput, system: System, tools: Tools = TOOLS) -> None:
    """Switch servers together. Raise FailedError where they serve as before, or do not serve."""
    with locked(system, f"changing {given.names}"):
        if system.read(JOURNAL):
            raise FailedError(
                f"another run was cut off while it changed {given.names}, or others, so they were left as they are",
                "run `herd up` again, which ends that first",
            )
        Exchange(given, system, tools).run()


def end_cut_off(given: CutOffInput, system: System, tools: Tools = TOOLS) -> None:
    """End an exchange that was cut off: keep the new versions if all of them serve, else restore all."""
    with locked(system, f"ending what was done with {given.names}"):
        text = system.read(JOURNAL, _MOST)
        if not text:
            return
        if not text.startswith("{"):
            ended = system.run(["sh", JOURNAL], seconds=_SCRIPT_SECONDS)
            for line in (ended.out + ended.err).splitlines():
                system.report(line)
            if not ended.ok:
                raise FailedError(f"{given.names}: not all of them serve as before", "see the lines above")
            return
        try:
            found = decode(ExchangeInput, parse_document(text.encode()))
        except DocumentError as error:
            message = f"{JOURNAL} was written by another version of `herd`, and cannot be read: {error}"
            raise FailedError(message, "run `herd up` of that version, which ends the exchange") from None
        Exchange(found, system, tools).end()


class Exchange:
    """Servers that change together."""

    def __init__(self, given: ExchangeInput, system: System, tools: Tools) -> None:
        self.given, self.system, self.tools = given, system, tools
        self.switches = [Switch(each, system, tools, together=True) for each in given.members]
        self.stopped: float | None = None
        """When the first of them stopped."""
        self.host_is_slow = False
        """Whether the previous version of the server that was rolled back as slower is as slow now."""

    def run(self) -> None:
        """Check all, stop all, start all. Raise FailedError."""
        for switch in self.switches:
            self._each(switch, State.CHECK)
            self._each(switch, State.KEEP)
        for switch in self.switches:
            switch.candidate.end()
        self._write_journal()
        # A probation would take what is tried from here on for what it watches.
        for switch in self.switches:
            systemctl(self.system, "stop", switch.server.probation_unit)
        for switch in self.switches:
            self._stop(switch)
        for switch in self.switches:
            for state in (State.MARK, State.WRITE, State.STOP, State.START, State.PROVE, State.ACCEPT):
                if switch.step(state) is Outcome.FAILED:
                    self.restore(switch)
        self.system.write(DONE, "")
        self.end()

    def _each(self, switch: Switch, state: State) -> None:
        """Take a step that touches nothing. Raise FailedError."""
        if switch.step(state) is Outcome.FAILED:
            raise switch.failure or FailedError(f"{switch.server.service} cannot be changed")

    def _write_journal(self) -> None:
        new = f"{EXCHANGE}.new"
        try:
            self.system.remove(new)
            self.system.remove(str(EXCHANGE))
            self.system.folder(new, mode=0o700)
            self.system.write(f"{new}/back", dump(_journalled(self.given)))
            self.system.write(f"{new}/members", f"{self.given.names}\n")
            self.system.rename(new, str(EXCHANGE))
        except OSError as error:
            raise FailedError(
                f"cannot write the journal of {self.given.names} to {EXCHANGE} ({error.strerror}), "
                "so they were left as they are",
                f"`df -h {EXCHANGE.parent}` shows whether there is room",
            ) from error

    def _stop(self, switch: Switch) -> None:
        server, system = switch.server, self.system
        if switch.given.hangs or switch.given.paused:
            UnitBackend(system).kill(server.service)
            ContainerBackend(system).kill(server.service)
        system.report(f"stopping {server.service}: {self.given.names} change together")
        drain_kept(system, server.kept, self.tools, server.drain_seconds)
        if self.stopped is None:
            self.stopped = system.now()
        stop_both(system, server.service)
        self.tools.let_in(system)

    def end(self) -> None:
        """End it: keep the new versions if all of them serve, else restore all. Raise FailedError if one is down."""
        for switch in self.switches:
            switch.candidate.end()
        if self.system.entry(DONE):
            self._settle()
        else:
            self.restore(None)

    def _settle(self) -> None:
        """Keep the new versions from here on. The previous ones stay until the probation ends."""
        system = self.system
        servers = [switch.server for switch in self.switches]
        for switch in self.switches:
            kept = switch.server.kept
            if target := system.target(f"{kept}/next"):
                last = system.target(f"{kept}/last")
                new, old = read_version(system, kept, "next"), read_version(system, kept)
                if last and old and new and old.spec != new.spec:
                    system.link(f"{kept}/before", last)
                system.link(f"{kept}/last", target)
                system.remove(f"{kept}/next")
            remove_unused(system, kept)
            system.remove(switch.server.refused)
            if switch.given.moves:
                other = other_kind(switch.server.kind)
                forget(system, switch.server, unit=other == "unit", container=other == "container")
        let_go(system, self.given.replaced)
        self._end_journal()
        # From here on, the host itself probes all of them, and restores all if one fails.
        start_probation(system, servers)

    def _end_journal(self) -> None:
        # First what makes it one: a kill in the middle leaves a folder that means nothing.
        self.system.remove(JOURNAL)
        self.system.remove(str(EXCHANGE))

    def restore(self, failed: Switch | None) -> None:
        """Restore all. Raise FailedError where one of them failed, or does not serve now."""
        system, members = self.system, self.given.members
        slow = failed.proof.slow if failed and failed.proof else 0.0
        if failed:
            if failed.failure:
                system.warn(failed.failure.message)
            if not slow:
                self._note_refused(failed)
        system.report(f"restoring the previous versions: {self.given.names}")
        before = {each.server.service: self._as_before(each.server) for each in members}
        for each in members:
            if not before[each.server.service]:
                stop_both(system, each.server.service)
        lost = [
            each.server.service for each in members if not before[each.server.service] and not self._files_back(each)
        ]
        systemctl(system, "daemon-reload")
        for port in self.given.ports:
            free_port(system, port)
        for each in members:
            service = each.server.service
            is_slow = slow if failed and each.server is failed.server else 0.0
            if not before[service] and not self._serve_before(each.server, is_slow) and service not in lost:
                lost.append(service)
            if service not in lost:
                # This also removes the version that was refused.
                remove_unused(system, each.server.kept)
        if failed and slow:
            if self.host_is_slow:
                system.report(HOST_IS_SLOW)
            else:
                self._note_refused(failed)
        restore_replaced(system, self.given.replaced, f"one of {self.given.names}")
        self._end_journal()
        self._report(failed, lost)

    def _as_before(self, server: Server) -> bool:
        """Return whether a server was not stopped yet: it runs, or loads."""
        last = read_version(self.system, server.kept)
        running = (UnitBackend(self.system), ContainerBackend(self.system))
        return last is not None and any(each.started_spec(server.service) == last.spec for each in running)

    def _files_back(self, member: SwitchInput) -> bool:
        """Put the files of the previous version back; of a server that never served there are none."""
        server, system = member.server, self.system
        with suppress(OSError):
            system.remove(f"{server.kept}/next")
        last = read_version(system, server.kept)
        if last is None:
            systemctl(system, "-q", "disable", server.unit)
            systemctl(system, "reset-failed", server.unit)
            return True
        if last.kind != server.kind:
            forget(system, server, unit=server.kind == "unit", container=server.kind == "container")
        try:
            if last.kind == "unit":
                ensure_account(system, server.user)
            restore_files(system, last, server.user)
        except OSError as error:
            system.warn(f"the files of {server.service} cannot be written: {error.strerror}")
            return False
        return True

    def _serve_before(self, server: Server, slow: float) -> bool:
        """Start the previous version and prove it. Return whether it serves, or there is none."""
        system, began = self.system, self.system.now()
        last = read_version(system, server.kept)
        if last is None:
            return True
        why, is_slow = start_previous(server.service, last, system, self.tools, began=began, slow=slow, direct=False)
        self.host_is_slow = self.host_is_slow or is_slow
        if why is not None:
            system.warn(
                f"{server.service} was rolled back to the previous version, spec {last.spec}, "
                f"and that does not come up either: {why}"
            )
            return False
        system.report(f"{server.service} serves again as before, spec {last.spec}, after {system.now() - began:.0f} s")
        return True

    def _note_refused(self, failed: Switch) -> None:
        """Record the attempt, unless no more than the key has changed."""
        last = read_version(self.system, failed.server.kept)
        if last is None or last.spec != failed.server.spec:
            note_refused(self.system, failed.server, failed.why)

    def _report(self, failed: Switch | None, lost: Sequence[str]) -> None:
        """Raise FailedError with what failed and what serves."""
        if failed is None:
            if lost:
                raise FailedError(f"{', '.join(lost)} was rolled back, and does not serve", "see the lines above")
            return
        name, why = failed.server.service, failed.why
        failed.downtime = None if self.stopped is None else self.system.now() - self.stopped
        self.system.send(failed.failed(serves=not lost))
        if lost:
            raise FailedError(f"{name} does not serve as declared: {why}", RETRY)
        together = f"{self.given.names} serve as before, since they change together"
        raise FailedError(f"{together}, and {name} does not serve as declared: {why}", RETRY)


def _journalled(given: ExchangeInput) -> ExchangeInput:
    """Return what the end of an exchange needs: no key and no file is kept in the journal."""
    bare = (replace(each, files=(), arguments=(), container=None, candidate=None) for each in given.members)
    return replace(given, members=tuple(bare))


VERBS = {"run": Verb(ExchangeInput, exchange), "end": Verb(CutOffInput, end_cut_off)}
