"""The virtual address' part of the program on hosts: apply keepalived's configuration, and remove it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llamaherd.layout import ADDRESS, ADDRESS_PROGRAM, ADDRESS_UNIT, ASK_USER
from llamaherd.onhost.clients import systemctl
from llamaherd.onhost.files import WrittenFile, write_files
from llamaherd.onhost.services import (
    ServiceState,
    enable_units,
    find_services,
    journal,
    last_lines,
    locked,
    remove_service,
    require_installed,
    restart_units,
)
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb

KEEPALIVED = "/usr/sbin/keepalived"
NEW = f"{ADDRESS}.new"
_SCRIPT_USER = re.compile(r"^( *script_user) .*", re.MULTILINE)
_CHECK_SECONDS = 60
_MOST_LINES, _LINE, _LOG_LINES = 5, 300, 10


@dataclass(frozen=True)
class ApplyInput:
    """Input of the apply of a virtual address."""

    config: WrittenFile
    """For keepalived, but for the interface, which the program fills in."""
    program: WrittenFile
    """Fills in the interface of this boot, and removes the address from the host."""
    unit: WrittenFile
    restart: bool
    """Whether keepalived restarts, which moves the address."""


def apply(given: ApplyInput, system: System) -> None:
    """Apply keepalived. Raise FailedError if it does not run afterwards."""
    with locked(system, "applying the virtual address"):
        require_installed(system, "keepalived", [KEEPALIVED], ASK_USER)
        try:
            _check(given, system)
        finally:
            system.remove(NEW)
        write_files(system, [given.config, given.program, given.unit])
        enable_units(system, [ADDRESS_UNIT])
        if given.restart:
            restart_units(system, [ADDRESS_UNIT])
            system.sleep(1)
            if not systemctl(system, "-q", "is-active", ADDRESS_UNIT).ok:
                log = journal(system, [ADDRESS_UNIT], _LOG_LINES)
                message = "keepalived does not run; the gateway responds at its host's own address"
                raise FailedError(message, f"see `journalctl -u {ADDRESS_UNIT}`", log)


def _check(given: ApplyInput, system: System) -> None:
    """Let keepalived check its configuration in a folder of its own. Raise FailedError where it refuses."""
    system.remove(NEW)
    system.folder(NEW, mode=0o700)
    config, program, whole = f"{NEW}/keepalived.conf", f"{NEW}/virtual-address", f"{NEW}/tried.conf"
    files = ((config, given.config), (program, given.program))
    write_files(system, [WrittenFile(path, each.text, each.mode, each.owner) for path, each in files])
    configured = system.run(["sh", program, "configure", config, whole])
    if not configured.ok:
        log = last_lines(configured, _MOST_LINES)
        raise FailedError("keepalived cannot be configured; what ran before still does", "see `ip route`", log)
    # Before 2.2.8 it kills itself where it only checks a script of another user.
    system.write(whole, _SCRIPT_USER.sub(r"\1 root", system.read(whole) or ""))
    ended = system.run([KEEPALIVED, "-t", "-f", whole], seconds=_CHECK_SECONDS)
    if not ended.ok:
        log = [each[:_LINE] for each in (ended.out + ended.err).splitlines()[:_MOST_LINES]]
        message = "keepalived rejects this configuration; the previous one still runs"
        raise FailedError(message, "report this as a fault in llamaherd", log)


def remove(_: NoInput, system: System) -> None:
    """Remove the virtual address."""
    with locked(system, "removing the virtual address"):
        remove_service(system, [ADDRESS_UNIT], [str(ADDRESS), NEW, str(ADDRESS_PROGRAM)])


@dataclass(frozen=True)
class Found:
    """The unit that runs keepalived, if there is one."""

    unit: ServiceState | None = None


def inspect(_: NoInput, system: System) -> Found:
    """Inspect the unit that runs keepalived."""
    return Found(find_services([ADDRESS_UNIT], system).get(ADDRESS_UNIT))


VERBS = {"inspect": Verb(NoInput, inspect), "apply": Verb(ApplyInput, apply), "remove": Verb(NoInput, remove)}
