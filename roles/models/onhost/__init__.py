"""Fetch models, and share the store with a peer, in units that outlive the connection."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from llamaherd.layout import FETCH_RUN, FETCH_UNIT, FETCH_USER, LAUNCHER, LOCK_WAIT, SHARE_RUN
from llamaherd.onhost.clients import systemctl, unit_properties, unit_runs
from llamaherd.onhost.document import Secret
from llamaherd.onhost.files import cannot_write
from llamaherd.onhost.reporting import report_every
from llamaherd.onhost.services import last_lines, require_success
from llamaherd.onhost.store import MANIFEST, is_vouched, manifest_lines
from llamaherd.onhost.system import Ended, FailedError, System
from llamaherd.onhost.verbs import Verb

_SANDBOX = (
    *("Type=exec", f"User={FETCH_USER}", "Nice=10"),
    *("ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "PrivateDevices=yes"),
    *("NoNewPrivileges=yes", "CapabilityBoundingSet=", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX"),
    *("ProtectKernelModules=yes", "ProtectKernelTunables=yes", "ProtectControlGroups=yes", "RestrictNamespaces=yes"),
    *("LockPersonality=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes", "SystemCallArchitectures=native"),
    *("SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM"),
)


def start_unit(system: System, unit: str, properties: Iterable[str], words: Iterable[str], seconds: float) -> Ended:
    """Start the fetcher's program in a unit of its own, and return how that ended: also of what it starts first."""
    systemctl(system, "reset-failed", unit)
    options = [word for each in (*_SANDBOX, *properties) for word in ("-p", each)]
    command = ["systemd-run", "-q", f"--unit={unit}", "--collect", *options, LAUNCHER, *words]
    return system.run(command, seconds=seconds)


def make_for_fetcher(system: System, *folders: str) -> None:
    """Make folders that belong to the fetching user alone. Raise FailedError."""
    owner = ["-o", FETCH_USER, "-g", FETCH_USER]
    made = system.run(["install", "-d", "-m", "0700", *owner, *folders])
    require_success(made, f"cannot create {folders[0]}; the reason is above")


def is_plain_file(path: str, system: System) -> bool:
    """Return whether a file is at a path, and no link to one."""
    found = system.entry(path)
    return found is not None and found.kind == "file"


def make_folder(system: System, path: str) -> None:
    """Make a folder with those above it, where nothing is. Raise OSError."""
    if system.entry(path) is None:
        system.folder(path)


def reported(system: System, path: str) -> list[str]:
    """Return the lines of a file that the fetcher has written. The folder is that user's: no link is followed."""
    return (system.read(path) or "").splitlines() if is_plain_file(path, system) else []


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
    with _locked(system, "beginning to fetch"):
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
    with _locked(system, "waiting for a fetch"):
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


def _locked(system: System, purpose: str) -> AbstractContextManager[bool]:
    """Hold the lock of fetches: two runs at once begin one."""
    return system.lock("fetch", LOCK_WAIT, purpose)


def _all_here(given: FetchInput, system: System) -> bool:
    """Return whether all has arrived or is in the store. What arrives has another name until its hash is right."""
    return all(
        is_plain_file(f"{_incoming(given)}/{each.sha256}", system)
        or is_vouched(system, each.folder, each.name, each.sha256)
        for each in given.wanted
    )


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
        f"ExecStartPre=+/usr/bin/nsenter --mount=/proc/1/ns/mnt {LAUNCHER} adopt {JOB} {RUN}",
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
    require_success(owned, f"cannot give {RUN} to {FETCH_USER}; the reason is above")


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


SHARE_UNIT = "llamaherd-share.service"
SHARED = str(SHARE_RUN)
_TRIES, _PAUSE = 100, 0.1
_START_SECONDS = 60
_MOST_BYTES = 16 << 20
"""Bytes of a table of connections."""
_LISTENS = "0A"


@dataclass(frozen=True)
class ShareInput:
    """The files that a peer needs, and its address."""

    store: str
    wanted: tuple[str, ...]
    """The sha256s of the files that it lacks."""
    peer: str
    """The name of the file with its token: one for each peer."""
    token: Secret
    address: str
    """The address of this host that peers use."""
    port: int
    idle: int
    """Seconds without a request after which the store is closed again."""


@dataclass(frozen=True)
class Shared:
    """The requested files that are here, or the reason why the store cannot be opened."""

    files: tuple[str, ...] = ()
    refused: str = ""


def share(given: ShareInput, system: System) -> Shared:
    """Open the store, if it has any of the requested files. Raise FailedError."""
    if not system.entry(LAUNCHER):
        return Shared(refused="no version that shares models was deployed there; run `herd up` for that rig first")
    files = _find_requested(given, system)
    if not files:
        return Shared()
    with system.lock("share", LOCK_WAIT, "sharing models"):
        runs = _runs(system)
        if not runs:
            system.remove(SHARED)
            system.folder(SHARED.rpartition("/")[0])
            make_for_fetcher(system, SHARED, f"{SHARED}/secrets")
        _write_token(given, system)
        if not runs:
            _start_sharing(given, system)
            refused = _wait_for_port(given.port, system)
            if refused:
                return Shared(refused=refused)
    return Shared(files)


def _find_requested(given: ShareInput, system: System) -> tuple[str, ...]:
    """Return the requested files that a manifest of the store lists."""
    folders = [path.rpartition("/")[0] for path, found in system.tree(given.store) if path.endswith(f"/{MANIFEST}")]
    lines = [line.split("\t") for folder in folders for line in manifest_lines(system, folder) or ()]
    here = {fields[2] for fields in lines if len(fields) > 2}
    return tuple(sorted(here & {*given.wanted}))


def _runs(system: System) -> bool:
    return unit_properties(system, SHARE_UNIT, "ActiveState").get("ActiveState") == "active"


def _write_token(given: ShareInput, system: System) -> None:
    """Write the peer's token as the user whose folder it is: root would follow a link that leads elsewhere."""
    as_fetcher = ["setpriv", "--reuid", FETCH_USER, "--regid", FETCH_USER, "--clear-groups"]
    written = system.run([*as_fetcher, "tee", f"{SHARED}/secrets/{given.peer}"], text=given.token.text)
    if not written.ok:
        log = [line[:300] for line in written.err.splitlines()[-3:]]
        raise FailedError(f"cannot write a token to {SHARED}/secrets; the reason is above", log=log)


def _start_sharing(given: ShareInput, system: System) -> None:
    properties = [f"ExecStopPost=+/usr/bin/rm -rf {SHARED}", f"ReadWritePaths={SHARED}"]
    words = ["share", given.store, SHARED, "--bind", _own_address(given.address, system), "--port", str(given.port)]
    started = start_unit(system, SHARE_UNIT, properties, [*words, "--idle", str(given.idle)], _START_SECONDS)
    require_success(started, "the store cannot be opened; the reason is above")


def _own_address(address: str, system: System) -> str:
    """Return the address that peers use, where it is one of this host's; behind a router it is not."""
    known = system.run(["getent", "ahosts", address]).out.split("\n")
    own = [*system.run(["hostname", "-I"]).out.split(), "127.0.0.1", "::1"]
    found = {line.split()[0] for line in known if line.strip()}
    return next((each for each in own if each in found), "0.0.0.0")


def _wait_for_port(port: int, system: System) -> str:
    """Wait until something listens on the port. Return why nothing does; empty where it does, or may yet."""
    for _ in range(_TRIES):
        if _listens(port, system):
            return ""
        if not _runs(system):
            return next(iter(reported(system, f"{SHARED}/failed")), f"it cannot open port {port}")
        system.sleep(_PAUSE)
    return ""


def _listens(port: int, system: System) -> bool:
    tables = [system.read(f"/proc/net/{each}", _MOST_BYTES) or "" for each in ("tcp", "tcp6")]
    rows = [line.split() for text in tables for line in text.splitlines()]
    return any(len(row) > 3 and row[3] == _LISTENS and re.search(rf":{port:04X}$", row[1]) for row in rows)


VERBS = {
    "begin": Verb(FetchInput, begin),
    "join": Verb(JoinInput, join),
    "wait": Verb(FetchInput, wait),
    "share": Verb(ShareInput, share),
}
