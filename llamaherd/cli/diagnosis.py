"""The run of `herd doctor`: check this machine, its inventory and the hosts, and print the results and the fixes."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path

import click
import httpx2

from llamaherd import __version__
from llamaherd.bounded import BoundedClient, Bounds, ExcessError
from llamaherd.cli.common import FAILED, UNUSABLE, counted, echo, fitted, print_findings, terminal_columns
from llamaherd.cli.envelope import Envelope, print_envelope
from llamaherd.diagnostics.findings import Finding, InventoryError, UserError
from llamaherd.host.protocol import query_host, query_verb
from llamaherd.host.remote import Remote, RemoteError, as_they_come, on_hosts
from llamaherd.host.ssh import client_version, settings
from llamaherd.inventory.schema import LOCAL, Connect, Rig
from llamaherd.lock.apply import NOT_LOCKED
from llamaherd.lock.hub import endpoint
from llamaherd.onhost.doctor import DoctorFacts
from llamaherd.pipeline.doctor import (
    VERB,
    Diagnosis,
    Examined,
    clock_diagnosis,
    diagnosis_lines,
    doctor_input,
    doctor_request,
    examine_facts,
    examine_host,
    unreached,
)
from llamaherd.pipeline.inspection import INSPECT_SECONDS, program_for
from llamaherd.pipeline.load import examined, inventory_folder, inventory_path, lock_path, plans
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.pipeline.rules import UNKNOWN_RIG
from llamaherd.plan import Plan
from llamaherd.role.role import Role
from llamaherd.text.numbers import show_size

_SECONDS = 20
"""The limit for a host whose plan is unknown."""
_COLOURS = {"ok": "green", "note": "yellow", "wrong": "red"}
_CONTROLLER = "this machine"


def diagnose(inventory: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Check this machine and the hosts, and print the results. End the program if something is wrong."""
    try:
        fleet = Inventory(inventory, names)
    except InventoryError as error:
        print_findings(error.findings)
        sys.exit(UNUSABLE)
    hosts: dict[str, Examined] = {}
    with on_hosts(fleet.rigs, partial(_examine, fleet)) as begun:
        controller = check_controller(fleet)
        if not as_json:
            _print(controller)
        for name, found in as_they_come(begun):
            hosts[name] = found
            if not as_json:
                _print(found)
    examined = [controller, *(hosts[name] for name in fleet.rigs)]
    ok = all(each.ok for each in examined)
    if as_json:
        checks = [asdict(each) for each in controller.diagnoses]
        print_envelope(Envelope(ok, [each.as_json() for each in examined[1:]], {"controller": checks}))
    else:
        _print_summary(examined)
    if not ok:
        sys.exit(FAILED)


def check_controller(fleet: Inventory) -> Examined:
    """Return the diagnoses of this machine."""
    found = [*program_checks(), *key_checks(fleet.rigs), disk_check(fleet.folder), *fleet.diagnoses]
    return Examined(_CONTROLLER, (*found, *hub_check(fleet.rigs)))


def _examine(fleet: Inventory, rig: Rig) -> Examined:
    """Return the diagnoses of a host, by one login. Without a plan, its parts are not inspected."""
    try:
        planned = fleet.planned.get(rig.rig)
        if not planned:
            return examine_without_plan(rig)
        began = time.time()
        document = doctor_request(planned[1], fleet.roles)
        result = query_host(Remote(rig.connect), program_for(fleet.roles), document, INSPECT_SECONDS)
        return examine_host(*planned, fleet.roles, result, (began, time.time()))
    except RemoteError as error:
        return unreached(rig.rig, error)


def examine_without_plan(rig: Rig) -> Examined:
    """Return the diagnoses of a host that need no plan. Raise RemoteError."""
    began = time.time()
    facts = query_verb(Remote(rig.connect), VERB, doctor_input(None), DoctorFacts, _SECONDS)
    return Examined(rig.rig, tuple(examine_facts(rig.rig, facts, (began, time.time()))))


def _print(found: Examined) -> None:
    encoding = (sys.stdout.encoding or "utf-8").lower()
    click.echo(click.style(found.name, bold=True))
    for verdict, line in diagnosis_lines(found, unicode=encoding.startswith("utf")):
        text = line.encode(encoding, "replace").decode(encoding)
        for part in fitted(text, terminal_columns(err=False)):
            click.echo(part if verdict == "ok" else click.style(part, fg=_COLOURS[verdict]))


def _print_summary(examined: Sequence[Examined]) -> None:
    """Print a last line: what is wrong where."""
    wrong = {each.name: sum(one.verdict == "wrong" for one in each.diagnoses) for each in examined if not each.ok}
    if wrong:
        places = ", ".join(f"{name} ({count})" for name, count in wrong.items())
        echo(f"{counted(sum(wrong.values()), 'fault')}: {places}")
    else:
        echo("nothing is wrong")


_AGENT_SECONDS = 5
_HUB = Bounds(body=1 << 20, silence=5.0, total=8.0)
_LEAST_FREE = 100 << 20
"""Free bytes below which results, downloads of headers and temporary files fail soon."""
_MOST_FINDINGS = 5


def program_checks() -> Iterator[Diagnosis]:
    """Yield the versions of Python and of the ssh client, and the state of the user's agent."""
    yield Diagnosis("python", "ok", f"{platform.python_version()}, herd {__version__}")
    try:
        yield Diagnosis("ssh", "ok", client_version())
        settings(Connect(host="localhost"))
    except FileNotFoundError:
        yield Diagnosis("ssh", "wrong", "there is no ssh client on this machine", "install the package openssh-client")
        return
    except subprocess.CalledProcessError as error:
        last = (str(error.stderr or "").strip().splitlines() or ["it printed no reason"])[-1]
        yield Diagnosis("ssh", "wrong", f"the ssh client cannot read its files: {last}", "correct ~/.ssh/config")
        return
    except (OSError, subprocess.SubprocessError) as error:
        yield Diagnosis("ssh", "wrong", f"the ssh client does not run: {error}", "try `ssh -V`")
        return
    yield _agent()


def _agent() -> Diagnosis:
    """Return the state of the agent: only keys with a passphrase need it."""
    need = "an agent is needed only for keys with a passphrase"
    if not os.environ.get("SSH_AUTH_SOCK"):
        return Diagnosis("ssh agent", "ok", f"none; {need}")
    try:
        ended = subprocess.run(["ssh-add", "-l"], capture_output=True, text=True, timeout=_AGENT_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return Diagnosis("ssh agent", "note", "the agent at SSH_AUTH_SOCK does not respond", need)
    if ended.returncode == 0:
        count = len(ended.stdout.splitlines())
        return Diagnosis("ssh agent", "ok", f"{counted(count, 'key')}")
    if ended.returncode == 1:
        return Diagnosis("ssh agent", "ok", f"no keys; {need}")
    return Diagnosis("ssh agent", "note", "the agent at SSH_AUTH_SOCK does not respond", need)


def key_checks(rigs: Mapping[str, Rig]) -> Iterator[Diagnosis]:
    """Yield the declared SSH keys and known-hosts files that the ssh client would refuse."""
    connects = [rig.connect for rig in rigs.values() if rig.connect.host != LOCAL]
    keys = dict.fromkeys(each.key for each in connects if each.key)
    wrong = [found for key in keys if key and (found := _key_fault(key))]
    yield from wrong
    if keys and not wrong:
        yield Diagnosis("ssh keys", "ok", f"{len(keys)} declared, readable for you alone")
    for file in dict.fromkeys(each.known_hosts for each in connects if each.known_hosts):
        if file and not os.access(file, os.R_OK):
            fix = "correct `connect: known_hosts:`, or remove it to use ~/.ssh/known_hosts"
            yield Diagnosis("known hosts", "wrong", f"{file} cannot be read", fix)


def _key_fault(key: Path) -> Diagnosis | None:
    """Return why the ssh client refuses a key; None if it accepts the file."""
    try:
        mode = stat.S_IMODE(key.stat().st_mode)
    except FileNotFoundError:
        return Diagnosis("ssh keys", "wrong", f"there is no SSH key at {key}", "correct `connect: key:` of the rig")
    except OSError as error:
        return Diagnosis("ssh keys", "wrong", f"{key} cannot be read: {error.strerror}", "check its folder's mode")
    if not os.access(key, os.R_OK):
        return Diagnosis("ssh keys", "wrong", f"{key} cannot be read by you", f"`chown {os.getuid()} {key}` as root")
    if key.suffix == ".pub":
        return Diagnosis("ssh keys", "wrong", f"{key} is a public key", f"name the private key, {key.with_suffix('')}")
    if mode & 0o077:
        return Diagnosis("ssh keys", "wrong", f"{key} has mode {mode:o}: other users can read it", f"`chmod 600 {key}`")
    return None


def disk_check(folder: Path) -> Diagnosis:
    """Return the free space of the inventory folder and of temporary files."""
    spaces = {}
    for each in (folder, Path(tempfile.gettempdir())):
        with suppress(OSError):
            spaces[str(each)] = shutil.disk_usage(each).free
    full = {each: free for each, free in spaces.items() if free < _LEAST_FREE}
    shown = ", ".join(f"{each} {show_size(free)}" for each, free in (full or spaces).items())
    if full:
        return Diagnosis("disk", "wrong", f"nearly full, free: {shown}", "free some space on this machine")
    return Diagnosis("disk", "ok", f"free: {shown}")


class Inventory:
    """The inventory as far as it can be read: its plans if it has no mistakes, and its rigs otherwise."""

    def __init__(self, named: Path | None, names: tuple[str, ...]) -> None:
        """Read the inventory. Raise InventoryError if a name is no rig."""
        self.path = inventory_path(named)
        self.roles: tuple[Role, ...] = ()
        self.planned: dict[str, tuple[Rig, Plan]] = {}
        self.rigs: Mapping[str, Rig] = {}
        self.diagnoses: tuple[Diagnosis, ...] = ()
        warnings: list[Finding] = []
        try:
            self.roles = all_roles(self.path)
            self.planned = plans(self.path, self.roles, names, doubtful=warnings.extend)
            self.rigs = {name: rig for name, (rig, _) in self.planned.items()}
            self.diagnoses = tuple(_sound(self.path, self.planned, warnings))
        except InventoryError as error:
            if any(each.code == UNKNOWN_RIG.code for each in error.findings):
                raise
            with suppress(InventoryError):
                fleet, _ = examined(self.path)
                self.rigs = {name: rig for name, rig in fleet.rigs.items() if name in names or not names}
            self.diagnoses = tuple(_faults(error.findings))
        except UserError as error:
            self.diagnoses = (Diagnosis("inventory", "wrong", error.message, error.help),)

    @property
    def folder(self) -> Path:
        """Return the inventory folder, or its nearest parent that exists."""
        folder = inventory_folder(self.path).absolute()
        return next(each for each in (folder, *folder.parents) if each.exists())


def _sound(path: Path, planned: Mapping[str, object], warnings: Sequence[Finding]) -> Iterator[Diagnosis]:
    """Yield the state of an inventory without mistakes, and of its lock."""
    command = f"herd -i {path} check"
    rigs = f"{path}, {counted(len(planned), 'rig')}"
    if warnings:
        yield Diagnosis("inventory", "note", f"{rigs}, {counted(len(warnings), 'warning')}", f"`{command}` shows them")
    else:
        yield Diagnosis("inventory", "ok", rigs)
    file = lock_path(path)
    yield Diagnosis("herd.lock", "ok", "up to date" if file.exists() else "not needed")


def _faults(findings: Sequence[Finding]) -> Iterator[Diagnosis]:
    """Yield the errors of an inventory or its lock."""
    errors = [each for each in findings if each.severity == "error"]
    for each in errors[:_MOST_FINDINGS]:
        what = "herd.lock" if each.code == NOT_LOCKED.code or each.place.file.suffix == ".lock" else "inventory"
        yield Diagnosis(what, "wrong", f"{each.place}: {each.code}: {each.message}", each.help)
    if (left := len(errors) - _MOST_FINDINGS) > 0:
        yield Diagnosis("inventory", "wrong", f"{left} more errors", "`herd check` shows all")


def hub_check(rigs: Mapping[str, Rig]) -> Iterator[Diagnosis]:
    """Yield whether the hub can be reached, and whether this machine's clock agrees with it. Bounded in time."""
    if not any(model.hf for rig in rigs.values() for model in rig.models.values()):
        return
    network = "check the network, any proxy (HTTPS_PROXY) and HF_ENDPOINT; servers that run need no hub"
    began = time.time()
    try:
        url = endpoint()
        with BoundedClient(_HUB) as client:
            response = client.head(url)
    except UserError as error:
        yield Diagnosis("hub", "wrong", error.message, error.help)
        return
    except ExcessError as error:
        yield Diagnosis("hub", "wrong", f"{url} {error}", network)
        return
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        yield Diagnosis("hub", "wrong", f"{url} cannot be reached ({type(error).__name__})", network)
        return
    yield Diagnosis("hub", "ok", f"{url} responds")
    with suppress(ValueError, TypeError):
        date = parsedate_to_datetime(response.headers["Date"]).timestamp()
        yield clock_diagnosis(date, (began - 1, time.time()), "set this machine's clock: `timedatectl set-ntp true`")
