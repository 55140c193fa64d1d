"""Run servers for trial by the controller's commands, in place of declared servers or side by side with them.

The host restores the declared servers, whatever ends this program. The kernel opens the program's lock of measurements,
the guard ends, and systemd runs `restore`. A boot starts the declared servers.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread

from llamaherd.layout import LOCK_WAIT, TRIALS_GUARD, TRIALS_RUN
from llamaherd.onhost.clients import systemctl, unit_properties
from llamaherd.onhost.files import write_files
from llamaherd.onhost.reservation import LOCK, exit_by_signals, heartbeat, measuring, receive
from llamaherd.onhost.servers import MINE, READY_TO_START, RestoreServersInput, TrialServer, TrialsInput
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.undo import Guard, start_guard, stop_guard
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.backends import UnitBackend, processes
from roles.serve.onhost.model import Room
from roles.serve.onhost.removal import drain_kept
from roles.serve.onhost.tools import TOOLS, Tools

_LOCK_SECONDS = 5
LOAD_SECONDS = 2 * 7200
"""A limit above the two hours that a load may take, as systemd may have to stop the server first."""
_REASON_LINES, _REASON = 3, 300
_JUDGED_LINES, _JUDGED_BYTES = 200, 30_000
_FAILED_LINES, _FAILED = 5, 500
_THREAD_SECONDS = 10
_WHY = {"oom-kill": "the system ended it for lack of RAM; ", "timeout": "it took too long; "}
"""Words for the result of a unit, as systemd reports it."""


def run(given: TrialsInput, system: System, tools: Tools = TOOLS) -> None:
    """Run servers for trial until the connection ends, and restore the declared ones. Raise FailedError."""
    host = system.lock("host", LOCK_WAIT, f"measuring {given.name}")
    with exit_by_signals(), heartbeat(system), host:
        # A guard of an earlier measurement may still run: it restores the declared servers now.
        stop_guard(system, TRIALS_GUARD)
        with measuring(system, given.holder, _LOCK_SECONDS):
            _require_room(given, system, tools)
            served = _serving(given, system)
            services = tuple(_unit(each) for each in given.servers)
            description = "Restores the declared servers after a comparison"
            guard = Guard(TRIALS_GUARD, str(TRIALS_RUN), LOCK, description, given.longest, given.patience)
            start_guard(system, guard, "serve.trials.restore", RestoreServersInput(services, given.leftovers, served))
            trials = _Trials(given, system)
            try:
                _make_ready(given, system, tools)
                trials.converse()
            finally:
                # This waits for the guard, which starts the declared servers. Otherwise systemd reports the reason.
                stop_guard(system, TRIALS_GUARD)
            trials.join()
            _report_served(served, system)


def _unit(server: TrialServer) -> str:
    return f"{server.service}.service"


def _serving(given: TrialsInput, system: System) -> tuple[str, ...]:
    """Return the units to stop that run or start. Raise FailedError if their state is unknown."""
    found: list[str] = []
    for each in given.stops:
        unit = f"{each.service}.service"
        state = unit_properties(system, unit, "ActiveState").get("ActiveState")
        if state is None:
            raise FailedError(f"systemd does not report whether {each.service} runs; nothing was changed", "run again")
        found += [unit] if state in ("active", "activating", "reloading") else []
    return tuple(found)


def _require_room(given: TrialsInput, system: System, tools: Tools) -> None:
    """Raise FailedError if another process holds memory that a trial needs. Nothing is stopped before this check."""
    for each in given.servers:
        needs = each.gpus
        if not given.stops:
            if lacking := tools.lacks_room(system, Room(each.ram, needs), None):
                raise FailedError(
                    f"{each.service} has no room side by side with the running servers: {lacking}",
                    f"without `--beside`, {given.name} is stopped while it is measured",
                )
            continue
        services = (given.name, *(stopped.service for stopped in given.stops))
        pids = [pid for service in services for pid in processes(system, service)] if needs else []
        if needs and (lacking := tools.lacks_gpus(system, needs, pids)):
            raise FailedError(
                f"{given.name} is left as it is: {lacking}",
                "end other programs on that GPU, or declare a server that fits next to them",
            )
        own = [pid for stopped in given.stops for pid in UnitBackend(system).processes(stopped.service)]
        if each.ram and (lacking := tools.lacks_ram(system, each.ram, own, ())):
            raise FailedError(
                f"{each.service} is not started: {lacking}", "end what else holds RAM, or compare what fits"
            )


def _make_ready(given: TrialsInput, system: System, tools: Tools) -> None:
    """Write the units, and stop the declared servers once no gateway sends them requests. Raise FailedError."""
    write_files(system, given.files)
    if not systemctl(system, "daemon-reload").ok:
        raise FailedError("systemd does not read the units for trial", "see `journalctl -b -u init.scope`")
    if not given.stops:
        return
    system.report(MINE)
    if receive(system) != "go":
        raise FailedError("the controller ended the measurement before it began")
    for each in given.stops:
        drain_kept(system, each.kept, tools, given.drain_seconds)
        systemctl(system, "stop", f"{each.service}.service", seconds=LOAD_SECONDS)
        tools.let_in(system)


class _Trials:
    """Carry out the controller's commands. Slow commands run in a thread, which ends with the connection."""

    def __init__(self, given: TrialsInput, system: System) -> None:
        self._given, self._system = given, system
        self._units = {each.trial: _unit(each) for each in given.servers}
        self._threads: list[Thread] = []

    def converse(self) -> None:
        """Read commands until the connection ends."""
        self._system.report(READY_TO_START)
        while (line := receive(self._system)) is not None:
            word, _, rest = line.partition(" ")
            if word == "start" and rest in self._units:
                self._begin(self._start, rest)
            elif word == "stop" and not rest:
                self._stop()
            elif word == "unit" and self._given.placed:
                self._place(rest)
            elif word == "judge" and self._given.scratch and rest.isascii() and rest.isdecimal():
                self._begin(self._judge, rest)

    def join(self) -> None:
        """Wait for the threads of commands, after their units were stopped."""
        for each in self._threads:
            each.join(_THREAD_SECONDS)

    def _begin(self, action: Callable[[str], None], argument: str) -> None:
        self._threads = [each for each in self._threads if each.is_alive()]
        self._threads.append(Thread(target=action, args=(argument,), name="trial", daemon=True))
        self._threads[-1].start()

    def _start(self, trial: str) -> None:
        system, unit = self._system, self._units[trial]
        began = system.now()
        started = systemctl(system, "start", unit, seconds=LOAD_SECONDS).ok
        seconds = system.now() - began
        result = unit_properties(system, unit, "InvocationID", "Result")
        invocation = result.get("InvocationID", "")
        if started:
            system.report(f"ready {trial} {seconds * 1000:.0f} {invocation}")
            return
        why = _WHY["oom-kill"] if result.get("Result") == "oom-kill" else ""
        printed = " ".join(_journal(system, invocation, _REASON_LINES).split())[:_REASON]
        system.report(f"failed {trial} {why}{printed}")

    def _stop(self) -> None:
        units = self._units.values()
        systemctl(self._system, "stop", *units, seconds=LOAD_SECONDS)
        systemctl(self._system, "reset-failed", *units)
        self._system.report("stopped")

    def _place(self, encoded: str) -> None:
        """Replace the unit by the text that the controller has sent."""
        placed = False
        with suppress(OSError, ValueError):
            self._system.write(self._given.placed, base64.b64decode(encoded, validate=True), mode=0o644)
            placed = systemctl(self._system, "daemon-reload").ok
        self._system.report("placed" if placed else "failed the unit of a candidate cannot be written")

    def _judge(self, room: str) -> None:
        """Run the unit to its end, and report its last output in base64."""
        system, given, unit = self._system, self._given, next(iter(self._units.values()))
        free = system.free(given.scratch) or 0
        if free < int(room):
            reason = f"there is no room in {given.scratch}: {room} bytes are needed, {free} are free"
            system.report(f"failed - {reason}")
            return
        ran = systemctl(system, "start", unit, seconds=LOAD_SECONDS).ok
        result = unit_properties(system, unit, "InvocationID", "Result")
        system.run(["journalctl", "--sync"])
        printed = _journal(system, result.get("InvocationID", ""), _JUDGED_LINES if ran else _FAILED_LINES)
        if ran:
            last = printed.encode()[-_JUDGED_BYTES:]
            system.report(f"judged {base64.b64encode(last).decode()}")
        else:
            why = _WHY.get(result.get("Result", ""), "")
            system.report(f"failed - {why}{' '.join(printed.split())[-_FAILED:]}")


def _journal(system: System, invocation: str, lines: int) -> str:
    """Return the last lines of one run of a unit."""
    of_run = f"_SYSTEMD_INVOCATION_ID={invocation}"
    return system.run(["journalctl", "-q", of_run, "-n", str(lines), "--no-pager", "-o", "cat"]).out


def _report_served(served: Sequence[str], system: System) -> None:
    """Wait until the declared servers serve again. Report the milliseconds that took, or servers that fail."""
    began = system.now()
    if not served or systemctl(system, "start", *served, seconds=LOAD_SECONDS).ok:
        system.report(f"back {(system.now() - began) * 1000:.0f}")
    else:
        system.report(f"away {' '.join(served)}")


def restore(given: RestoreServersInput, system: System) -> None:
    """Stop the trials, remove their files, and start the declared servers again."""
    systemctl(system, "stop", *given.services, seconds=LOAD_SECONDS)
    for path in given.leftovers:
        try:
            system.remove(path)
        except OSError as error:
            system.warn(f"{path} cannot be removed: {error.strerror}")
    systemctl(system, "daemon-reload")
    systemctl(system, "reset-failed", *given.services)
    if given.served:
        # systemd limits starts within minutes: starts of the measurement must not count.
        systemctl(system, "reset-failed", *given.served)
        systemctl(system, "start", "--no-block", *given.served)


VERBS = {"run": Verb(TrialsInput, run), "restore": Verb(RestoreServersInput, restore)}
