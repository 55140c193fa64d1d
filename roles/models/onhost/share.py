"""Open this host's store to a peer for a while, for as long as the peer fetches."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llamaherd.layout import FETCH_USER, LAUNCHER, LOCK_WAIT, SHARE_RUN
from llamaherd.onhost.clients import unit_properties
from llamaherd.onhost.document import Secret
from llamaherd.onhost.services import last_lines
from llamaherd.onhost.store import MANIFEST, manifest_lines
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb
from roles.models.onhost import make_for_fetcher, reported, start_unit

UNIT = "llamaherd-share.service"
RUN = str(SHARE_RUN)
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
        return Shared(
            refused="no version that shares models was deployed there; run `herd up` for that rig first",
        )
    files = _find_requested(given, system)
    if not files:
        return Shared()
    with system.lock("share", LOCK_WAIT, "lending models"):
        runs = _runs(system)
        if not runs:
            system.remove(RUN)
            system.folder(RUN.rpartition("/")[0])
            make_for_fetcher(system, RUN, f"{RUN}/secrets")
        _write_token(given, system)
        if not runs:
            _start(given, system)
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
    return unit_properties(system, UNIT, "ActiveState").get("ActiveState") == "active"


def _write_token(given: ShareInput, system: System) -> None:
    """Write the peer's token as the user whose folder it is: root would follow a link that leads elsewhere."""
    as_fetcher = ["setpriv", "--reuid", FETCH_USER, "--regid", FETCH_USER, "--clear-groups"]
    written = system.run([*as_fetcher, "tee", f"{RUN}/secrets/{given.peer}"], text=given.token.text)
    if not written.ok:
        log = [line[:300] for line in written.err.splitlines()[-3:]]
        raise FailedError(f"cannot write a token to {RUN}/secrets; the reason is above", log=log)


def _start(given: ShareInput, system: System) -> None:
    properties = [f"ExecStopPost=+/usr/bin/rm -rf {RUN}", f"ReadWritePaths={RUN}"]
    words = ["share", given.store, RUN, "--bind", _own_address(given.address, system), "--port", str(given.port)]
    started = start_unit(system, UNIT, properties, [*words, "--idle", str(given.idle)], _START_SECONDS)
    if not started.ok:
        raise FailedError("the store cannot be opened; the reason is above", log=last_lines(started, 3))


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
            return next(iter(reported(system, f"{RUN}/failed")), f"it cannot open port {port}")
        system.sleep(_PAUSE)
    return ""


def _listens(port: int, system: System) -> bool:
    tables = [system.read(f"/proc/net/{each}", _MOST_BYTES) or "" for each in ("tcp", "tcp6")]
    rows = [line.split() for text in tables for line in text.splitlines()]
    return any(len(row) > 3 and row[3] == _LISTENS and re.search(rf":{port:04X}$", row[1]) for row in rows)


VERBS = {"share": Verb(ShareInput, share)}
