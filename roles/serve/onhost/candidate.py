"""The new version side by side with the running one, at a port of its own, while the server itself starts anew.

Once it has proved itself, new connections are led to it. Its unit is below /run and ends by itself, so a killed
run leaves nothing that lasts.
"""

from __future__ import annotations

from contextlib import suppress

from llamaherd.layout import BESIDE, BESIDE_UNITS
from llamaherd.onhost.clients import docker, systemctl
from llamaherd.onhost.system import FailedError, System
from roles.serve.onhost.backends import UnitBackend, processes
from roles.serve.onhost.kept import note_refused, read_key, read_version
from roles.serve.onhost.model import CandidateInput, Room, SwitchInput
from roles.serve.onhost.tools import Tools

_LINE = 300


class Candidate:
    """A second server of one instance; it need not exist."""

    def __init__(self, given: SwitchInput, system: System, tools: Tools) -> None:
        self._given, self._server = given, given.server
        self._system, self._tools = system, tools
        self.proved = False
        """Whether it has proved itself in this run: the server itself is then proved in short."""
        self.leads = self.exists()
        """Whether connections are led to it: those of the program itself must not be."""

    @property
    def _unit(self) -> str:
        return f"{self._server.candidate}.service"

    def exists(self) -> bool:
        """Return whether there is one, of this run or of one that was cut off."""
        return self._system.entry(f"{BESIDE_UNITS}/{self._unit}") is not None

    def start(self) -> None:
        """Start and prove one, where there is room for both. Raise FailedError where it fails: nothing was stopped."""
        candidate = self._given.candidate
        assert candidate is not None
        # That of a run that was cut off has its port.
        self.end()
        lacking = self._tools.lacks_beside(self._system, Room(candidate.ram, candidate.gpus), candidate)
        if lacking:
            self._system.report(
                f"what is declared of {self._server.service} is not tried beside what serves, "
                f"which is away while it loads: {lacking}"
            )
            return
        self._start(candidate)

    def _start(self, candidate: CandidateInput) -> None:
        server, system = self._server, self._system
        system.report(
            f"starting what is declared of {server.service} beside what serves, on port {candidate.port}: "
            f"it has {server.start_seconds} s to load its model"
        )
        began = system.now()
        try:
            for file in candidate.files:
                system.write(file.path, file.text.text, mode=file.mode, owner=file.owner)
        except OSError as error:
            system.report(f"its files cannot be written ({error.strerror}), so {server.service} is away while it loads")
            self.end()
            return
        systemctl(system, "daemon-reload")
        if not systemctl(system, "start", self._unit, seconds=server.start_seconds + 120).ok:
            waited = f"{system.now() - began:.0f} s of {server.start_seconds}"
            self._fail(f"it was not healthy after {waited}", 20)
        proof = self._tools.prove(
            candidate.question,
            key=read_key(system, candidate.question),
            speeds=self._speeds(),
            how="beside",
            seconds=began + server.start_seconds - system.now(),
            short=False,
            pids=processes(system, server.candidate),
            other=None,
            slow=0.0,
            direct=False,
            system=system,
        )
        if proof.outcome != "good":
            self._fail(proof.why, 5)
        self.proved = True
        if self._listens(candidate.port) and self._tools.lead(server.candidate, candidate, system):
            self.leads = True
            system.report(
                f"what is declared answers beside it, and is asked now; {server.service} itself is started anew"
            )
        else:
            system.report(f"connections cannot be led to it, so {server.service} is away while it loads")
            self.end()

    def _speeds(self) -> str:
        last = read_version(self._system, self._server.kept)
        return (self._system.read(last.path("speeds")) or "") if last else ""

    def _fail(self, why: str, lines: int) -> None:
        """End it. The running version was not touched."""
        for line in self._log(lines):
            self._system.warn(line)
        self.end()
        note_refused(self._system, self._server, why)
        raise FailedError(
            f"{self._server.service} serves as before, and has not stopped: "
            f"what is declared was tried beside it, and {why}",
            "change what the lines above name, or `herd up --retry` to try the same again",
        )

    def _log(self, lines: int) -> list[str]:
        if self._server.kind == "unit":
            return UnitBackend(self._system).log(self._server.candidate, lines)
        ended = docker(self._system, "logs", "--tail", str(lines), self._server.candidate)
        return [line[:_LINE] for line in (ended.out + ended.err).splitlines()]

    def _listens(self, port: int) -> bool:
        """Return whether its port is listened at on the host itself: what Docker leads there cannot be led again."""
        at = f":{port:04X}"
        tables = (self._system.read(f"/proc/net/{each}", 8 << 20) or "" for each in ("tcp", "tcp6"))
        rows = (line.split() for table in tables for line in table.splitlines())
        return any(len(row) > 3 and row[3] == "0A" and row[1].endswith(at) for row in rows)

    def end(self) -> None:
        """End it once it has responded to its clients, while new connections go to the server itself."""
        if not self.exists():
            return
        server, system, candidate = self._server, self._system, self._given.candidate
        self._tools.lead_back(server.candidate, system, end=False)
        if self.leads and candidate:
            key = read_key(system, candidate.question)
            self._tools.drain(candidate.question, key=key, seconds=server.drain_seconds, led=True, system=system)
        systemctl(system, "stop", self._unit, seconds=600)
        # Its unit does so as well, but what a unit does at its end has no longer than its stop may take.
        self._tools.lead_back(server.candidate, system, end=True)
        with suppress(OSError):
            system.remove(f"{BESIDE_UNITS}/{self._unit}")
            system.remove(f"{BESIDE}/{server.name}.yaml")
            system.remove(f"/run/llamaherd/started/{server.candidate}")
        systemctl(system, "daemon-reload")
        systemctl(system, "reset-failed", self._unit)
        self.leads = False
