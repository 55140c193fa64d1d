"""The content of a support bundle: what explains a fault, without secrets, and by default without names."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import yaml

from llamaherd.diagnostics.findings import UserError
from llamaherd.host.program import request
from llamaherd.inventory.schema import LOCAL, Rig
from llamaherd.onhost.doctor import DoctorFacts
from llamaherd.onhost.document import DocumentError, decode, dump
from llamaherd.onhost.inspection import Inspected
from llamaherd.onhost.support import Logs, LogsInput
from llamaherd.pipeline.doctor import VERB as DOCTOR
from llamaherd.pipeline.doctor import doctor_input
from llamaherd.pipeline.inspection import inspect_input
from llamaherd.pipeline.release import release_of
from llamaherd.plan import Plan
from llamaherd.role.role import Role
from llamaherd.text.redaction import REDACTED, SECRET_FIELD, SECRET_NAME

LOGS = "llamaherd.support.read"

MOST_FILE = 4 << 20
"""Characters of one file. A lock with the headers of many models is longer, and is cut."""

_MOST_DEPTH = 50
_ORDINARY = ("root", "localhost", "llama", "user", "admin", LOCAL)
"""Names of users and hosts that identify no person and no machine."""
_ENVIRONMENT = "environment"
_PLACES = ("file", "env")
"""Keys of a secret that contain its place."""


def bundle_request(plan: Plan, roles: Sequence[Role]) -> bytes:
    """Return the document of one inspection of a host: its state, what a diagnosis needs, and logs."""
    given = inspect_input(plan, roles)
    units = tuple(each.service for each in plan.of("systemd"))
    containers = tuple(each.service for each in plan.of("compose"))
    more = {DOCTOR: doctor_input(plan), LOGS: LogsInput(units, containers)}
    return request("inspect", replace(given, parts={**given.parts, **more}))


def logs_of(result: object) -> Logs:
    """Return the logs from an inspection; none if the program cannot have returned them."""
    try:
        return decode(Logs, decode(Inspected, result).parts.get(LOGS))
    except DocumentError:
        return Logs("")


def without_logs(result: object) -> str:
    """Return an inspection as JSON. Logs are files of their own."""
    if isinstance(result, dict) and isinstance(result.get("parts"), dict):
        result = {**result, "parts": {name: part for name, part in result["parts"].items() if name != LOGS}}
    return dump(result)


def inventory_text(data: object) -> str:
    """Return the data of an inventory file as YAML, without comments and without values of secrets."""
    return yaml.safe_dump(_masked(data, [], "", 0), sort_keys=False, allow_unicode=True, width=10**6)


def inventory_secrets(data: object) -> tuple[str, ...]:
    """Return the values in an inventory that `inventory_text` leaves out."""
    found: list[str] = []
    _masked(data, found, "", 0)
    return tuple(found)


def _masked(value: object, found: list[str], name: str, depth: int, *, secret: bool = False) -> object:
    """Return a value of an inventory. A secret has its place (`file` or `env`) instead of its value.

    Add each secret to `found`. `name` is the name of the value, or of the list that it is in.
    """
    if depth > _MOST_DEPTH:
        return REDACTED
    if isinstance(value, dict):
        return {
            key: _masked(each, found, str(key), depth + 1, secret=_is_secret(str(key), name, each, within=secret))
            for key, each in value.items()
        }
    if isinstance(value, list):
        flags = ["", *(str(each) for each in value)]
        secrets = [secret or (flag.startswith("--") and "=" not in flag and _names_secret(flag)) for flag in flags]
        return [_masked(each, found, name, depth + 1, secret=one) for one, each in zip(secrets, value, strict=False)]
    variable, assigned, text = str(value).partition("=")
    if name == _ENVIRONMENT and assigned and SECRET_NAME.search(variable):
        found.append(text)
        return f"{variable}={REDACTED}"
    if not secret or value is None or isinstance(value, bool):
        return value
    found.append(str(value))
    return REDACTED


def _is_secret(key: str, parent: str, value: object, *, within: bool) -> bool:
    """Return whether the value of a key is a secret, by its name and by the mapping that it is in."""
    if parent == _ENVIRONMENT:
        return SECRET_NAME.search(key) is not None
    if key == "key":
        return not isinstance(value, str) or "/" not in value
    return _names_secret(key) or (within and key not in _PLACES)


def _names_secret(name: str) -> bool:
    """Return whether a key or a flag is set to a secret, and not to its place."""
    return SECRET_FIELD.search(name) is not None and not name.endswith(("file", "path", "env"))


def secret_places(data: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the places of secrets in an inventory: `file` or `env`, and the path or the name of the variable."""
    if depth > _MOST_DEPTH:
        return
    for each in data if isinstance(data, list) else data.values() if isinstance(data, dict) else ():
        yield from secret_places(each, depth + 1)
    if isinstance(data, dict):
        for name in ("file", "env"):
            if isinstance(data.get(name), str):
                yield name, data[name]
        if isinstance(data.get("key"), str):
            yield "file", data["key"]


def names_of(
    rigs: Iterable[Rig], here: Mapping[str, str], results: Iterable[object], users: Iterable[str]
) -> dict[str, str]:
    """Return placeholders of names: of hosts, users of hosts, users of the gateway, and of this machine.

    `here` are the host and the user of this machine. Names such as `root` have none.
    """
    found: dict[str, str] = {}
    counts: dict[str, int] = {}

    def add(kind: str, name: str | None) -> None:
        if name and len(name) > 1 and name.lower() not in _ORDINARY and not name.isdecimal() and name not in found:
            counts[kind] = counts.get(kind, 0) + 1
            found[name] = f"{kind}-{counts[kind]}"

    for rig in rigs:
        add("host", rig.connect.host)
        add("user", rig.connect.user)
    for result in results:
        logs = logs_of(result)
        add("host", logs.hostname)
        for user, machine in _origins(result):
            add("user", user)
            add("host", machine)
    add("host", here.get("host"))
    add("user", here.get("user"))
    for user in users:
        add("person", user)
    return found


def _origins(result: object) -> Iterator[tuple[str, str]]:
    """Yield the user and the machine of the last run on a host."""
    try:
        facts = decode(DoctorFacts, decode(Inspected, result).parts.get(DOCTOR))
    except DocumentError:
        return
    release = release_of(facts.release.text) if facts.release else None
    if release:
        yield release.origin.user, release.origin.machine


def plan_text(plan: Plan) -> str:
    """Return a plan as JSON. Programs that llamaherd brings are named by their hash."""
    data = plan.model_dump(mode="json")
    for file in data["files"]:
        file["text"] = f"sha256 {hashlib.sha256(file['text'].encode()).hexdigest()}"
    return json.dumps(data, indent=1)


def packed(files: Mapping[str, str]) -> bytes:
    """Return a .tar.gz of texts by path. It contains no user and no time of this machine. Raise UserError."""
    if not files:
        raise UserError("the bundle would be empty", "name an inventory with -i")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path, text in files.items():
            data = text[:MOST_FILE].encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"herd-support/{path}")
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(content.getvalue(), mtime=0)
