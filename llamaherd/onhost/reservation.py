"""Reserve a host: the lock of a run, the lock of a measurement, and power limits of GPUs while it lasts."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Event, Thread
from types import FrameType
from typing import Literal

from llamaherd.layout import LIMITS_GUARD, LIMITS_RUN, LOCKS
from llamaherd.onhost.releases import note_begin
from llamaherd.onhost.services import locked
from llamaherd.onhost.system import POLL_SECONDS, FailedError, HeldError, LockFile, System
from llamaherd.onhost.undo import Guard, guard_waits, start_guard, stop_guard
from llamaherd.onhost.verbs import NoInput, Verb

BEAT_SECONDS = 15
"""Seconds between two empty lines of a verb that waits, or whose programs take long."""


_LONGEST_SILENCE = 3600.0


def receive(system: System) -> str | None:
    """Wait for the next line that the controller sends after the document; None once the connection has ended."""
    while (line := system.next_line(_LONGEST_SILENCE)) is None:
        pass
    return line.rstrip("\n") if line else None


@contextmanager
def heartbeat(system: System, seconds: float = BEAT_SECONDS) -> Iterator[None]:
    """Print an empty line now and then: by this, sshd detects a broken connection, and ends it."""
    ended = Event()

    def beat() -> None:
        while not ended.wait(seconds):
            system.report("")

    thread = Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def exit_by_signals() -> Iterator[None]:
    """Let signals that end this program raise SystemExit, so that it restores what it changed."""

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise SystemExit(1)

    before = {each: signal.signal(each, end) for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


LOCK = "measure"
HELD = "llamaherd: the lock is held"
"""The line of `hold_measurement` once it holds the lock."""
_IDLE_BEAT_SECONDS = 30


@dataclass(frozen=True)
class MeasurementLockInput:
    """The user and the machine that measure, as the lock stores them."""

    holder: str


@contextmanager
def measuring(system: System, holder: str, seconds: float) -> Iterator[None]:
    """Hold the lock of measurements. Raise HeldError if another measurement still holds it after so many seconds."""
    with system.lock_file(LOCK) as lock:
        if not take_within(lock, seconds, system):
            raise HeldError(
                f"another measurement runs on this host, by {lock.holder() or 'a run that has just begun'}",
                "wait until it has ended",
            )
        lock.sign(" ".join(holder.split()))
        yield


def take_within(lock: LockFile, seconds: float, system: System) -> bool:
    """Return whether a lock becomes free within so many seconds, and hold it."""
    until = system.now() + seconds
    while not lock.take():
        if system.now() >= until:
            return False
        system.sleep(POLL_SECONDS)
    return True


def hold_measurement(given: MeasurementLockInput, system: System) -> None:
    """Hold the lock of measurements until the controller closes its end. Raise HeldError."""
    with measuring(system, given.holder, 0), heartbeat(system, _IDLE_BEAT_SECONDS):
        system.report(HELD)
        while receive(system) is not None:
            pass


RUN_HELD = "held"
"""The value that the verb sends once this run holds the lock."""
RUN_CHANGES = "changing"
"""The line that the controller sends before the first change."""
KEEPALIVE_SECONDS = 30
"""Seconds between empty lines. A broken connection ends some minutes after a lost line, and releases the lock."""
KILL_SECONDS = 5
_RUN = "run"
_UNNAMED = "a run that has just begun"
_HOLDER = re.compile(r"(?:^| )process ([0-9]{1,10})$")
_MOST_HOLDER = 200


@dataclass(frozen=True)
class RunLockInput:
    """The run that takes the lock of a rig's host, and the seconds that it waits for another run."""

    rig: str
    holder: str
    seconds: int


@dataclass(frozen=True)
class Unlocked:
    """The result of `unlock`: the lock was free, it was broken, or its holder could not be ended."""

    state: Literal["free", "broken", "held"]
    holder: str = ""


def hold_run(given: RunLockInput, system: System) -> None:
    """Hold the lock of the host until the controller has ended. Raise FailedError where another run keeps it."""
    with system.lock_file(_RUN) as lock:
        if not _is_taken(lock, given, system):
            return
        # This waits for changes that a killed run began: after them, the host can be inspected.
        with system.lock("host", given.seconds, "beginning a run"):
            pass
        lock.sign(given.holder)
        system.send(RUN_HELD)
        while (line := system.next_line(KEEPALIVE_SECONDS)) != "":
            if line is None:
                system.report("")
            elif line.strip() == RUN_CHANGES:
                note_begin(system)


def _is_taken(lock: LockFile, given: RunLockInput, system: System) -> bool:
    """Wait for the lock. Return False where the controller has ended meanwhile."""
    until = system.now() + given.seconds
    is_first = True
    while not lock.take():
        if system.now() >= until:
            raise _kept(lock, given)
        if is_first:
            system.report(_waiting(lock, given))
        is_first = False
        if system.next_line(POLL_SECONDS) == "":
            return False
    return True


@contextmanager
def changing(given: RunLockInput, system: System, purpose: str) -> Iterator[None]:
    """Hold the lock of the host and of a run while one verb changes the host. Raise FailedError if a run keeps it."""
    with system.lock_file(_RUN) as lock:
        if not lock.take():
            if given.seconds:
                system.report(_waiting(lock, given))
            if not take_within(lock, given.seconds, system):
                raise _kept(lock, given)
        lock.sign(given.holder)
        with locked(system, purpose):
            yield


def _waiting(lock: LockFile, given: RunLockInput) -> str:
    return f"waiting up to {given.seconds} s for another run, by {lock.holder() or _UNNAMED}"


def _kept(lock: LockFile, given: RunLockInput) -> FailedError:
    return FailedError(
        f"another run changes this host, by {lock.holder() or _UNNAMED}",
        f"wait until it has ended and run again; if it is gone for good, `herd unlock {given.rig}` breaks its lock",
    )


def unlock(given: NoInput, system: System) -> Unlocked:
    """Break the lock of the host: kill the process that holds it."""
    del given
    with system.lock_file(_RUN) as lock:
        if lock.take():
            return Unlocked("free")
        holder = lock.holder()
        found = _HOLDER.search(holder)
        if not found:
            return Unlocked("held", holder)
        pid = int(found[1])
        if has_open(pid, lock.path, system):
            system.kill(pid)
        for _ in range(KILL_SECONDS):
            # Another run may have waited for the lock, and hold it now.
            if not has_open(pid, lock.path, system):
                return Unlocked("broken", holder)
            system.sleep(1)
        return Unlocked("held", holder)


def run_holder(system: System) -> str:
    """Return the holder of the lock of a run; empty if it is free. A killed run leaves its name, and not its lock."""
    path = str(LOCKS / _RUN)
    holder = (system.read(path) or "").strip()
    found = _HOLDER.search(holder)
    return holder[:_MOST_HOLDER] if found and has_open(int(found[1]), path, system) else ""


def has_open(pid: int, path: str, system: System) -> bool:
    """Return whether a process has this file open."""
    folder = f"/proc/{pid}/fd"
    return any(system.target(f"{folder}/{name}") == path for name in system.names(folder))


DRIVER_SECONDS = 60
"""A limit for each query, as a driver may hang."""
_LOCK_SECONDS = 5
_HOST_SECONDS = 60
"""The controller waits longer than this, so that it receives the name of the other run."""
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_WATTS = re.compile(r"[0-9]{1,6}")
_MOST_REASON = 200


@dataclass(frozen=True)
class LimitsInput:
    """GPUs by their UUIDs, and the seconds after which their limits are restored in any case.

    `within`: a measurement runs, and its own connection holds the lock of the host.
    """

    uuids: tuple[str, ...]
    longest: int
    within: bool = False


@dataclass(frozen=True)
class RestoreInput:
    """The limit of each GPU before the measurement, in watts as the driver prints them."""

    watts: Mapping[str, str]


def hold_limits(given: LimitsInput, system: System) -> None:
    """Report each GPU as `gpu UUID NOW LEAST MOST`, then `armed`, and set limits as the controller sends them.

    `hold WATTS` sets the limit of all GPUs. `free` and the end of the connection restore the limits before.
    """
    # Another run may change the host only once the limits are restored.
    host = nullcontext() if given.within else system.lock("host", _HOST_SECONDS, "measuring with other power limits")
    with exit_by_signals(), heartbeat(system), host:
        # A guard of an earlier measurement may still run: it restores the limits now.
        stop_guard(system, LIMITS_GUARD)
        with system.lock_file("limits") as lock:
            if not take_within(lock, _LOCK_SECONDS, system):
                raise HeldError("another measurement sets the power limits of this host", "wait until it has ended")
            _converse(given, system)


def _converse(given: LimitsInput, system: System) -> None:
    before: dict[str, str] = {}
    for uuid in given.uuids:
        now, least, most = (query_gpu(system, uuid, f"power.{name}") for name in ("limit", "min_limit", "max_limit"))
        system.report(f"gpu {uuid} {now or '-'} {least} {most}")
        if now:
            before[uuid] = now
    restored = RestoreInput(before)
    description = "Restores power limits after a measurement"
    guard = Guard(LIMITS_GUARD, str(LIMITS_RUN), "limits", description, given.longest)
    start_guard(system, guard, "llamaherd.reservation.restore_limits", restored)
    try:
        system.report("armed")
        while (line := receive(system)) is not None:
            word, _, watts = line.partition(" ")
            if word == "hold" and _WATTS.fullmatch(watts):
                why = set_limits(system, given.uuids, int(watts))
                system.report(f"failed {why}" if why else f"held {watts}")
            elif word == "free":
                restore_limits(restored, system)
                system.report("free")
    finally:
        # This waits for the guard, which restores the limits.
        stop_guard(system, LIMITS_GUARD)


def set_limits(system: System, uuids: Sequence[str], watts: int) -> str:
    """Set the limit of all GPUs. Return why a GPU does not have it; empty if all GPUs have it."""
    if not guard_waits(system, LIMITS_GUARD):
        return f"its guard, {LIMITS_GUARD}, has ended"
    for uuid in uuids:
        ended = system.run(["nvidia-smi", "-i", uuid, "-pl", str(watts)], seconds=DRIVER_SECONDS)
        now = query_gpu(system, uuid, "power.limit")
        if not now or abs(int(float(now)) - watts) > 1:
            printed = next((line for line in (ended.out + ended.err).splitlines() if line), "")
            return f"GPU {uuid} is not limited to {watts} W: {printed[:_MOST_REASON]}"
    return ""


def query_gpu(system: System, uuid: str, field: str) -> str:
    """Return a number that the driver reports of a GPU, as it prints it; empty where it reports none."""
    query_ = [f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    printed = system.run(["nvidia-smi", "-i", uuid, *query_], seconds=DRIVER_SECONDS).out.strip()
    return printed if _NUMBER.fullmatch(printed) else ""


def restore_limits(given: RestoreInput, system: System) -> None:
    """Restore the limits that GPUs had before the measurement."""
    for uuid, watts in given.watts.items():
        if not system.run(["nvidia-smi", "-i", uuid, "-pl", watts], seconds=DRIVER_SECONDS).ok:
            system.warn(f"GPU {uuid} was limited to {watts} W, and is no longer")


VERBS = {
    "hold_measurement": Verb(MeasurementLockInput, hold_measurement),
    "hold_run": Verb(RunLockInput, hold_run),
    "unlock": Verb(NoInput, unlock),
    "hold_limits": Verb(LimitsInput, hold_limits),
    "restore_limits": Verb(RestoreInput, restore_limits),
}
