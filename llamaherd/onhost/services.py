"""Inspect units of systemd, and change a service: check its configuration, swap it in, roll back on failure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from llamaherd.layout import LOCK_WAIT, UNITS, WRITTEN
from llamaherd.onhost.clients import query_systemctl, systemctl
from llamaherd.onhost.files import WrittenFile, cannot_write, write_files
from llamaherd.onhost.system import Ended, FailedError, System


@dataclass(frozen=True)
class ServiceState:
    """A unit of a service, as systemd reports it, and the hash of its text when the process started."""

    active: str
    enabled: str
    needs_reload: bool
    spec: str


def show_units(units: Iterable[str], properties: Iterable[str], system: System) -> dict[str, dict[str, str]]:
    """Return properties of units by name, from one call. Raise UnknownStateError where systemd does not respond.

    A unit without a file has `LoadState=not-found`, if that is requested.
    """
    names = [*units]
    if not names:
        return {}
    shown = query_systemctl(system, "show", "-p", ",".join(["Id", *properties]), *names).out
    found: dict[str, dict[str, str]] = {}
    for block in shown.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in values:
            found[values["Id"]] = values
    return found


def find_services(units: Iterable[str], system: System) -> dict[str, ServiceState]:
    """Return the state of those units that have a file of llamaherd's."""
    there = [unit for unit in units if (found := system.entry(f"{UNITS}/{unit}")) and found.kind == "file"]
    shown = show_units(there, ("ActiveState", "UnitFileState", "NeedDaemonReload", "MainPID"), system)
    return {
        unit: ServiceState(
            active=shown.get(unit, {}).get("ActiveState", ""),
            enabled=shown.get(unit, {}).get("UnitFileState", ""),
            needs_reload=shown.get(unit, {}).get("NeedDaemonReload") == "yes",
            spec=spec_of(shown.get(unit, {}).get("MainPID", "0"), system),
        )
        for unit in there
    }


def spec_of(pid: str, system: System) -> str:
    """Return the spec that a process was started with; empty where it has none."""
    variables = (system.read(f"/proc/{pid}/environ") or "").split("\0") if pid.isdigit() and pid != "0" else []
    return next((each.partition("=")[2] for each in variables if each.startswith("LLAMAHERD_SPEC=")), "")


def runs_unchanged(unit: str, package: str, configuration: str, system: System) -> bool:
    """Return whether a distribution's own unit runs, or will, with the configuration that its package brought.

    `configuration` is the beginning of the paths of its files.
    """
    shown = show_units([unit], ("ActiveState", "UnitFileState"), system).get(unit, {})
    if shown.get("UnitFileState") not in ("enabled", "enabled-runtime") and shown.get("ActiveState") != "active":
        return False
    return f" {configuration}" not in system.run(["dpkg", "--verify", package]).out


def forget_fingerprints(system: System, name: str) -> None:
    """Forget the fingerprints of files that are about to be written: a run that is cut off leaves none."""
    system.remove(f"{WRITTEN}/{name}")


def record_fingerprints(system: System, name: str, paths: Iterable[str]) -> None:
    """Record fingerprints of files as they are. They depend on a secret of the host: a reader cannot try keys.

    A disk that cannot be written to costs only the record.
    """
    secret = f"{WRITTEN}/.secret"
    with suppress(OSError):
        system.folder(str(WRITTEN), mode=0o700)
        there = system.entry(secret)
        if there is None or not there.size:
            system.write(secret, system.random().hex())
        lines = [f"{system.digest([secret, path])}\t{path}\n" for path in paths]
        system.write(f"{WRITTEN}/{name}", "".join(lines))


STOP_SECONDS = 150
"""A unit may take 90 s to stop, and its kill some more."""
_REQUEST = re.compile(r"[0-9a-f.:]* status=")
"""A line of HAProxy's log about one request."""
_LINE, _LAST_LINE = 200, 300
_UNTRIED = ".untried"
"""A file in a folder whose version has not run yet."""


@dataclass(frozen=True)
class Service:
    """A service that reads a folder of configuration, which belongs to its user alone."""

    name: str
    record: str
    """The name of the record of its fingerprints."""
    folder: str
    user: str
    units: tuple[str, ...]
    restored: str
    """The report after a rollback."""
    restore: str
    """The verb of systemctl that makes the units read the restored configuration."""
    tries: int
    pause: float
    """Seconds between tries to find out whether the service has read it."""
    log_lines: int
    start_seconds: int = STOP_SECONDS
    folders: tuple[str, ...] = ()
    """Folders in the folder."""


class Actions(Protocol):
    """The parts that differ between services."""

    def check(self, folder: str) -> None:
        """Let the service's own program check a staged folder. Raise FailedError where it refuses."""

    def start(self) -> str:
        """Restart or reload the service. Return why it does not run; empty where it does."""

    def has_read(self) -> bool:
        """Return whether the running service has read the new configuration."""


@contextmanager
def locked(system: System, purpose: str) -> Iterator[None]:
    """Hold the lock of the host. A file that cannot be written fails the verb with a help."""
    with system.lock("host", LOCK_WAIT, purpose):
        try:
            yield
        except OSError as error:
            raise cannot_write(error) from error


def require_installed(system: System, what: str, programs: Iterable[str], user: str) -> None:
    """Raise FailedError unless programs and an account are there."""
    entries = [system.entry(each) for each in programs]
    runnable = [each is not None and (each.kind == "link" or bool(each.mode & 0o111)) for each in entries]
    if not all(runnable) or not system.run(["id", "-u", user]).ok:
        help_ = "run `herd up` without `--only`, which installs the packages and creates the account"
        raise FailedError(f"{what} or the account {user} is missing", help_)


def end_package_units(system: System, units: Iterable[str]) -> None:
    """Stop units that came with packages: they are unused, and listen on open ports."""
    for each in units:
        systemctl(system, "-q", "disable", "--now", each, seconds=STOP_SECONDS)


def apply_configuration(
    system: System,
    service: Service,
    actions: Actions,
    files: Sequence[WrittenFile],
    outside: Sequence[WrittenFile],
    fingerprints: Iterable[str],
) -> None:
    """Make a service run with a new configuration: files in its folder, and units and programs `outside` it.

    Raise FailedError where it does not. The configuration before is restored then, if it was swapped out.
    """
    folder = ConfigFolder(system, service.folder)
    try:
        folder.stage(service, files)
        actions.check(folder.new)
    except (FailedError, OSError):
        with suppress(OSError):
            folder.discard()
        raise
    forget_fingerprints(system, service.record)
    folder.swap()
    try:
        write_files(system, outside)
        enable_units(system, service.units)
    except FailedError:
        folder.restore()
        raise
    why = actions.start()
    if not why and not wait_until(system, actions.has_read, service.tries, service.pause):
        why = "it does not report that it has read the configuration"
    if why:
        raise _rolled_back(system, service, folder, why)
    record_fingerprints(system, service.record, fingerprints)
    folder.accept()


class ConfigFolder:
    """A folder that is replaced as a whole. The version that ran last is kept until the new one runs."""

    def __init__(self, system: System, folder: str) -> None:
        self._system = system
        self.folder, self.new, self.old = folder, f"{folder}.new", f"{folder}.old"

    def stage(self, service: Service, files: Iterable[WrittenFile]) -> None:
        """Write a new version next to the folder, for its user alone: files there contain keys."""
        self.discard()
        folders = [self.new, *(f"{self.new}/{each}" for each in service.folders)]
        made = self._system.run(["install", "-d", "-m", "0700", "-o", service.user, "-g", service.user, *folders])
        require_success(made, f"cannot create {self.new}")
        write_files(self._system, staged(files, self.folder, self.new))
        self._system.write(f"{self.new}/{_UNTRIED}", "")

    def discard(self) -> None:
        """Remove a staged version."""
        self._system.remove(self.new)

    def swap(self) -> None:
        """Put the staged version in place, and keep the one that ran last.

        A version that a run has left here that was cut off never ran.
        """
        if self._system.entry(f"{self.folder}/{_UNTRIED}"):
            self._system.remove(self.folder)
        elif self._system.entry(self.folder):
            self._system.remove(self.old)
            self._system.rename(self.folder, self.old)
        self._system.rename(self.new, self.folder)

    def restore(self) -> bool:
        """Put the version back that ran before. Return False where there was none."""
        if not self._system.entry(self.old):
            return False
        self._system.remove(self.folder)
        self._system.rename(self.old, self.folder)
        return True

    def accept(self) -> None:
        """Remove the mark of a version that has not run yet, then the version before."""
        self._system.remove(f"{self.folder}/{_UNTRIED}")
        self._system.remove(self.old)


def staged(files: Iterable[WrittenFile], folder: str, new: str) -> list[WrittenFile]:
    """Return files with their paths in a staged folder."""
    return [replace(each, path=new + each.path.removeprefix(folder)) for each in files]


def enable_units(system: System, units: Sequence[str]) -> None:
    """Let systemd read units again, and start them at boot. Raise FailedError where they cannot be enabled."""
    systemctl(system, "daemon-reload")
    require_success(systemctl(system, "-q", "enable", *units), f"cannot enable {', '.join(units)}")


def restart_units(system: System, units: Sequence[str], seconds: int = STOP_SECONDS) -> bool:
    """Restart units, also if systemd has given up on them. Return whether they run."""
    systemctl(system, "reset-failed", *units)
    return systemctl(system, "restart", *units, seconds=seconds).ok


def wait_until(system: System, holds: Callable[[], bool], tries: int, pause: float) -> bool:
    """Return whether a condition holds after some tries."""
    for _ in range(tries):
        if holds():
            return True
        system.sleep(pause)
    return False


def journal(system: System, units: Iterable[str], lines: int) -> list[str]:
    """Return the last lines of the journal of units, without those about requests."""
    words = [word for each in units for word in ("-u", each)]
    ended = system.run(["journalctl", "-q", "-o", "cat", "--no-pager", "-n", str(lines), *words])
    return [line[:_LINE] for line in ended.out.splitlines() if not _REQUEST.match(line)]


def require_success(ended: Ended, message: str, fix: str = "") -> None:
    """Raise FailedError with the last lines of a program that has failed."""
    if not ended.ok:
        raise FailedError(message, fix, last_lines(ended, 3))


def last_lines(ended: Ended, lines: int) -> list[str]:
    """Return the last lines of a program's output."""
    return [line[:_LAST_LINE] for line in (ended.out + ended.err).splitlines()[-lines:]]


def _rolled_back(system: System, service: Service, folder: ConfigFolder, why: str) -> FailedError:
    """Restore the configuration before, and return the failure. A service that had none is stopped."""
    log = journal(system, service.units, service.log_lines)
    message = f"{service.name} does not run with this configuration: {why}"
    if not folder.restore():
        systemctl(system, "stop", *service.units, seconds=STOP_SECONDS)
    elif systemctl(system, service.restore, *service.units, seconds=service.start_seconds).ok:
        message += f"; {service.restored}"
    else:
        message += "; the configuration before was restored, but does not run either"
    return FailedError(message, f"see `journalctl -u {service.units[0]}`", log)


def remove_service(system: System, units: Sequence[str], paths: Iterable[str]) -> None:
    """Stop units, and remove their files. The files go last: the next run finds the rest by them."""
    systemctl(system, "disable", "-q", "--now", *units, seconds=STOP_SECONDS)
    for path in (*paths, *(str(UNITS / each) for each in units)):
        system.remove(path)
    systemctl(system, "daemon-reload")
    systemctl(system, "reset-failed", *units)
