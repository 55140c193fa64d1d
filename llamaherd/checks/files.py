"""Files of the controller that an inventory names: missing files, and keys that other users can read."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path

from llamaherd.checks.context import FleetContext
from llamaherd.checks.gateway import SAME_KEY
from llamaherd.diagnostics.findings import Finding, Place, Rule, Severity
from llamaherd.engines.flags.access import GUESSED_KEY, is_placeholder
from llamaherd.inventory.api_keys import UnreadableKeyError, read_key
from llamaherd.inventory.authority import KEY as ROOT_KEY
from llamaherd.inventory.authority import ROOT
from llamaherd.inventory.schema import Rig, Secret
from llamaherd.inventory.schema.fleet_file import Tls
from llamaherd.inventory.schema.keys import value_at
from llamaherd.inventory.yaml_file import Document

WARNING: Severity = "warning"


MISSING_FILE = Rule(
    "LH024",
    "A file of this machine does not exist.",
    why="""
    This may be a source archive, a model, an API key, the SSH key, or the host's key.

    Commands that touch no host, and `herd verify`, work without the file: it is a warning. For `herd up` and pyinfra it
    is an error. Only the SSH key and the host's key stay warnings: without them one host cannot be reached, and the
    rest is deployed.

    [Keys of servers behind a gateway](../gateway.md#servers-own-keys) are made by `herd up` where the inventory names
    none. Such a file is reported as missing if a host has a key already that was made on another machine. If the file
    cannot be made because a host does not respond, it is a warning.
    """,
    example="""
    models:
      small: {file: models/small.gguf, sha256: d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26}
    """,
    fix="correct the path, or fetch the file. A relative path starts at the folder of the YAML file that names it.",
    sometimes=("warning",),
)


def absent_files(rig: Rig, document: Document, severity: Severity) -> Iterator[Finding]:
    """Report files that do not exist. No other check reads the controller's disk."""
    named: list[tuple[tuple[str | int, ...], Path | None]] = [
        *(
            (("engines", name, "source", "archive"), engine.source.local_archive)
            for name, engine in rig.engines.items()
            if engine.source
        ),
        *((("models", name, "file"), model.file) for name, model in rig.models.items()),
        *((("instances", n, "api_key", "file"), i.api_key.file) for n, i in rig.instances.items() if i.api_key),
    ]
    # Without these one host cannot be reached, which is reported when that host is deployed; the rest can be.
    reaching: list[tuple[tuple[str | int, ...], Path | None]] = [
        (("connect", "key"), rig.connect.key),
        (("connect", "known_hosts"), rig.connect.known_hosts),
    ]
    for path, file, wrong in (*((*each, severity) for each in named), *((*each, WARNING) for each in reaching)):
        if file is not None and (kind := _kind(file)) != stat.S_IFREG:
            given = str(value_at(document.data, path) or "")
            relative = "" if given.startswith(("/", "~")) else "paths are relative to this YAML file; "
            help_ = _MADE.get(str(path[-2]), f"{relative}check the spelling, or fetch it first")
            what = f"{file} is a folder" if kind == stat.S_IFDIR else f"there is no file {file}"
            yield MISSING_FILE.at(document.value(path), what, help_, wrong)


def guessed_keys(rig: Rig, document: Document) -> Iterator[Finding]:
    """Report placeholders as keys of servers that other machines reach (LH226), among keys that can be read."""
    for name, instance in rig.instances.items():
        if instance.api_key and not instance.loopback and _is_guessed(instance.api_key):
            message = f"the key of `{name}` is a placeholder that everybody tries, and other machines reach the server"
            help_ = "write another key there, such as the output of `openssl rand -hex 32`"
            yield GUESSED_KEY.at(document.value(("instances", name, "api_key")), message, help_, WARNING)


def _is_guessed(secret: Secret) -> bool:
    try:
        return is_placeholder(read_key(secret))
    except UnreadableKeyError:
        return False


_MADE = {"api_key": "check the spelling, or make a key and write it there: `openssl rand -hex 32`"}
"""The other fix for a missing file, by the key that names it."""


def _kind(file: Path) -> int:
    """Return the kind of a file, as in its mode; 0 without one."""
    try:
        return stat.S_IFMT(file.stat().st_mode)
    except (OSError, ValueError):
        return 0


Named = tuple[tuple[str | int, ...], Path]
"""A file, and where the gateway names it."""

OPEN_KEY = Rule(
    "LH315",
    "Other users of this machine may read a key.",
    why="The file of a key has a mode that lets its group or all users read it.",
    example="""
    $ herd check
    /home/tom/fleet/fleet.yaml:5:17: warning LH315: other users of this machine may read keys/tom (mode 644)
      help: run `chmod 600 keys/tom`
    """,
    language="console",
    fix="give the file the mode 600.",
    severity="warning",
)


def find_unsafe_files(subject: FleetContext, absent: Severity) -> Iterator[Finding]:
    """Report missing files with the severity `absent`, keys that other users may read, and keys that users share."""
    for gateway in subject.gateways:
        private: list[Named] = [
            (("users", name, "key", "file"), user.key.file) for name, user in gateway.users.items() if user.key.file
        ]
        files = list(private)
        private += _private(gateway.tls)
        files += [*_private(gateway.tls), *_public(gateway.tls)]
        for path, file in files:
            if _mode(file) is None:
                help_ = f"make one: `herd users rotate {path[1]}`" if path[0] == "users" else "check the spelling"
                help_ = "make it: `herd gateway ca`" if path == ("tls", "ca") else help_
                yield MISSING_FILE.at(subject.value(*path), f"there is no file {file}", help_, absent)
        for path, file in private:
            yield from _open_key(file, subject.value(*path))
        for name, user in gateway.users.items():
            if _is_guessed(user.key):
                message = f"the key of user `{name}` is a placeholder that everybody tries"
                help_ = f"run `herd users rotate {name}`"
                yield GUESSED_KEY.at(subject.value("users", name, "key"), message, help_, WARNING)
    yield from _of_servers(subject)
    yield from _of_alerts(subject, absent)
    yield from _twice(subject)


def _private(tls: Tls | None) -> list[Named]:
    """Return the private keys of a certificate."""
    if tls and tls.ca:
        return [(("tls", "ca"), tls.ca / ROOT_KEY)]
    return [(("tls", "key"), tls.key)] if tls and tls.key else []


def _public(tls: Tls | None) -> list[Named]:
    """Return the certificates."""
    if tls and tls.ca:
        return [(("tls", "ca"), tls.ca / ROOT)]
    return [(("tls", "certificate"), tls.certificate)] if tls and tls.certificate else []


def _of_servers(subject: FleetContext) -> Iterator[Finding]:
    """Report keys of servers that other users may read. `herd up` makes a missing one."""
    places = {each.rig.rig: each.place for each in reversed([*subject.served()])}
    for key in subject.keys:
        yield from _open_key(key.file, places[next(iter(key.servers))])


def _of_alerts(subject: FleetContext, absent: Severity) -> Iterator[Finding]:
    """Report missing or readable files of keys that alerts are sent with."""
    for declared in subject.monitoring:
        for way, key in declared.alerts.keys.items():
            if key.file is None:
                continue
            place = subject.document.value(("monitoring", "alerts", way, "key", "file"))
            if _mode(key.file) is None:
                help_ = "put the password or token there, and nothing else, with mode 600"
                yield MISSING_FILE.at(place, f"there is no file {key.file}", help_, absent)
            yield from _open_key(key.file, place)


def _open_key(file: Path, place: Place) -> Iterator[Finding]:
    """Report a key that other users may read."""
    if (mode := _mode(file)) is not None and mode & 0o044:
        message = f"other users of this machine may read {file} (mode {mode:o})"
        yield OPEN_KEY.at(place, message, f"run `chmod 600 {file}`")


def _twice(subject: FleetContext) -> Iterator[Finding]:
    """Report users whose keys are equal in two files."""
    for gateway in subject.gateways:
        owners: dict[bytes, str] = {}
        for name, user in gateway.users.items():
            try:
                digest = hashlib.sha256(read_key(user.key).encode()).digest()
            except UnreadableKeyError:
                continue
            owner = owners.setdefault(digest, name)
            if owner != name and gateway.users[owner].key != user.key:
                message = f"users `{name}` and `{owner}` have the same key"
                help_ = f"give each a key of their own: `herd users rotate {name}`"
                yield SAME_KEY.at(subject.value("users", name, "key"), message, help_)


def _mode(file: Path) -> int | None:
    try:
        return file.stat().st_mode & 0o777 if file.is_file() else None
    except OSError:
        return None
