"""Fetch models in a unit that outlives the connection: begin it, join it, and wait for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from llamaherd.layout import FETCH_RUN, FETCH_UNIT, FETCH_USER, LOCK_WAIT
from llamaherd.onhost.clients import systemctl, unit_runs
from llamaherd.onhost.document import Secret
from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.progress import report_every
from llamaherd.onhost.services import last_lines
from llamaherd.onhost.store import is_vouched
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.models.onhost import PROGRAM, make_folder, make_for_fetcher, reported, start_unit

RUN = str(FETCH_RUN)
JOB, ID, WATCHERS = f"{RUN}.json", f"{RUN}.id", f"{RUN}.watchers"
"""The files that root reads belong to root; the folder of the same name belongs to the fetching user."""
_HOUR = 3600


@dataclass(frozen=True)
class RequestedFile:
    """A file that must be in the store."""

    folder: str
    name: str
    sha256: str


@dataclass(frozen=True)
class FetchInput:
    """What is fetched, and from where."""

    id: str
    """The job's: the same for what is declared, however much of it has arrived."""
    watcher: str
    """The name of the run of `herd up` that waits for it."""
    what: str
    """What users read of it: `2 files of 35b (24 GB)`."""
    store: str
    wanted: tuple[RequestedFile, ...]
    job: Mapping[str, object]
    """What the fetcher reads."""
    secrets: Mapping[str, Secret]
    """Tokens, by the names that the job has for them."""
    seconds: int
    """How long it may take."""


@dataclass(frozen=True)
class JoinInput:
    """A fetch that runs, and the run of `herd up` that waits for it too."""

    id: str
    watcher: str


def begin(given: FetchInput, system: System) -> None:
    """Begin to fetch, or join the fetch that does. One of something else is ended, and what it has is kept."""
    with _locked(system):
        if _all_here(given, system):
            return
        if unit_runs(system, FETCH_UNIT):
            if _is_ours(given.id, system):
                _watch_for(given.watcher, system)
                return
            system.report("a fetch runs for what was declared before: it ends here, and what it has is kept")
            systemctl(system, "stop", FETCH_UNIT)
        _start(given, system)
        system.report(f"fetching {given.what} meanwhile")


def join(given: JoinInput, system: System) -> None:
    """Join a fetch: what it ends with is the result of this run, too."""
    with system.lock("fetch", LOCK_WAIT, "joining a fetch"):
        if _is_ours(given.id, system):
            _watch_for(given.watcher, system)


def wait(given: FetchInput, system: System) -> None:
    """Wait until all is here. Begin to fetch it unless this run has: a fetch that has failed by now is the result.

    Raise FailedError with what the fetch reports.
    """
    began = system.now()
    while _must_wait(given, system):
        _watch(given, began, system)


def _must_wait(given: FetchInput, system: System) -> bool:
    """Return whether a fetch runs that brings what is missing; begin one where none was begun."""
    with _locked(system):
        if _all_here(given, system):
            return False
        if unit_runs(system, FETCH_UNIT):
            if _is_ours(given.id, system):
                _watch_for(given.watcher, system)
            else:
                system.report("another run fetches what it needs: waiting for it")
            return True
        if _is_ours(given.id, system) and given.watcher in _watchers(system):
            # Files that are let in are moved before the manifest lists them.
            with system.lock("store", LOCK_WAIT, "seeing what was let in"):
                if _all_here(given, system):
                    return False
            raise _failed(system)
        _start(given, system)
        return True


def _locked(system: System) -> AbstractContextManager[bool]:
    """Hold the lock of fetches: two runs at once begin one."""
    return system.lock("fetch", LOCK_WAIT, "beginning to fetch")


def _all_here(given: FetchInput, system: System) -> bool:
    """Return whether all has arrived or is in the store. What arrives has another name until its hash is right."""
    return all(
        _is_file(system, f"{_incoming(given)}/{each.sha256}") or is_vouched(system, each.folder, each.name, each.sha256)
        for each in given.wanted
    )


def _is_file(system: System, path: str) -> bool:
    found = system.entry(path)
    return found is not None and found.kind == "file"


def _incoming(given: FetchInput) -> str:
    return f"{given.store}/.incoming"


def _is_ours(job: str, system: System) -> bool:
    """Return whether the last fetch that was begun is of this job."""
    return (system.read(ID) or "").strip() == job


def _watchers(system: System) -> list[str]:
    return (system.read(WATCHERS) or "").splitlines()


def _watch_for(watcher: str, system: System) -> None:
    """Record that a run waits for the fetch: what the fetch ends with is its result, and it begins no other."""
    there = _watchers(system)
    if watcher not in there:
        system.write(WATCHERS, "".join(f"{each}\n" for each in (*there, watcher)), mode=0o644)


def _start(given: FetchInput, system: System) -> None:
    """Start the unit. Raise FailedError."""
    try:
        _prepare(given, system)
    except OSError as error:
        raise cannot_write(error) from error
    properties = [
        # What is on this host already is looked for as root (`+`), since it may be in any home, and outside of the
        # unit's mounts: to each of those another file system begins, as far as links are concerned.
        f"ExecStartPre=+/usr/bin/nsenter --mount=/proc/1/ns/mnt {PROGRAM} adopt {JOB} {RUN}",
        *(f"TimeoutStartSec={given.seconds}", f"RuntimeMaxSec={given.seconds}", "TimeoutStopSec=30"),
        *(f"ExecStopPost=+/usr/bin/rm -rf {RUN}/secrets", "IOSchedulingPriority=7", "OOMScoreAdjust=800"),
        f"ReadWritePaths={_systemd_path(_incoming(given))} {RUN}",
    ]
    started = start_unit(system, FETCH_UNIT, properties, ("fetch", JOB, RUN), given.seconds + _HOUR)
    if not started.ok:
        log = [*reported(system, f"{RUN}/failed"), *last_lines(started, 3)]
        raise FailedError(f"cannot begin to fetch in {given.store}; the reason is above", log=log)
    _watch_for(given.watcher, system)


def _prepare(given: FetchInput, system: System) -> None:
    """Write what the fetcher reads."""
    make_folder(system, given.store)
    make_for_fetcher(system, _incoming(given))
    system.remove(RUN)
    system.folder(RUN, mode=0o700)
    system.folder(f"{RUN}/secrets", mode=0o700)
    system.write(ID, f"{given.id}\n", mode=0o644)
    system.write(WATCHERS, "", mode=0o644)
    system.write(JOB, json.dumps(given.job, indent=1), mode=0o644)
    for name, secret in given.secrets.items():
        system.write(f"{RUN}/secrets/{name}", secret.text)
    # At last: root writes nothing to a folder of that user.
    owned = system.run(["chown", "-R", f"{FETCH_USER}:{FETCH_USER}", RUN])
    if not owned.ok:
        raise FailedError(f"cannot give {RUN} to {FETCH_USER}; the reason is above", log=last_lines(owned, 3))


def _systemd_path(path: str) -> str:
    """Return a path as a word of a list in a property."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _watch(given: FetchInput, began: float, system: System) -> None:
    """Report the progress of the running fetch until it ends. Raise FailedError where it does not in time."""
    shown: list[str] = []
    seconds = 0
    while unit_runs(system, FETCH_UNIT):
        if system.now() - began > given.seconds:
            raise FailedError(
                f"the fetch has not ended within {given.seconds / _HOUR:.0f} h; what has come is kept",
                f"see `journalctl -u {FETCH_UNIT}`; end it with `systemctl stop {FETCH_UNIT}`, and `herd up` goes on "
                "from there",
            )
        system.sleep(1)
        seconds += 1
        # A run that is gone must not begin a fetch later, of what may not be declared any more.
        if not system.is_heard():
            raise FailedError("the connection ended while models were fetched; the fetch continues")
        if seconds % report_every(seconds) == 0:
            lines = reported(system, f"{RUN}/progress")
            if lines != shown:
                for line in lines:
                    system.report(line)
            shown = lines


def _failed(system: System) -> FailedError:
    """Return why the fetch has ended without all that was to arrive."""
    for line in reported(system, f"{RUN}/warnings"):
        system.report(line)
    lines = reported(system, f"{RUN}/failed")
    if lines:
        return FailedError(lines[-1], log=lines[:-1])
    return FailedError(
        "the fetch ended before all had come: by `systemctl stop`, a kill, lack of memory, or its time limit",
        f"see `journalctl -u {FETCH_UNIT}`; what has come is kept, and `herd up` goes on from there",
    )


VERBS = {"begin": Verb(FetchInput, begin), "join": Verb(JoinInput, join), "wait": Verb(FetchInput, wait)}
