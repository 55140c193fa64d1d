"""Remove from a host what llamaherd put there: units and containers, and with a purge also accounts and folders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from llamaherd.layout import (
    ACCOUNTS,
    BUILDS,
    DRIVER_BEFORE,
    DRIVER_UNDO_UNIT,
    EXPORTER_USER,
    GATEWAY_USER,
    LIMITS_GUARD,
    LOCKS,
    MONITORING_USER,
    OURS,
    OURS_ALONE,
    OWN_PREFIX,
    PRESETS,
    RUNTIME_UNITS,
    SET_ASIDE,
    TIMER_STAMPS,
    TRIALS_GUARD,
    UNITS,
)
from llamaherd.onhost.clients import docker, systemctl
from llamaherd.onhost.removal import LEFT, Outcome, Removals, size_on_disk
from llamaherd.onhost.services import STOP_SECONDS, last_lines
from llamaherd.onhost.system import TIMED_OUT, FailedError, HeldError, System
from llamaherd.onhost.verbs import Verb

USERS = (*ACCOUNTS, GATEWAY_USER, MONITORING_USER, EXPORTER_USER)
"""The accounts that every host, a gateway and monitoring have. An account of a server is removed with its server."""
_FIRST_PERSON = 1000
"""Numbers of accounts from here on are of people: `useradd --system` assigns lower ones."""
_UNIT = re.compile(rf"{OWN_PREFIX}[A-Za-z0-9@._-]+\.(?:path|service|slice|socket|target|timer)")
_LOCK_SECONDS = 10
_LOCKED = ("host", "build", "store", "fetch", "share")
_PURPOSE = "removing llamaherd from this host"


@dataclass(frozen=True)
class UninstallInput:
    """The rig's store of models. With `purge`, accounts and folders are removed, too."""

    store: str
    purge: bool = False


@dataclass(frozen=True)
class Installed:
    """What is on a host by llamaherd, apart from servers, gateway and what else has a role.

    `paths` are the files and folders that a purge removes after models, builds and preset files. `spared` are folders
    that it does not remove. `sizes` are the bytes of folders, by path, with everything in them.
    """

    units: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)


def inspect(given: UninstallInput, system: System) -> Installed:
    """Return what a removal would remove. Raise FailedError where systemd or Docker does not respond."""
    spared = _spared(given.store, system)
    return Installed(
        units=_units(system),
        containers=_containers(system),
        accounts=_accounts(system),
        paths=tuple(_paths(given.store, spared, system)),
        spared=spared,
        sizes={path: size_on_disk(system, path) for path in (*map(str, OURS_ALONE), given.store) if system.entry(path)},
    )


def _units(system: System) -> tuple[str, ...]:
    """Return our units with a file, or that systemd has loaded: those of servers belong to a role.

    The unit that restores a driver stays until the first boot has checked the new driver.
    """
    listed = systemctl(system, "list-units", "--all", "-q", "--no-legend", "--plain", f"{OWN_PREFIX}*")
    if not listed.ok and system.entry("/run/systemd/system"):
        raise FailedError("systemd does not respond, so it is unknown which units there are", "see `systemctl status`")
    loaded = [line.split()[0] for line in listed.out.splitlines() if line.split()]
    names = {*system.names(str(UNITS)), *system.names(str(RUNTIME_UNITS)), *loaded}
    keeps = {DRIVER_UNDO_UNIT} if system.entry(str(DRIVER_BEFORE)) else set()
    return tuple(sorted(name for name in names - keeps if _UNIT.fullmatch(name)))


def _containers(system: System) -> tuple[str, ...]:
    """Return our containers but those of servers; none if there is no Docker."""
    listed = docker(system, "ps", "-a", "--filter", f"name=^/?{OWN_PREFIX}", "--format", "{{.Names}}")
    if listed.code == TIMED_OUT:
        raise FailedError("Docker does not respond, so it is unknown which containers there are", "see `docker ps`")
    return tuple(sorted(name for name in listed.out.split() if name.startswith(OWN_PREFIX)))


def _accounts(system: System) -> tuple[str, ...]:
    """Return our accounts. An account of a person that has such a name is not ours."""
    found = []
    for user in USERS:
        number = system.run(["id", "-u", user]).out.strip()
        if number.isdecimal() and int(number) < _FIRST_PERSON:
            found.append(user)
    return tuple(found)


def _spared(store: str, system: System) -> tuple[str, ...]:
    """Return folders that a purge does not remove.

    Builds, preset files and models are removed one by one before, unless another program uses them: what is left there
    is in use. Files that were set aside are of other programs. Locks are of this boot, and each run creates them.
    """
    folders = (str(BUILDS), str(PRESETS), store, str(SET_ASIDE))
    return (*(each for each in folders if _has_files(system, each)), str(LOCKS))


def _has_files(system: System, folder: str) -> bool:
    """Return whether a folder has a file that is not a rest of a transfer or of a removal."""
    found = ((path.removeprefix(f"{folder}/"), each) for path, each in system.tree(folder))
    return any(each.kind != "folder" and not _is_rest(path.partition("/")[0]) for path, each in found)


def _is_rest(name: str) -> bool:
    """Return whether a name in a folder of models or builds is of a lock, a transfer or an interrupted removal."""
    return name in (".incoming", ".lock") or name.startswith(LEFT)


def _is_mount(system: System, path: str) -> bool:
    """Return whether a disk is mounted at a path."""
    here, above = system.entry(path), system.entry(path.rpartition("/")[0] or "/")
    return here is not None and above is not None and here.device != above.device


def _paths(store: str, spared: tuple[str, ...], system: System) -> Iterator[str]:
    """Yield the files and folders to remove: whole folders, or the parts of them that do not stay."""
    mounts = tuple(path for path in {*map(str, OURS), *map(str, OURS_ALONE), store} if _is_mount(system, path))
    for path in map(str, OURS_ALONE):
        yield from _removable(path, spared, mounts, system)
    if not any(store.startswith(f"{each}/") for each in OURS_ALONE):
        names = system.names(store)
        rests = [name for name in names if _is_rest(name)]
        # A folder of the user's choice, which may have been there before.
        whole = names and names == rests and store not in (*spared, *mounts)
        yield from [store] if whole else [f"{store}/{each}" for each in rests]


def _removable(path: str, spared: tuple[str, ...], mounts: tuple[str, ...], system: System) -> Iterator[str]:
    """Yield a path; of a disk of its own, or of a folder with anything in it that stays, the removable parts."""
    found = system.entry(path)
    if found is None or path in spared or (path.rpartition("/")[0] in mounts and path.endswith("/lost+found")):
        return
    stays = any(each.startswith(f"{path}/") and system.entry(each) for each in (*spared, *mounts))
    if found.kind == "folder" and (stays or path in mounts):
        for name in system.names(path):
            yield from _removable(f"{path}/{name}", spared, mounts, system)
    else:
        yield path


def remove(given: UninstallInput, system: System) -> Outcome:
    """Remove units and containers; with a purge also accounts and folders. Raise FailedError.

    It waits for no other run: `busy` reports one.
    """
    if given.purge and system.entry(str(DRIVER_BEFORE)):
        raise FailedError(
            "a new NVIDIA driver waits for its first boot, and the previous one is kept in llamaherd's folder",
            "reboot the host, and run the command again",
        )
    with ExitStack() as locks:
        try:
            for name in _LOCKED if given.purge else ("host",):
                locks.enter_context(system.lock(name, _LOCK_SECONDS, _PURPOSE))
        except HeldError:
            return Outcome(busy="")
        return _Removal(system).remove(given)


class _Removal(Removals):
    """Removes what is there, and collects the results."""

    def remove(self, given: UninstallInput) -> Outcome:
        """Remove all of it."""
        self._remove_units()
        for name in _containers(self._system):
            gone = docker(self._system, "rm", "-f", name)
            self.record(f"container {name}", "" if gone.ok else (last_lines(gone, 1) or ["Docker does not"])[0])
        if given.purge:
            for user in _accounts(self._system):
                gone = self._system.run(["userdel", user])
                self.record(f"account {user}", "" if gone.ok else f"something still runs as it: see `ps -u {user}`")
            self._remove_paths(given.store)
        return self.outcome

    def _remove_units(self) -> None:
        """Stop and remove units. Guards go first: they restore what a trial has changed."""
        units = sorted(_units(self._system), key=lambda each: each not in (TRIALS_GUARD, LIMITS_GUARD))
        for unit in units:
            systemctl(self._system, "stop", unit, seconds=STOP_SECONDS)
            if self._system.entry(f"{UNITS}/{unit}"):
                systemctl(self._system, "-q", "disable", unit)
            # Its own file goes last: the next run finds the rest by it.
            for path in (f"{TIMER_STAMPS}/stamp-{unit}", f"{RUNTIME_UNITS}/{unit}", f"{UNITS}/{unit}"):
                self._delete(path)
            systemctl(self._system, "reset-failed", unit)
            self.record(f"unit {unit}")
        if units:
            systemctl(self._system, "daemon-reload")

    def _remove_paths(self, store: str) -> None:
        for path in [*_paths(store, _spared(store, self._system), self._system)]:
            self.record(path, self._delete(path))

    def _delete(self, path: str) -> str:
        """Remove a file or folder. Return why it cannot be removed; empty if it is gone."""
        try:
            self._system.remove(path)
        except OSError as error:
            return error.strerror or "it cannot be removed"
        return ""


VERBS = {"inspect": Verb(UninstallInput, inspect), "remove": Verb(UninstallInput, remove)}
