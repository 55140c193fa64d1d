"""Watch servers for a minute after a switch, and restore the previous versions if a new one fails.

The switch starts this as a transient unit, so it works without a controller. It polls the state of each unit or
container, and probes each server after 5, 20 and 60 seconds. A server that a person stops or restarts has not failed:
its probation ends, and the new version stays.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from llamaherd.layout import LOCK_WAIT, PROBATION_RUN, RELEASES, probation_of
from llamaherd.onhost.clients import docker, systemctl, unit_properties
from llamaherd.onhost.document import VERSION, dump
from llamaherd.onhost.system import System
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.backends import backend_of, ensure_account, forget, start_version
from roles.serve.onhost.kept import (
    Version,
    clear_untried,
    mark_untried,
    note_refused,
    read_key,
    read_question,
    read_version,
    remove_unused,
    restore_files,
)
from roles.serve.onhost.model import Server
from roles.serve.onhost.proof import NO_RESPONSE, RESPONDS, WRONG, probe

PROBES = (5, 20, 60)
"""Seconds after the switch at which the server is probed."""
POLL = 0.5
"""Seconds between two inspections of the unit or container."""
SILENT = 10
"""Seconds without a response after which a server that computes nothing hangs."""
STOPPING = 180
"""Seconds for which a server may stop: systemd kills one after 90 s, and that may take some more."""
COMPUTES = 0.1
"""Share of one core that a working server uses or waits for at least. A hung one does neither; CUDA spins."""
_MOST_OUTCOME = 400


@dataclass(frozen=True)
class ProbationInput:
    """The servers that were changed together, or the one that was changed."""

    servers: tuple[Server, ...]


@dataclass(frozen=True)
class Run:
    """The state of a unit or container: `up`, `died`, or `stopping` or `stopped` (by a person or another run)."""

    state: str
    pid: int = 0


def start_probation(system: System, servers: Sequence[Server]) -> None:
    """Start the unit that watches servers: it outlives this program and the connection."""
    first = servers[0]
    # It may wait for a lock twice, and start each server twice.
    seconds = 2 * LOCK_WAIT + 2 * sum(each.start_seconds for each in servers)
    systemctl(system, "stop", first.probation_unit)
    document = {"version": VERSION, "verb": "serve.probation.watch", "input": ProbationInput(tuple(servers))}
    path = f"{PROBATION_RUN}/{first.service}.json"
    try:
        system.folder(str(PROBATION_RUN), mode=0o700)
        system.write(path, dump(document))
    except OSError as error:
        system.warn(f"{_names(servers)} cannot be watched: {path} cannot be written ({error.strerror})")
        return
    unit = ["systemd-run", "--quiet", "--collect", f"--unit={first.probation_unit.removesuffix('.service')}"]
    program = ["/usr/bin/python3", "-I", system.program, path]
    if not system.run([*unit, f"--property=RuntimeMaxSec={seconds}", *program]).ok:
        system.warn(
            f"{_names(servers)}: the probation did not start, "
            "so the host does not roll back a server that fails within a minute"
        )


def end_probation(service: str, system: System) -> None:
    """End the probation of a server, if one runs: the server is about to be stopped, which is no failure of it.

    Servers that were changed together have one probation, which ends for all of them.
    """
    for name in system.names(str(PROBATION_RUN)):
        path = f"{PROBATION_RUN}/{name}"
        watched = _watched(system.read(path) or "")
        if service in watched.values():
            systemctl(system, "stop", f"{probation_of(next(iter(watched)))}.service")
            system.remove(path)


def _watched(text: str) -> dict[str, str]:
    """Return the names of the servers that a probation watches, and their services; empty for a damaged input."""
    with suppress(ValueError, LookupError, TypeError):
        return {str(each["name"]): str(each["service"]) for each in json.loads(text)["input"]["servers"]}
    return {}


Probe = Callable[..., tuple[int, str]]
"""Sends a server a prompt, as `proof.probe`. Returns RESPONDS, WRONG or NO_RESPONSE, and why."""


def watch(given: ProbationInput, system: System) -> str:
    """Probe servers until their probation ends. Return why they were rolled back; empty if they were not."""
    try:
        return run_probation(given.servers, system, probe)
    finally:
        with suppress(OSError):
            system.remove(f"{PROBATION_RUN}/{given.servers[0].service}.json")


def run_probation(servers: Sequence[Server], system: System, probe: Probe) -> str:
    """Probe servers by `probe`; see `watch`."""
    began = system.now()
    first = {each.service: inspect(each, system).pid for each in servers}
    for at in PROBES:
        while system.now() < began + at:
            system.sleep(POLL)
            for each in servers:
                state = settled(each, system, first[each.service]).state
                if state == "stopped" or replaced(each, system):
                    return ""
                if state == "died":
                    seconds = f"{system.now() - began:.0f} s"
                    return roll_back(servers, each, f"it ended {seconds} after it had proved itself", system, probe)
        for each in servers:
            if why := probe_server(each, system, probe):
                state = settled(each, system, first[each.service]).state
                if state == "stopped":
                    return ""
                why = "it ended while it was probed" if state == "died" else why
                return roll_back(servers, each, f"{why}, {at} s after it had proved itself", system, probe)
    with system.lock("host", LOCK_WAIT, f"probation of {servers[0].service}"):
        for each in servers:
            if not replaced(each, system):
                drop_before(each, system)
    return ""


def settled(server: Server, system: System, pid: int = 0) -> Run:
    """Return the state of a server, once it stops no more. One that a person restarted since `pid` ran is `stopped`."""
    until = system.now() + STOPPING
    while (found := inspect(server, system)).state == "stopping" and system.now() < until:
        system.sleep(POLL)
    restarted = found.state == "up" and found.pid and pid and found.pid != pid
    return Run("stopped") if restarted or found.state == "stopping" else found


def inspect(server: Server, system: System) -> Run:
    """Return the state of the unit or container. One that cannot be inspected counts as running."""
    return inspect_unit(server, system) if server.kind == "unit" else inspect_container(server, system)


def inspect_unit(server: Server, system: System) -> Run:
    """Query systemd, which starts a server again some seconds after it ended by itself, and counts that."""
    found = unit_properties(system, server.unit, "ActiveState", "SubState", "Result", "NRestarts", "MainPID")
    if "ActiveState" not in found:
        return Run("up")
    restarts = _number(found.get("NRestarts", ""))
    if restarts or found.get("SubState") == "auto-restart" or found.get("Result") == "start-limit-hit":
        return Run("died")
    # With Restart=always, systemd leaves only a server down that a person stopped: "failed" if it had to be killed.
    if found["ActiveState"] == "deactivating":
        return Run("stopping")
    stopped = found["ActiveState"] in ("inactive", "failed")
    return Run("stopped") if stopped else Run("up", _number(found.get("MainPID", "")))


def inspect_container(server: Server, system: System) -> Run:
    """Query Docker, which starts a container again at once after it ended by itself."""
    ended = docker(system, "inspect", "--type", "container", server.service)
    try:
        found = json.loads(ended.out)[0]
        status, restarts, pid = found["State"]["Status"], found["RestartCount"], found["State"]["Pid"]
    except (ValueError, LookupError, TypeError):
        return Run("up")
    if ended.ok and (restarts or status in ("restarting", "dead")):
        return Run("died")
    return Run("up", pid) if not ended.ok or status == "running" else Run("stopped")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def probe_server(server: Server, system: System, probe: Probe) -> str:
    """Probe the server, again if a response is wrong. Return why both were, or that the server hangs."""
    why = ""
    for attempt in range(2):
        code, why = _probe_once(server, system, probe)
        if code != WRONG or attempt:
            break
        system.report(f"{server.service}: {why}; probing again")
        system.sleep(1)
    return why


def _probe_once(server: Server, system: System, probe: Probe) -> tuple[int, str]:
    """Send the probe. A server that computes is busy, with requests of clients it may be, and has more time."""
    last = read_version(system, server.kept)
    question = read_question(system, last) if last else None
    if not server.prompts or last is None or question is None:
        return RESPONDS, ""
    pid = inspect(server, system).pid
    key = read_key(system, question, last)
    for seconds in (SILENT, server.response_seconds):
        before, began = _demand(pid, system), system.now()
        code, why = probe(question, key=key, seconds=seconds)
        if code != NO_RESPONSE:
            return (WRONG, why.strip()) if code and why.strip() else (RESPONDS, "")
        if _demand(pid, system) - before < COMPUTES * (system.now() - began):
            return NO_RESPONSE, f"it hangs: it did not respond within {seconds} s, and computed nothing"
    return RESPONDS, ""


def _demand(pid: int, system: System) -> float:
    """Return the seconds that a server has computed, or would have if other programs had left it a processor."""
    return system.computed(pid) + system.waited(pid)


def replaced(server: Server, system: System) -> bool:
    """Return whether another run has changed the server since, or has removed it."""
    last = read_version(system, server.kept)
    return last is None or last.spec != server.spec


def roll_back(servers: Sequence[Server], failed: Server, why: str, system: System, probe: Probe) -> str:
    """Restore the previous versions of all servers, and record why. Return why, or nothing if another run was faster.

    A kill at any point leaves the new versions marked as untried, so the next run proves them or goes back.
    """
    system.report(f"{failed.service}: {why}; restoring the previous version")
    with system.lock("host", LOCK_WAIT, f"probation of {failed.service}") as waited:
        if any(settled(each, system).state == "stopped" for each in servers):
            return ""
        if waited and not _fails(failed, system, probe):
            return ""
        versions = [(each, read_version(system, each.kept, "before")) for each in servers]
        if any(replaced(each, system) for each in servers) or not any(before for _, before in versions):
            return ""
        began = system.now()
        for each, before in versions:
            if before:
                mark_untried(system, each, each.spec)
                system.link(f"{each.kept}/last", before.name)
        for each, before in versions:
            _stop(each, before, system, hung=each is failed)
        problems = [
            problem
            for each, before in versions
            if before and (problem := _restore_version(each, before, system, probe))
        ]
        if not problems:
            note_refused(system, failed, why)
            for each, _ in versions:
                clear_untried(system, each.kept)
        for each, _ in versions:
            system.remove(f"{each.kept}/before")
            if not problems:
                remove_unused(system, each.kept)
        names = " and ".join(each.service for each, before in versions if before)
        outcome = f"{names} serves again as before, after {system.now() - began:.0f} s: {failed.service} failed, {why}"
        outcome = "; ".join(problems) or outcome
    system.report(outcome)
    restored = [f"restart server {each.service}: spec {before.spec} is restored" for each, before in versions if before]
    with system.lock("releases", LOCK_WAIT, f"probation of {failed.service}"):
        record(failed, restored, outcome, system)
    return why


def _fails(server: Server, system: System, probe: Probe) -> bool:
    """Return whether a server still fails. Another run may have changed it while this program waited."""
    if replaced(server, system):
        return False
    return inspect(server, system).state == "died" or bool(probe_server(server, system, probe))


def _restore_version(server: Server, before: Version, system: System, probe: Probe) -> str:
    """Restore and start the previous version. Return what went wrong."""
    why = _restore(server, before, system, probe)
    return f"{server.service} was rolled back to spec {before.spec}, which does not start either: {why}" if why else ""


def _restore(server: Server, before: Version, system: System, probe: Probe) -> str:
    try:
        if before.kind == "unit":
            ensure_account(system, server.user)
        restore_files(system, before, server.user)
    except OSError as error:
        return f"its files cannot be written: {error.strerror}"
    if not start_version(system, server.service, before):
        return "it is not healthy in time"
    question = read_question(system, before)
    if not server.prompts or question is None:
        return ""
    key = read_key(system, question, before)
    code, why = probe(question, key=key, seconds=server.response_seconds)
    failed = code == NO_RESPONSE or (code and why.strip())
    return (why.strip() or "it does not respond") if failed else ""


def _stop(server: Server, before: Version | None, system: System, *, hung: bool) -> None:
    """Stop the new version, by force if it may hang. Without a previous version it stays stopped."""
    backend = backend_of(server.kind, system)
    if hung:
        backend.kill(server.service)
    backend.stop(server.service)
    if server.kind == "unit" and before is None:
        systemctl(system, "-q", "disable", server.unit)
    if before and before.kind != server.kind:
        forget(system, server, unit=server.kind == "unit", container=server.kind == "container")


def record(server: Server, changes: Sequence[str], outcome: str, system: System) -> None:
    """Add a release to the history of the host: a failed one, with the plan of the newest."""
    names = (each.removesuffix(".json") for each in system.names(str(RELEASES)) if each.endswith(".json"))
    numbers = [int(each) for each in names if each.isascii() and each.isdigit()]
    if not numbers:
        return
    newest = max(numbers)
    release = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(system.clock())),
        "origin": {"user": "llamaherd", "machine": socket.gethostname(), "commit": "", "lock": "", "version": ""},
        "changes": changes,
        "failed": [f"serve | {server.name}: {outcome}"[:_MOST_OUTCOME]],
        "back_to": None,
        "only": [],
    }
    with suppress(OSError):
        system.copy(f"{RELEASES}/{newest}.plan", f"{RELEASES}/{newest + 1}.plan")
    system.write(f"{RELEASES}/{newest + 1}.json", dump(release))


def drop_before(server: Server, system: System) -> None:
    """Remove the previous version: the new one has passed its probation."""
    target = system.target(f"{server.kept}/before")
    if not target:
        return
    system.remove(f"{server.kept}/before")
    if target != system.target(f"{server.kept}/last"):
        system.remove(f"{server.kept}/{target}")


def _names(servers: Sequence[Server]) -> str:
    return " and ".join(each.service for each in servers)


VERBS = {"watch": Verb(ProbationInput, watch)}
