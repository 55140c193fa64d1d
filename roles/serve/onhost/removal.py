"""Remove servers and keys that are not declared any more, and record versions that were measured and refused."""

from __future__ import annotations

from llamaherd.layout import KEPT, KEYS, REFUSED, probation_of
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.disk import cannot_write
from llamaherd.onhost.services import locked
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.serve.onhost.backends import forget_server
from roles.serve.onhost.kept import write_refused
from roles.serve.onhost.model import KeyRemovalInput, RefusalInput, RemovalInput
from roles.serve.onhost.real import RealTools
from roles.serve.onhost.replaced import drain_kept
from roles.serve.onhost.tools import Tools


def remove(given: RemovalInput, system: System) -> None:
    """Drain a server, stop it and remove what is its own. Raise FailedError where its account is still in use."""
    run_removal(given, system, RealTools())


def run_removal(given: RemovalInput, system: System, tools: Tools) -> None:
    """Remove a server; see `remove`."""
    kept = f"{KEPT}/{given.service}"
    with locked(system, f"removing {given.name}"):
        drain_kept(system, kept, tools, given.drain_seconds)
        done = forget_server(system, given.name, given.service, given.user, unit=given.unit, container=given.container)
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
