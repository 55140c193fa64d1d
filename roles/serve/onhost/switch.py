"""Switch one server to its planned version, as a transaction: what fails is rolled back, and what serves goes on.

Everything that can fail is tried before the running server stops. The states and what follows from each are in
`states.py`. What a step needs to end well is on the disk before it, so the next run ends one that was killed anywhere.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from contextlib import suppress

from llamaherd.layout import EXCHANGE, SET_ASIDE
from llamaherd.onhost.clients import docker, ensure_docker, systemctl
from llamaherd.onhost.document import dump
from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.reporting import LINES, find_reason
from llamaherd.onhost.servers import FailedSwitch, StartedServer
from llamaherd.onhost.services import locked
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.backends import (
    Backend,
    ContainerBackend,
    backend_of,
    ensure_account,
    forget,
    free_port,
    other_kind,
    processes,
    start_version,
)
from roles.serve.onhost.candidate import (
    Candidate,
    check_arguments,
    check_container,
    check_name,
    check_room,
    check_unchanged,
)
from roles.serve.onhost.kept import (
    Version,
    clear_untried,
    in_place,
    keep_version,
    mark_untried,
    note_refused,
    read_key,
    read_question,
    read_version,
    restore_files,
    untried_specs,
)
from roles.serve.onhost.model import SwitchInput
from roles.serve.onhost.probation import start_probation
from roles.serve.onhost.removal import any_serves, drain_kept, let_go, make_room, restore_replaced
from roles.serve.onhost.speed import How, Proof, ProofInput, parse_speeds
from roles.serve.onhost.states import ENDS, STEPS, Outcome, State
from roles.serve.onhost.tools import TOOLS, Tools

JOURNAL, MEMBERS = f"{EXCHANGE}/back", f"{EXCHANGE}/members"
"""The input of an exchange (an earlier `herd` wrote a shell script there), and its servers' names."""
FAULT_HELP = "that is a fault in llamaherd: please report it with the lines above"
RETRY = "change what the lines above name, or `herd up --retry` to try the same again"
HOST_IS_SLOW = (
    "the previous version decodes no faster now: `herd up` tries the declared version again, and compares with that"
)


def switch(given: SwitchInput, system: System, tools: Tools = TOOLS) -> None:
    """Switch one server. Raise FailedError with what serves instead if the new version does not."""
    # Two runs at once would restart each other's servers.
    with locked(system, f"starting {given.server.service}"):
        refuse_cut_off(given.server.service, system)
        Switch(given, system, tools).run()


def refuse_cut_off(service: str, system: System) -> None:
    """Raise FailedError if a run was cut off while it changed this server with others: they need its port, for one."""
    members = (system.read(MEMBERS) or "").strip() if system.read(JOURNAL, 1) else ""
    if service in members.split(", "):
        raise FailedError(
            f"a run was cut off while it changed {members} together, so {service} was left as it is",
            f"run `herd up` again, which ends that first; if it cannot, run `sudo rm -r {EXCHANGE}` on the host before",
        )


class Switch:
    """One switch: what was decided, and what is known by now."""

    def __init__(self, given: SwitchInput, system: System, tools: Tools, *, together: bool = False) -> None:
        self.given, self.server = given, given.server
        self.system, self.tools = system, tools
        self.together = together
        """Whether it changes together with others, which decide what becomes of all."""
        self.backend: Backend = backend_of(given.server.kind, system)
        self.other: Backend = backend_of(other_kind(given.server.kind), system)
        self.candidate = Candidate(given, system, tools)
        self.failure: FailedError | None = None
        self.why = self.reason = ""
        self.downtime: float | None = None
        """Seconds until the previous version served again; None where it was not stopped."""
        self.retried = False
        """Whether the planned spec was started before, and has not proved itself."""
        self.began = self.stopped = system.now()
        self.load_seconds = 0.0
        self.served = False
        """Whether a version served until this switch stopped it."""
        self.proof: Proof | None = None
        self.replaces_version = False
        self.host_is_slow = False

    @property
    def label(self) -> str:
        """Return the name by which you find it: of its unit, or of its container."""
        return self.server.unit if self.server.kind == "unit" else self.server.service

    def run(self) -> State:
        """Run states until one that ends the switch, and return it."""
        state = State.CHECK
        try:
            while state not in ENDS:
                state = STEPS[state].after[self.step(state)]
        finally:
            self.leave(done=state is State.DONE)
        if state is not State.DONE:
            self.system.send(self.failed(serves=self._serves()))
            raise self.failure or FailedError(f"{self.server.service} does not serve as declared: {self.why}")
        if self.failure:  # what is left over goes with the next run
            self.system.warn(self.failure.message)
        return state

    def failed(self, *, serves: bool) -> FailedSwitch:
        """Return what has failed, for people."""
        return FailedSwitch(self.server.service, self.why, self.reason, serves, self.downtime)

    def _serves(self) -> bool:
        """Return whether a version of the server serves, or what it was to replace."""
        running = any(each.running_spec(self.server.service) for each in (self.backend, self.other))
        return running or any_serves(self.system, self.given.replaced)

    def step(self, state: State) -> Outcome:
        """Perform the step of a state. A file that cannot be written fails the step."""
        steps: dict[State, Callable[[], Outcome]] = {
            State.CHECK: self.check,
            State.KEEP: self.keep,
            State.CANDIDATE: self.try_candidate,
            State.MARK: self.mark,
            State.WRITE: self.write,
            State.STOP: self.stop,
            State.START: self.start,
            State.PROVE: self.prove,
            State.ACCEPT: self.accept,
            State.CLEAN: self.clean,
            State.RESTORE: self.restore,
        }
        try:
            return steps[state]()
        except FailedError as error:
            return self._failed(error)
        except OSError as error:
            return self._failed(cannot_write(error))
        except Exception as error:
            # A fault of this program must not leave a new version running that has not proved itself.
            log = traceback.format_exc(limit=-3).strip().splitlines()
            return self._failed(FailedError(f"{self.server.service}: the program failed: {error!r}", FAULT_HELP, log))

    def _failed(self, error: FailedError) -> Outcome:
        if self.failure:
            self.system.warn(self.failure.message)
        for line in error.log:
            self.system.warn(line)
        self.failure = FailedError(error.message, error.fix)
        self.why = self.why or error.message
        self.reason = self.reason or self.candidate.reason or find_reason(error.log)
        return Outcome.FAILED

    def leave(self, *, done: bool) -> None:
        """End what must not outlive the run: a candidate, unless it alone serves. Replaced servers come back."""
        if not done and any(self.system.entry(each.mark) for each in self.given.replaced):
            restore_replaced(self.system, self.given.replaced, self.server.service)
            self.downtime = self.system.now() - self.stopped
        if self.candidate.exists():
            if self.backend.running_spec(self.server.service):
                self.candidate.end()
            else:
                self.system.warn(
                    f"the candidate of {self.server.service} serves in its place, "
                    "until `herd up` starts the server again, "
                    f"or for as long as `systemctl status {self.server.candidate}` shows"
                )

    # Nothing is stopped in these.

    def check(self) -> Outcome:
        """Check all that can be checked while the old version serves."""
        given, system = self.given, self.system
        if self.server.kind == "unit":
            check_name(system, self.server)
            # Another run may have moved it to a container meanwhile, and have removed its account.
            if not ensure_account(system, self.server.user):
                user = self.server.user
                raise FailedError(f"cannot create the account {user}; {self.server.service} was left as it was")
        elif not ensure_docker(system):
            message = f"Docker does not start, so {self.server.service} was left as it was"
            raise FailedError(message, "see `systemctl status docker`")
        else:
            check_name(system, self.server)
        for arguments in given.arguments:
            check_arguments(system, self.server, arguments)
        if given.container:
            check_container(system, self.server, given.container)
        if given.restart:
            check_room(system, given, self.tools)
        check_unchanged(system, self.server, given.unchanged)
        return Outcome.OK

    def keep(self) -> Outcome:
        """Keep the running version, where it is not kept yet: an earlier `herd`, or a person, has started it."""
        for backend in (self.backend, *([self.other] if self.given.moves else [])):
            self._keep_running(backend)
        return Outcome.OK

    def _keep_running(self, backend: Backend) -> None:
        server, system = self.server, self.system
        serving = backend.running_spec(server.service)
        last = read_version(system, server.kept)
        if not serving or (last and (serving == last.spec or serving in untried_specs(system, server.kept))):
            return
        # Its file is the one that it was started from if that contains the same spec.
        if serving not in (system.read(server.file_of(backend.kind)) or ""):
            return
        try:
            self._keep(backend.kind, serving, asked=False, link="last")
        except OSError as error:
            raise FailedError(
                f"cannot keep the running version of {server.service} in {server.kept} ({error.strerror}), "
                "so it was left as it was",
                f"`df -h {server.kept}` shows whether there is room",
            ) from error

    def _keep(self, kind: str, spec: str, *, asked: bool, link: str) -> None:
        server, system = self.server, self.system
        known = system.read(f"{server.kept}/last/speeds") or ""
        texts = {"speeds": (self.proof.speeds if self.proof and asked else "") or known}
        if asked:
            texts["asked"] = dump(server.question)
        if spec == server.spec:
            texts["holds"] = f"{self.given.holds}\n"
        if self.load_seconds and asked:
            texts["loaded"] = f"{self.load_seconds * 1000:.0f}\t{self.given.reads}\n"
        present = {name: text for name, text in texts.items() if text}
        keep_version(system, server, kind=kind, spec=spec, texts=present, link=link)

    def try_candidate(self) -> Outcome:
        """Start the new version side by side with the running one, where both have room, and prove it there."""
        if self.given.candidate and self.backend.running_spec(self.server.service) != self.server.spec:
            self.candidate.start()
        return Outcome.OK

    def mark(self) -> Outcome:
        """Record that the new version is about to be started. A probation would mistake it for what it watches."""
        systemctl(self.system, "stop", self.server.probation_unit)
        self.retried = self.server.spec in untried_specs(self.system, self.server.kept)
        mark_untried(self.system, self.server, self.server.spec)
        return Outcome.OK

    def write(self) -> Outcome:
        """Write the new files. Drop-ins that are not declared are moved away, not lost."""
        given, server, system = self.given, self.server, self.system
        for path in given.foreign:
            self._move_away(path)
        for file in given.files:
            system.write(file.path, file.text.text, mode=file.mode, owner=file.owner)
        self.backend.enable(server)
        if server.kind == "unit" and not given.restart:
            # A change of its unit that needs no restart is part of what it was started with from here on.
            self.backend.record(server)
        # Another run may have started the planned version meanwhile. What was found wrong is not compared again.
        if given.restart and not self.retried and self.backend.already(server, given.run):
            system.report(f"{self.label} matches the plan: another run started it meanwhile")
            clear_untried(system, server.kept)
            return Outcome.ALREADY
        return Outcome.OK

    def _move_away(self, path: str) -> None:
        entry = self.system.entry(path)
        if entry is None:
            return
        when = time.strftime("%Y%m%dT%H%M%S", time.localtime(self.system.clock()))
        place = f"{SET_ASIDE}/{path.lstrip('/').replace('/', '_')}.{when}"
        self.system.folder(str(SET_ASIDE), mode=0o700)
        # It may be on another file system, such as /run.
        if entry.kind == "link":
            self.system.link(place, self.system.target(path))
        else:
            self.system.copy(path, place)
        self.system.remove(path)
        self.system.report(f"{path} changed {self.server.unit} and is not declared; it is in {place} now")

    # The running version stops in these.

    def stop(self) -> Outcome:
        """Drain the running version, and stop it."""
        given, server, system = self.given, self.server, self.system
        ends_badly = bool(given.hangs) or given.paused
        if given.restart and given.hangs:
            system.report(f"{self.label} hangs: {given.hangs}")
            self.backend.kill(server.service)
        elif given.paused:
            system.report(f"{server.service} was paused")
            docker(system, "unpause", server.service)
        if given.restart or server.kind == "container":
            where = "" if server.kind == "unit" else " in its container"
            system.report(f"starting {self.label}{where}: it has {server.start_seconds} s to load its model")
        if (given.restart or given.moves) and not ends_badly and not self.together:
            # Nothing comes between this and the stop: what clients send meanwhile would be cut off.
            self.drain()
        self.stopped = system.now()
        stops = given.restart or given.moves
        self.served = stops and any(each.running_spec(server.service) for each in (self.backend, self.other))
        if given.restart:
            self.backend.stop(server.service)
        if given.moves:
            # Also where nothing else is to be done: a boot starts what ran when its host died.
            self.other.stop(server.service)
        self.tools.let_in(system)
        if given.restart:
            make_room(system, given, self.tools, server.drain_seconds)
            free_port(system, server.port)
        return Outcome.OK

    def drain(self) -> None:
        """Wait for the requests that the running version responds to."""
        seconds = self.server.drain_seconds
        drain_kept(self.system, self.server.kept, self.tools, seconds, led=self.candidate.leads)

    def start(self) -> Outcome:
        """Start the new version, and wait until it is healthy."""
        given, server = self.given, self.server
        self.began = self.system.now()
        if not self.backend.start(server, server.start_seconds, anew=given.restart):
            waited = f"{self.system.now() - self.began:.0f} s of {server.start_seconds}"
            logs = f"journalctl -u {server.service}" if server.kind == "unit" else f"docker logs {server.service}"
            self._give_up(
                f"{self.label} was not healthy after {waited}",
                20,
                f"{self.label} is not healthy after {waited}; its last lines are above, all of them in: {logs}",
            )
            return Outcome.FAILED
        self.load_seconds = self.system.now() - self.stopped
        if isinstance(self.backend, ContainerBackend) and given.gpus:
            problem = self.backend.gpu_problem(server.service, given.gpus, one=given.one_gpu)
            for line in problem:
                self.system.warn(line)
            if problem:
                self._give_up("it was healthy, and not on its GPUs", 5, f"{server.service} is not on its GPUs")
                return Outcome.FAILED
        return Outcome.OK

    def _give_up(self, why: str, lines: int, message: str) -> None:
        """Stop the new version, with its last lines."""
        for line in self.backend.log(self.server.service, lines):
            self.system.warn(line)
        self.reason = find_reason(self.backend.log(self.server.service, LINES))
        # A bad response is a reason by itself.
        self.why = f"{why}: {self.reason}" if self.reason and not self.proof else why
        self.failure = FailedError(message)
        self.backend.stop_failed(self.server)

    def prove(self) -> Outcome:
        """Send the server what a client sends in its first minute."""
        proof = self.proof = self._prove()
        if proof.outcome == "good":
            return self._started()
        if proof.outcome == "bad":
            self._give_up(proof.why, 5, f"{self.label} is healthy, but {proof.why}")
            return Outcome.FAILED
        self.why = proof.why
        self.system.warn(f"{self.label} answers, but {proof.why}")
        if self.together:
            last = read_version(self.system, self.server.kept)
            differs = last is not None and last.spec != self.server.spec
            return Outcome.FAILED if differs else self._started(Outcome.STAYS)
        last = read_version(self.system, self.server.kept)
        if self.restorable() or (last is None and any_serves(self.system, self.given.replaced)):
            self.backend.stop_failed(self.server)
            return Outcome.FAILED
        return self._started(Outcome.STAYS)

    def _started(self, outcome: Outcome = Outcome.OK) -> Outcome:
        if self.server.kind == "container" and self.given.restart:
            self.backend.record(self.server)
        return outcome

    def _prove(self) -> Proof:
        server, system = self.server, self.system
        last = read_version(system, server.kept)
        how: How = "" if last and last.spec == server.spec else "any" if self.given.any_speed else "judge"
        given = ProofInput(
            server.question,
            key=read_key(system, server.question),
            how=how,
            seconds=self.began + server.start_seconds - system.now(),
            pids=processes(system, server.service),
            speeds=(system.read(last.path("speeds")) or "") if last else "",
            short=self.candidate.proved,
            other=self.given.candidate.question if self.candidate.proved and self.given.candidate else None,
            direct=self.candidate.leads,
        )
        return self.tools.prove(given, system)

    def accept(self) -> Outcome:
        """Keep the new version: from here on it is the one that is restored. The previous one stays on probation."""
        server, system = self.server, self.system
        last = read_version(system, server.kept)
        try:
            if last and last.spec != server.spec and not self.together:
                system.link(f"{server.kept}/before", last.name)
                self.replaces_version = True
            self._keep(server.kind, server.spec, asked=True, link="next" if self.together else "last")
        except OSError:
            self.replaces_version = False
            system.report(
                f"{server.service} serves, and cannot be kept in {server.kept}: "
                "a later change that fails cannot restore it"
            )
        if not self.together:
            system.remove(server.refused)
        speeds = parse_speeds(self.proof.speeds) if self.proof else ()
        downtime = self.load_seconds if self.served and not self.candidate.leads else None
        system.send(StartedServer(server.service, speeds[-1].rate if speeds else None, downtime))
        return Outcome.OK

    def clean(self) -> Outcome:
        """Remove the candidate and what the server was before, and start its probation."""
        given, server, system = self.given, self.server, self.system
        self.candidate.end()
        let_go(system, given.replaced)
        if self.replaces_version:
            start_probation(system, [server])
        other = self.other.kind
        if given.moves and not forget(system, server, unit=other == "unit", container=other == "container"):
            system.warn(f"the account {server.user} is still in use: the next run removes it")
        return Outcome.OK

    # The previous version comes back in these.

    def restorable(self) -> Version | None:
        """Return the version that differs from the new one in its files, and can be restored."""
        last = read_version(self.system, self.server.kept)
        if last is None or (last.kind == self.server.kind and in_place(self.system, last)):
            return None
        return last

    def restore(self) -> Outcome:
        """Restore the previous version, start it and prove it."""
        server, system = self.server, self.system
        last = read_version(system, server.kept)
        if last is None:
            return self._give_way()
        if last.kind == server.kind and in_place(system, last):
            return Outcome.STAYS
        if self.failure:
            system.warn(self.failure.message)
            self.failure = None
        system.report(f"restoring the previous version of {server.service}, spec {last.spec}")
        began = system.now()
        why = self._restore(last)
        if why is None:
            clear_untried(system, server.kept)
            self._note(last)
            seconds = system.now() - began
            self.downtime = system.now() - self.stopped
            self.failure = FailedError(
                f"{server.service} serves again as before, spec {last.spec}, after {seconds:.0f} s: "
                f"the new version failed: {self.why}",
                RETRY,
            )
            return Outcome.OK
        logs = f"journalctl -u {server.service}" if last.kind == "unit" else f"docker logs {server.service}"
        self.failure = FailedError(
            f"{server.service} was rolled back to the previous version, spec {last.spec}, "
            f"and that does not come up either: {why}",
            f"`{logs}` shows more; `herd up` tries the declared version again",
        )
        return Outcome.FAILED

    def _restore(self, last: Version) -> str | None:
        """Return why the previous version does not serve; None where it does."""
        server, system = self.server, self.system
        self.backend.stop_failed(server)
        if last.kind != server.kind:
            forget(system, server, unit=server.kind == "unit", container=server.kind == "container")
        began = system.now()
        try:
            if last.kind == "unit" and not ensure_account(system, server.user):
                return f"its account {server.user} cannot be created"
            restore_files(system, last, server.user)
        except OSError as error:
            return f"its files cannot be written: {error.strerror}"
        free_port(system, server.port)
        slow = self.proof.slow if self.proof else 0.0
        why, self.host_is_slow = start_previous(
            server.service, last, system, self.tools, began=began, slow=slow, direct=self.candidate.leads
        )
        return why

    def _note(self, last: Version) -> None:
        """Record the attempt, unless no more than the key has changed, or the host itself has become slow."""
        if last.spec == self.server.spec:
            return
        if self.host_is_slow:
            self.system.report(HOST_IS_SLOW)
            return
        note_refused(self.system, self.server, self.why)

    def _give_way(self) -> Outcome:
        """End the new version for good, where those that it was to replace serve."""
        server, system, replaced = self.server, self.system, self.given.replaced
        if not any_serves(system, replaced):
            return Outcome.STAYS
        if server.kind == "unit":
            systemctl(system, "disable", "-q", "--now", server.unit)
            systemctl(system, "reset-failed", server.unit)
        else:
            self.backend.stop_failed(server)
        if self.failure:
            system.warn(self.failure.message)
        note_refused(system, server, self.why)
        names = ", ".join(each.service for each in replaced)
        self.failure = FailedError(
            f"{server.service} is stopped, and what it was to replace goes on, {names}: "
            f"the new version failed: {self.why}",
            RETRY,
        )
        return Outcome.OK


def start_previous(
    service: str, last: Version, system: System, tools: Tools, *, began: float, slow: float, direct: bool
) -> tuple[str | None, bool]:
    """Start the previous version, and prove it until its limit from `began` on.

    `slow` is the speed in tokens/s for which the new version was rolled back; 0 where it was another reason. Return why
    the previous version does not serve, None where it does, and whether it is as slow: then it is the host that has
    become slow, and the previous version's speeds are what was measured now.
    """
    if not start_version(system, service, last):
        return "it does not start", False
    question = read_question(system, last)
    if question is None:
        return None, False
    given = ProofInput(
        question,
        key=read_key(system, question, last),
        how="back",
        seconds=began + last.seconds - system.now(),
        pids=processes(system, service),
        speeds=system.read(last.path("speeds")) or "",
        slow=slow,
        direct=direct,
    )
    proof = tools.prove(given, system)
    if proof.outcome == "bad":
        return proof.why, False
    host_is_slow = bool(slow and proof.speeds)
    if host_is_slow:
        with suppress(OSError):
            system.write(last.path("speeds"), proof.speeds)
    return None, host_is_slow


VERBS = {"switch": Verb(SwitchInput, switch)}
