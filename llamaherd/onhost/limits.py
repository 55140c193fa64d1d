"""Power limits of GPUs during a measurement. However the measurement ends, the limits before are restored.

After a boot, the driver has forgotten all limits anyway.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from llamaherd.layout import LIMITS_GUARD, LIMITS_RUN
from llamaherd.onhost.exclusivity import exit_by_signals, heartbeat, receive, take_within
from llamaherd.onhost.system import HeldError, System
from llamaherd.onhost.undo import Guard, guard_waits, start_guard, stop_guard
from llamaherd.onhost.verbs import Verb

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


def hold(given: LimitsInput, system: System) -> None:
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
        now, least, most = (query(system, uuid, f"power.{name}") for name in ("limit", "min_limit", "max_limit"))
        system.report(f"gpu {uuid} {now or '-'} {least} {most}")
        if now:
            before[uuid] = now
    restored = RestoreInput(before)
    description = "Restores power limits after a measurement"
    guard = Guard(LIMITS_GUARD, str(LIMITS_RUN), "limits", description, given.longest)
    start_guard(system, guard, "llamaherd.limits.restore", restored)
    try:
        system.report("armed")
        while (line := receive(system)) is not None:
            word, _, watts = line.partition(" ")
            if word == "hold" and _WATTS.fullmatch(watts):
                why = set_limits(system, given.uuids, int(watts))
                system.report(f"failed {why}" if why else f"held {watts}")
            elif word == "free":
                restore(restored, system)
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
        now = query(system, uuid, "power.limit")
        if not now or abs(int(float(now)) - watts) > 1:
            printed = next((line for line in (ended.out + ended.err).splitlines() if line), "")
            return f"GPU {uuid} is not limited to {watts} W: {printed[:_MOST_REASON]}"
    return ""


def query(system: System, uuid: str, field: str) -> str:
    """Return a number that the driver reports of a GPU, as it prints it; empty where it reports none."""
    query_ = [f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    printed = system.run(["nvidia-smi", "-i", uuid, *query_], seconds=DRIVER_SECONDS).out.strip()
    return printed if _NUMBER.fullmatch(printed) else ""


def restore(given: RestoreInput, system: System) -> None:
    """Restore the limits that GPUs had before the measurement."""
    for uuid, watts in given.watts.items():
        if not system.run(["nvidia-smi", "-i", uuid, "-pl", watts], seconds=DRIVER_SECONDS).ok:
            system.warn(f"GPU {uuid} was limited to {watts} W, and is no longer")


VERBS = {"hold": Verb(LimitsInput, hold), "restore": Verb(RestoreInput, restore)}
