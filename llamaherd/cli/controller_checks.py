"""Check the machine on which `herd` runs, for `herd doctor`: programs, keys, disk, inventory, lock and hub."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx2

from llamaherd import __version__
from llamaherd.bounded import BoundedClient, Bounds, ExcessError
from llamaherd.diagnostics.findings import Finding, InventoryError, UserError
from llamaherd.host.ssh import client_version, settings
from llamaherd.inventory.schema import LOCAL, Connect, Rig
from llamaherd.lock.hub import endpoint
from llamaherd.lock.stale import NOT_LOCKED
from llamaherd.pipeline.doctor import Diagnosis, clock_diagnosis
from llamaherd.pipeline.load import examined, inventory_folder, inventory_path, lock_path, plans
from llamaherd.pipeline.own_roles import all_roles
from llamaherd.pipeline.rules import UNKNOWN_RIG
from llamaherd.plan import Plan
from llamaherd.role.role import Role
from llamaherd.text.numbers import show_size

_SECONDS = 5
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
        ended = subprocess.run(["ssh-add", "-l"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return Diagnosis("ssh agent", "note", "the agent at SSH_AUTH_SOCK does not respond", need)
    if ended.returncode == 0:
        count = len(ended.stdout.splitlines())
        return Diagnosis("ssh agent", "ok", f"{count} key{'s' if count != 1 else ''}")
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
    rigs = f"{path}, {len(planned)} rig{'s' if len(planned) != 1 else ''}"
    if warnings:
        count = f"{len(warnings)} warning{'s' if len(warnings) != 1 else ''}"
        yield Diagnosis("inventory", "note", f"{rigs}, {count}", f"`{command}` shows them")
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
