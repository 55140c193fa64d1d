"""Remove servers that are no longer declared, once their replacements run, or restore them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from llamaherd.layout import KEPT, KEYS, REFUSED, probation_of
from llamaherd.onhost.clients import docker, systemctl, unit_properties
from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.services import locked
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.backends import ContainerBackend, forget, stop_both
from roles.serve.onhost.kept import read_key, read_question, read_version, write_refused
from roles.serve.onhost.model import KeyRemovalInput, RefusalInput, RemovalInput, ReplacedServer, SwitchInput
from roles.serve.onhost.pause_timer import end_pause
from roles.serve.onhost.tools import TOOLS, Tools

LOAD_SECONDS = 7200
"""The most that one of them may take to load: how long it took is not known any more."""


def runs(system: System, service: str) -> bool:
    """Return whether a server runs or is about to: at a boot, or after its port was in use."""
    found = unit_properties(system, f"{service}.service", "ActiveState", "Job")
    if found.get("ActiveState") in ("active", "activating", "reloading") or found.get("Job", "") not in ("", "0"):
        return True
    ended = docker(system, "inspect", "--type", "container", "--format", "{{.State.Status}}", service)
    return ended.ok and ended.out.strip() in ("running", "restarting")


def any_serves(system: System, replaced: Sequence[ReplacedServer]) -> bool:
    """Return whether any of these servers runs, or has to come back."""
    return any(system.entry(each.mark) or runs(system, each.service) for each in replaced)


def make_room(system: System, given: SwitchInput, tools: Tools, drain_seconds: int) -> None:
    """Stop the servers whose port or memory the new one needs. Raise FailedError where that cannot be recorded."""
    for each in given.replaced:
        if each.takes_port:
            _stop_for_new(system, each, f"its port is to be that of {given.server.service}", tools, drain_seconds)
    rest = [each for each in given.replaced if not each.takes_port]
    if not rest:
        return
    room = given.replaced_room
    lacking = tools.lacks_room(system, room, None) if room else f"how much {given.server.service} takes is not certain"
    for each in rest if lacking else ():
        _stop_for_new(system, each, lacking, tools, drain_seconds)


def _stop_for_new(system: System, each: ReplacedServer, why: str, tools: Tools, drain_seconds: int) -> None:
    if not runs(system, each.service):
        return
    system.report(f"stopping {each.service}, which is not declared any more: {why}")
    drain_kept(system, each.kept, tools, drain_seconds)
    try:
        system.folder(each.kept, mode=0o700)
        system.write(each.mark, "")
    except OSError as error:
        raise FailedError(f"cannot write {each.mark} ({error.strerror}), so {each.service} was not stopped") from error
    stop_both(system, each.service)
    tools.let_in(system)


def drain_kept(system: System, kept: str, tools: Tools, seconds: int, *, led: bool = False) -> None:
    """Drain a server by what was kept of it when it started. `led`: new connections go to its candidate."""
    version = read_version(system, kept)
    question = read_question(system, version) if version else None
    if version and question and "metrics" in question:
        tools.drain(question, key=read_key(system, question, version), seconds=seconds, led=led, system=system)


def restore_replaced(system: System, replaced: Sequence[ReplacedServer], instead: str) -> None:
    """Start the servers again that were stopped for a new one, as `instead` does not serve in their place."""
    for each in replaced:
        if not system.entry(each.mark):
            continue
        began, back = system.now(), False
        if system.entry(f"/etc/systemd/system/{each.service}.service"):
            systemctl(system, "reset-failed", f"{each.service}.service")
            back = systemctl(system, "start", f"{each.service}.service", seconds=LOAD_SECONDS).ok
        elif system.entry(each.project_file):
            back = ContainerBackend(system).start_file(each.project_file, LOAD_SECONDS, anew=False)
        if back:
            system.remove(each.mark)
            seconds = system.now() - began
            system.report(f"{each.service} serves again, after {seconds:.0f} s: {instead} does not serve in its place")
        else:
            system.report(
                f"{each.service} was started again, as {instead} does not serve in its place, "
                "and does not come up either"
            )


def let_go(system: System, replaced: Sequence[ReplacedServer]) -> None:
    """Record that those whose port is taken do not come back, also where another server of this run fails."""
    for each in replaced:
        if each.takes_port:
            with suppress(OSError):
                system.remove(each.mark)


def remove(given: RemovalInput, system: System, tools: Tools = TOOLS) -> None:
    """Drain a server, stop it and remove what is its own. Raise FailedError where its account is still in use."""
    kept = f"{KEPT}/{given.service}"
    with locked(system, f"removing {given.name}"):
        drain_kept(system, kept, tools, given.drain_seconds)
        if given.key:
            end_pause(given.name, given.service, system)
        done = forget(system, given, unit=given.unit, container=given.container)
        tools.let_in(system)
        if not done:
            raise FailedError(
                f"the account {given.user} of {given.name} cannot be removed: something still runs as it",
                f"see `ps -u {given.user}`; `herd up` tries again",
            )
        if given.key:
            systemctl(system, "stop", f"{probation_of(given.name)}.service")
            for path in (f"{KEYS}/{given.name}", kept, f"{REFUSED}/{given.service}"):
                system.remove(path)


def remove_key(given: KeyRemovalInput, system: System) -> None:
    """Remove a key that no server reads any more."""
    with locked(system, f"removing the key of {given.name}"):
        system.remove(f"{KEYS}/{given.name}")


def refuse(given: RefusalInput, system: System) -> None:
    """Record that a version was measured and is not accepted: no later run tries it again by itself."""
    try:
        write_refused(system, f"{REFUSED}/{given.service}", given.tried, given.why)
    except OSError as error:
        raise cannot_write(error) from error


VERBS = {
    "remove": Verb(RemovalInput, remove),
    "remove_key": Verb(KeyRemovalInput, remove_key),
    "refuse": Verb(RefusalInput, refuse),
}
