"""The candidate of a switch: checks of its arguments, image and memory, and its start side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress

from llamaherd.layout import CANDIDATES, RUNTIME_UNITS
from llamaherd.onhost.clients import docker, pull_image, systemctl
from llamaherd.onhost.reporting import LINES, find_reason
from llamaherd.onhost.system import NOT_STARTED, TIMED_OUT, FailedError, System
from roles.serve.onhost.backends import ContainerBackend, UnitBackend, backend_of, other_kind, processes
from roles.serve.onhost.kept import note_refused, read_key
from roles.serve.onhost.model import ArgumentCheck, CandidateInput, ContainerCheck, Room, Server, SwitchInput
from roles.serve.onhost.processes import listening_sockets
from roles.serve.onhost.speed import ProofInput
from roles.serve.onhost.tools import Tools
from roles.serve.onhost.units import find_other_unit, other_unit_error

_ARGUMENT_SECONDS, _CONTAINER_SECONDS = 20, 60
_NOT_RUN = (TIMED_OUT, 126, NOT_STARTED, 137, -9)
_LINE = 300
_MOST_FILE = 4 << 20
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def check_name(system: System, server: Server) -> None:
    """Raise FailedError if the server's name is that of a unit or a container that llamaherd did not create."""
    if server.kind == "unit":
        if path := find_other_unit(server.service, system):
            raise other_unit_error(server.service, path)
    elif ContainerBackend(system).is_of_others(server.service, server.project_file):
        raise FailedError(
            f"{server.service} is left as it is: a container of this name exists, and `herd` did not create it",
            f"give the instance another name, or rename that container: `docker stop {server.service} && "
            f"docker rename {server.service} {server.service}-old`; then run `herd up` again",
        )


def check_unchanged(system: System, server: Server, unchanged: Mapping[str, str]) -> None:
    """Raise FailedError where a file that is not written differs from what was inspected: another run changed it."""
    for path, sha256 in unchanged.items():
        text = system.read(path, _MOST_FILE)
        if text is None or hashlib.sha256(text.encode()).hexdigest() != sha256:
            raise FailedError(
                f"another run has changed {server.service} since it was inspected, so it was left as it was",
                "run `herd up` again",
            )


def check_arguments(system: System, server: Server, check: ArgumentCheck) -> None:
    """Raise FailedError where the built engine does not accept its arguments.

    It reads them all before `--version` ends it; one that swallows `--version` would start the server.
    """
    # Any file does for a key: this one needs no room on a disk.
    arguments = ["/proc/version" if each == server.key_file else each for each in check.arguments]
    as_user = ["setpriv", "--reuid", check.user, "--regid", check.user, "--clear-groups", "--no-new-privs"]
    alone = ["env", "-i", f"PATH={_PATH}", "XDG_CONFIG_HOME=/nonexistent"]
    ended = system.run([*as_user, *alone, check.program, *arguments, "--version"], seconds=_ARGUMENT_SECONDS)
    printed = [line[:_LINE] for line in (ended.out + ended.err).splitlines()]
    if ended.code in _NOT_RUN:
        raise FailedError(
            f"instance {server.name}: {check.program} --version did not end by itself within {_ARGUMENT_SECONDS} s, "
            f"or could not be run (exit code {ended.code}), so its arguments are not checked; "
            "the instance was left as it was",
            log=printed[-3:],
        )
    if not ended.ok or not any(line.startswith("version:") for line in printed):
        errors = [line for line in printed if "error" in line.lower()][:5]
        raise FailedError(
            f"instance {server.name}: {check.program} does not accept its arguments; the instance was left as it was",
            log=errors or printed[-3:],
        )


def check_container(system: System, server: Server, check: ContainerCheck) -> None:
    """Raise FailedError where Docker does not take the new Compose file, its image or its arguments."""
    folder = f"/run/llamaherd/trial-{server.name}"
    try:
        system.folder(folder, mode=0o700)
        system.write(f"{folder}/compose.yaml", check.text)
        _check_container(system, server, check, folder)
    finally:
        system.remove(folder)


def _check_container(system: System, server: Server, check: ContainerCheck, folder: str) -> None:
    ended = docker(system, "compose", "-f", f"{folder}/compose.yaml", "config", "-q")
    if not ended.ok:
        raise _left(server, "Compose does not take its file", ended.out + ended.err)
    if not docker(system, "image", "inspect", check.image).ok:
        if not check.pulled:
            raise _left(server, f"its image {check.image} is not there", "")
        system.report(f"fetching {check.image}")
        pulled = pull_image(system, check.image)
        if not pulled.ok:
            raise _left(server, "its image cannot be fetched", pulled.out + pulled.err)
    if check.reads_arguments:
        _check_image_arguments(system, server, check, folder)


def _left(server: Server, why: str, printed: str) -> FailedError:
    last = [line[:_LINE] for line in printed.splitlines()][-5:]
    return FailedError(f"instance {server.name}: {why}; the instance was left as it was", log=last)


def _check_image_arguments(system: System, server: Server, check: ContainerCheck, folder: str) -> None:
    """Raise FailedError where an image's engine refuses its arguments. Without a GPU it may not read them."""
    name = f"llamaherd-trial-{server.name}"
    system.write(f"{folder}/key", "placeholder\n", mode=0o644)
    mounts = [word for each in check.folders for word in ("-v", f"{each}:{each}:ro")]
    if check.key_file:
        mounts += ["-v", f"{folder}/key:{check.key_file}:ro"]
    variables = [word for each, value in check.environment.items() for word in ("-e", f"{each}={value}")]
    walls = ["--pull", "never", "--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
    words = ["docker", "run", "--rm", "--name", name, *walls, "--security-opt", "no-new-privileges"]
    words += ["--user", f"{check.user}:{check.user}", *mounts, *variables, check.image, *check.arguments, "--version"]
    ended = system.run(words, seconds=_CONTAINER_SECONDS)
    docker(system, "rm", "-f", name)
    printed = (ended.out + ended.err).splitlines()
    errors = [line for line in printed if line.lower().startswith("error") and "argument" in line.lower()]
    if not ended.ok and errors:
        raise _left(server, f"{check.image} does not accept its arguments", "\n".join(errors))


def check_room(system: System, given: SwitchInput, tools: Tools) -> None:
    """Raise FailedError where a GPU or RAM has no room once what is to be stopped has ended."""
    server = given.server
    leaving = [pid for service in given.leaving for pid in processes(system, service)]
    if given.needs_gpus:
        own = processes(system, server.service)
        if lacking := tools.lacks_gpus(system, given.needs_gpus, (*own, *leaving)):
            raise FailedError(
                f"{server.service} is left as it is: {lacking}",
                "end other programs on that GPU, or declare a server that fits next to them",
            )
    if given.needs_ram:
        own = backend_of(server.kind, system).processes(server.service)
        others = backend_of(other_kind(server.kind), system).processes(server.service)
        if lacking := tools.lacks_ram(system, given.needs_ram, own, (*others, *leaving)):
            raise FailedError(
                f"{server.service} is left as it is: {lacking}",
                "end other programs that hold RAM, or declare a server that fits next to them",
            )


class Candidate:
    """A second server of one instance; it need not exist."""

    def __init__(self, given: SwitchInput, system: System, tools: Tools) -> None:
        self._given, self._server = given, given.server
        self._system, self._tools = system, tools
        self.reason = ""
        """The line of its log that names why it ended."""
        self.proved = False
        """Whether it has proved itself in this run: the server itself is then proved in short."""
        self.leads = self.exists()
        """Whether connections are led to it: those of the program itself must not be."""

    @property
    def _unit(self) -> str:
        return f"{self._server.candidate}.service"

    def exists(self) -> bool:
        """Return whether there is one, of this run or of one that was cut off."""
        return self._system.entry(f"{RUNTIME_UNITS}/{self._unit}") is not None

    def start(self) -> None:
        """Start and prove one, where there is room for both. Raise FailedError where it fails: nothing was stopped."""
        candidate = self._given.candidate
        assert candidate is not None
        # That of a run that was cut off has its port.
        self.end()
        lacking = self._tools.lacks_room(self._system, Room(candidate.ram, candidate.gpus), candidate)
        if lacking:
            self._system.report(
                f"the new version of {self._server.service} cannot load side by side, "
                f"so the server is unavailable meanwhile: {lacking}"
            )
            return
        self._start(candidate)

    def _start(self, candidate: CandidateInput) -> None:
        server, system = self._server, self._system
        system.report(
            f"starting the new version of {server.service} side by side on port {candidate.port}: "
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
            self.reason = find_reason(self._log(LINES))
            why = f"it was not healthy after {waited}"
            self._fail(f"{why}: {self.reason}" if self.reason else why, 20)
        given = ProofInput(
            candidate.question,
            key=read_key(system, candidate.question),
            how="beside",
            seconds=began + server.start_seconds - system.now(),
            pids=processes(system, server.candidate),
        )
        proof = self._tools.prove(given, system)
        if proof.outcome != "good":
            self._fail(proof.why, 5)
        self.proved = True
        if self._listens(candidate.port) and self._tools.lead(server.candidate, candidate, system):
            self.leads = True
            system.report(f"the candidate responds and receives new requests; {server.service} itself restarts")
        else:
            system.report(f"connections cannot be redirected to it, so {server.service} is unavailable while it loads")
            self.end()

    def _fail(self, why: str, lines: int) -> None:
        """End it. The running version was not touched."""
        for line in self._log(lines):
            self._system.warn(line)
        self.end()
        note_refused(self._system, self._server, why)
        raise FailedError(
            f"{self._server.service} serves as before, without downtime: "
            f"the new version was tried side by side, and {why}",
            "change what the lines above name, or `herd up --retry` to try the same again",
        )

    def _log(self, lines: int) -> list[str]:
        if self._server.kind == "unit":
            return UnitBackend(self._system).log(self._server.candidate, lines)
        ended = docker(self._system, "logs", "--tail", str(lines), self._server.candidate)
        return [line[:_LINE] for line in (ended.out + ended.err).splitlines()]

    def _listens(self, port: int) -> bool:
        """Return whether its port is listened at on the host itself: what Docker leads there cannot be led again."""
        return any(each.port == port for each in listening_sockets(self._system))

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
            system.remove(f"{RUNTIME_UNITS}/{self._unit}")
            system.remove(f"{CANDIDATES}/{server.name}.yaml")
            system.remove(f"/run/llamaherd/started/{server.candidate}")
        systemctl(system, "daemon-reload")
        systemctl(system, "reset-failed", self._unit)
        self.leads = False
