"""The run of `herd support-bundle`: gather texts of this machine and the hosts, redact them, write one file."""

from __future__ import annotations

import getpass
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from llamaherd import __version__
from llamaherd.cli.common import FAILED, UNUSABLE, counted, echo, fail, print_findings
from llamaherd.cli.diagnosis import Inventory, check_controller, examine_without_plan
from llamaherd.diagnostics.findings import InventoryError, UserError
from llamaherd.host.protocol import query_host
from llamaherd.host.remote import Remote, RemoteError, query_all
from llamaherd.inventory.api_keys import KEYS
from llamaherd.inventory.file_writer import write_atomically
from llamaherd.inventory.schema import Rig
from llamaherd.inventory.yaml_file import read_yaml
from llamaherd.pipeline.bundle import (
    SECRET_NAME,
    Redactor,
    bundle_request,
    inventory_secrets,
    inventory_text,
    logs_of,
    names_of,
    packed,
    plan_text,
    secret_places,
    without_logs,
)
from llamaherd.pipeline.discovery import SUFFIXES
from llamaherd.pipeline.doctor import Examined, diagnosis_lines, examine_host, unreached
from llamaherd.pipeline.inspection import INSPECT_SECONDS, program_for
from llamaherd.pipeline.load import inventory_folder, lock_path
from llamaherd.text.numbers import show_size
from llamaherd.text.textfile import UnreadableError, read_bytes

_LOG_SECONDS = 30
"""Seconds for the logs of a host, besides its inspection."""
_MOST_SECRET = 64 << 10
_MOST_FILES = 200
_MOST_TEXT = 16 << 20


def write_bundle(inventory: Path | None, names: tuple[str, ...], output: Path, *, keep_names: bool) -> None:
    """Write the bundle, and print its content. End the program if a host could not be inspected."""
    try:
        fleet = Inventory(inventory, names)
    except InventoryError as error:
        print_findings(error.findings)
        sys.exit(UNUSABLE)
    echo(f"--> Inspecting {counted(len(fleet.rigs), 'host')}...", err=True)
    hosts = query_all(fleet.rigs, partial(_inspect, fleet))
    documents = _documents(fleet)
    files = {
        "versions.txt": _versions(),
        "doctor.txt": _doctor(fleet, hosts),
        **dict(_inventory_files(fleet, documents)),
        **{path: text for name, host in hosts.items() for path, text in _host_files(fleet, name, host)},
    }
    redactor = _redactor(fleet, hosts, documents, files, keep_names=keep_names)
    clean = {redactor.redact(path): redactor.redact(text, log=path.endswith(".log")) for path, text in files.items()}
    try:
        write_atomically(output, packed(clean), 0o600)
    except OSError as error:
        fail(UserError(f"cannot write {output}: {error.strerror}", "check the folder, its mode and its disk"), UNUSABLE)
    except UserError as error:
        fail(error, UNUSABLE)
    _print_content(output, clean, keep_names)
    if any(isinstance(host, RemoteError) for host in hosts.values()):
        sys.exit(FAILED)


Host = Examined | RemoteError | tuple[object, Examined]
"""A host without a plan, one that could not be inspected, or its inspection and its diagnoses."""


def _inspect(fleet: Inventory, rig: Rig) -> Host:
    """Return the inspection of a host and its diagnoses, by one login."""
    planned = fleet.planned.get(rig.rig)
    try:
        if planned is None:
            return examine_without_plan(rig)
        began = time.time()
        document = bundle_request(planned[1], fleet.roles)
        seconds = INSPECT_SECONDS + _LOG_SECONDS
        result = query_host(Remote(rig.connect), program_for(fleet.roles), document, seconds)
        return result, examine_host(*planned, fleet.roles, result, (began, time.time()))
    except RemoteError as error:
        return error


def _versions() -> str:
    """Return the versions of herd, Python, the system and the packages that herd uses."""
    lines = [f"herd {__version__}", f"Python {platform.python_version()}", platform.platform()]
    for requirement in requires("llamaherd") or ():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if "extra ==" not in requirement:
            with suppress(PackageNotFoundError):
                lines.append(f"{name} {version(name)}")
    return "\n".join(lines) + "\n"


def _doctor(fleet: Inventory, hosts: Mapping[str, Host]) -> str:
    """Return what `herd doctor` prints."""
    lines = []
    for found in (check_controller(fleet), *(_examined(name, host) for name, host in hosts.items())):
        lines += [found.name, *(line for _, line in diagnosis_lines(found, unicode=True))]
    return "\n".join(lines) + "\n"


def _examined(name: str, host: Host) -> Examined:
    if isinstance(host, RemoteError):
        return unreached(name, host)
    return host if isinstance(host, Examined) else host[1]


def _documents(fleet: Inventory) -> dict[str, object]:
    """Return the data of the inventory's YAML files by name; None for a file that cannot be read."""
    folder = inventory_folder(fleet.path)
    found: dict[str, object] = {}
    for file in sorted(folder.iterdir())[:_MOST_FILES] if folder.is_dir() else []:
        if file.suffix in SUFFIXES:
            try:
                found[file.name] = read_yaml(file).data
            except InventoryError:
                found[file.name] = None
    return found


def _inventory_files(fleet: Inventory, documents: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, data in documents.items():
        yield f"inventory/{name}", "this file is not valid YAML\n" if data is None else inventory_text(data)
    with suppress(UnreadableError):
        yield "inventory/herd.lock", read_bytes(lock_path(fleet.path), _MOST_TEXT).decode("utf-8", "replace")


def _host_files(fleet: Inventory, name: str, host: Host) -> Iterator[tuple[str, str]]:
    """Yield the files of a host."""
    if planned := fleet.planned.get(name):
        yield f"rigs/{name}/plan.json", plan_text(planned[1])
    if isinstance(host, RemoteError):
        yield f"rigs/{name}/error.txt", f"{host}\n"
    elif not isinstance(host, Examined):
        yield f"rigs/{name}/inspection.json", without_logs(host[0])
        for log, text in logs_of(host[0]).texts.items():
            yield f"rigs/{name}/logs/{log}.log", text


def _redactor(
    fleet: Inventory,
    hosts: Mapping[str, Host],
    documents: Mapping[str, object],
    files: Mapping[str, str],
    *,
    keep_names: bool,
) -> Redactor:
    """Return what replaces secrets and names in these files."""
    known = "\n".join(text for path, text in files.items() if path.endswith((".yaml", "herd.lock", "plan.json")))
    results = [host[0] for host in hosts.values() if isinstance(host, tuple)]
    here = {"host": socket.gethostname(), "user": _user()}
    users = [name for data in documents.values() for name in _gateway_users(data)]
    names = None if keep_names else names_of(fleet.rigs.values(), here, results, users)
    return Redactor(_secrets(fleet, documents), names, known)


def _user() -> str:
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return ""


def _gateway_users(data: object) -> Iterator[str]:
    """Yield the names of the gateway's users in the data of `fleet.yaml`."""
    gateway = data.get("gateway") if isinstance(data, dict) else None
    users = gateway.get("users") if isinstance(gateway, dict) else None
    yield from map(str, users if isinstance(users, dict) else ())


def _secrets(fleet: Inventory, documents: Mapping[str, object]) -> Iterator[str]:
    """Yield all secrets that this machine has for the fleet: from files, variables and the inventory itself."""
    folder = inventory_folder(fleet.path)
    yield from (value for name, value in os.environ.items() if SECRET_NAME.search(name) and not value.startswith("/"))
    places = {place for data in documents.values() for place in secret_places(data)}
    for data in documents.values():
        yield from inventory_secrets(data)
    for kind, place in places:
        if kind == "env":
            yield os.environ.get(place, "")
        else:
            yield from _lines(folder / Path(place).expanduser())
    for file in sorted((folder / KEYS).parent.rglob("*"))[:_MOST_FILES]:
        yield from _lines(file)


def _lines(file: Path) -> Iterator[str]:
    """Yield the lines of a small file of text, such as a key, and the values of variables in it."""
    with suppress(UnreadableError, UnicodeDecodeError, OSError):
        if file.is_file() and file.stat().st_size <= _MOST_SECRET:
            for line in map(str.strip, read_bytes(file, _MOST_SECRET).decode().splitlines()):
                yield line
                yield line.partition("=")[2].strip("\"'")  # of a file with variables


def _print_content(output: Path, files: Mapping[str, str], keep_names: bool) -> None:
    """Print what was written."""
    echo(f"{output}: {counted(len(files), 'file')}, readable for you alone")
    for path, text in files.items():
        echo(f"  {path}  {show_size(len(text))}")
    names = "names and addresses are in it" if keep_names else "names and addresses are placeholders"
    echo(f"secrets are left out, {names}; nothing was sent: read it before you share it", fit=True)
