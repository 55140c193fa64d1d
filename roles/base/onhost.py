"""Base's part of the program on hosts: inspect the machine; apply packages, accounts and folders."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from llamaherd.layout import LOCK_WAIT
from llamaherd.onhost.apt import InstallInput, Repository, add_repository, install_missing
from llamaherd.onhost.files import Disk, PutFilesInput, cannot_write, disk_of, write_files
from llamaherd.onhost.hardware import MachineState, inspect_machine, read_installed, wsl_release
from llamaherd.onhost.services import locked, require_success
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.undo import DisarmInput, disarm
from llamaherd.onhost.verbs import Verb

_DATA, _DATA_PARENT = "/var/lib/llamaherd", "/var/lib"
_FIRST_PERSON = 1000
"""The first user id of people's accounts (login.defs), which are not llamaherd's to judge or to change."""
_LISTENS = "0A"
"""The state of a socket in /proc/net/tcp."""


@dataclass(frozen=True)
class RepositoryQuery:
    """A repository of packages that the plan adds: its name, its URL, and the file that llamaherd writes for it."""

    name: str
    url: str
    file: str


@dataclass(frozen=True)
class InspectInput:
    """What to inspect."""

    packages: tuple[str, ...]
    users: tuple[str, ...]
    repositories: tuple[RepositoryQuery, ...]
    folders: tuple[str, ...]
    fetcher: str
    """The folder of the fetcher."""
    has_gpus: bool


@dataclass(frozen=True)
class UserFound:
    """An account: its shell and its groups, its own first. A person's account has neither here."""

    shell: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class FolderFound:
    """A folder: its permissions and its owner's name."""

    mode: int
    owner: str


@dataclass(frozen=True)
class Found:
    """The state of the host; what is absent has no entry."""

    os: str = ""
    arch: str = ""
    systemd: bool = False
    wsl: str = ""
    """The kernel's release under WSL; empty elsewhere."""
    disk: Disk | None = None
    """Of builds."""
    addresses: tuple[str, ...] = ()
    """The host's own, each with the length of its network's prefix."""
    listening: tuple[int, ...] = ()
    """Ports."""
    machine: MachineState = field(default_factory=MachineState)
    repositories: Mapping[str, str] = field(default_factory=dict)
    """By name: the file of another program with the same URL."""
    packages: tuple[str, ...] = ()
    """Those of the plan that are installed."""
    users: Mapping[str, UserFound] = field(default_factory=dict)
    twins: Mapping[str, str] = field(default_factory=dict)
    """By account of the plan: another account with its user id."""
    passwords: tuple[str, ...] = ()
    """Accounts of the plan that have a password."""
    folders: Mapping[str, FolderFound] = field(default_factory=dict)
    fetcher: str = ""
    """The fingerprint of the fetcher's files."""


def inspect(given: InspectInput, system: System) -> Found:
    """Inspect the host."""
    users, twins = _accounts(given.users, system)
    shown = system.run(["ip", "-o", "addr", "show"]).out.splitlines()
    return Found(
        os=_distribution(system),
        arch=(system.read("/proc/sys/kernel/arch") or system.run(["uname", "-m"]).out).strip(),
        systemd=system.entry("/run/systemd/system") is not None,
        wsl=wsl_release(system),
        disk=disk_of(_DATA if system.free(_DATA) is not None else _DATA_PARENT, system),
        addresses=tuple(words[3] for line in shown if len(words := line.split()) > 3),
        listening=tuple(sorted({*_listening(system)})),
        machine=inspect_machine(system, has_gpus=given.has_gpus),
        repositories=dict(_repositories(given.repositories, system)),
        packages=read_installed(system, given.packages),
        users=users,
        twins=twins,
        passwords=_passwords(given.users, system),
        folders={
            path: FolderFound(found.mode & 0o777, found.owner)
            for path in given.folders
            if (found := system.entry(path))
        },
        fetcher=_fingerprint(given.fetcher, system),
    )


def _distribution(system: System) -> str:
    """Return the distribution and its version, as `debian-13`."""
    found = {}
    for line in (system.read("/etc/os-release") or "").splitlines():
        name, equals, value = line.partition("=")
        if equals and re.fullmatch("[A-Z_]+", name):
            found[name] = "".join(shlex.split(value)[:1]) if value.count('"') % 2 == 0 else value
    return "-".join(filter(None, (found["ID"], found.get("VERSION_ID")))) if "ID" in found else ""


def _listening(system: System) -> Iterator[int]:
    for name in ("tcp", "tcp6"):
        for line in (system.read(f"/proc/net/{name}", 16 << 20) or "").splitlines():
            words = line.split()
            if len(words) > 3 and words[3] == _LISTENS:
                yield int(words[1].rpartition(":")[2], 16)


def _repositories(repositories: tuple[RepositoryQuery, ...], system: System) -> Iterator[tuple[str, str]]:
    """Yield files of other programs that name the same URLs."""
    if not repositories:
        return
    folder = "/etc/apt/sources.list.d"
    files = ["/etc/apt/sources.list"]
    files += [f"{folder}/{name}" for name in system.names(folder) if name.endswith((".list", ".sources"))]
    texts = {file: system.read(file) or "" for file in files}
    for each in repositories:
        yield from ((each.name, file) for file, text in texts.items() if each.url in text and file != each.file)


def _accounts(names: tuple[str, ...], system: System) -> tuple[dict[str, UserFound], dict[str, str]]:
    """Return the accounts of the plan that exist, and which of them share their user id with another account.

    A shared user id lets the other account do whatever the account may.
    """
    if not names:
        return {}, {}
    rows = [row for line in system.run(["getent", "passwd"]).out.splitlines() if len(row := line.split(":")) == 7]
    groups = [row for line in system.run(["getent", "group"]).out.splitlines() if len(row := line.split(":")) == 4]
    found: dict[str, UserFound] = {}
    twins: dict[str, str] = {}
    for user, _, number, group, _, _, shell in rows:
        if user not in names or user in found:
            continue
        if number.isdigit() and int(number) >= _FIRST_PERSON:
            found[user] = UserFound()
        else:
            own = [row[0] for row in groups if row[2] == group][:1]
            others = [row[0] for row in groups if user in row[3].split(",") and row[2] != group]
            found[user] = UserFound(shell, (*own, *others))
        twins.update((user, row[0]) for row in rows if row[2] == number and row[0] != user)
    return found, twins


def _passwords(names: tuple[str, ...], system: System) -> tuple[str, ...]:
    rows = (line.split(":") for line in (system.read("/etc/shadow") or "").splitlines())
    return tuple(row[0] for row in rows if row[0] in names and len(row) > 1 and row[1][:1] not in ("!", "*"))


def _fingerprint(folder: str, system: System) -> str:
    """Return the hash of the fetcher's files with their permissions and owners, as the plan has it."""
    files = dict(_files(folder, "", system))
    if not files:
        return ""
    modes = sorted(f"{mode:o} {owner} ./{name}\n" for name, (mode, owner) in files.items())
    sums = sorted(f"{system.digest([f'{folder}/{name}'])}  ./{name}\n" for name in files)
    return hashlib.sha256("".join([*modes, *sums]).encode()).hexdigest()


def _files(folder: str, inside: str, system: System) -> Iterator[tuple[str, tuple[int, str]]]:
    for name in system.names(f"{folder}/{inside}".rstrip("/")):
        path = f"{inside}/{name}".lstrip("/")
        found = system.entry(f"{folder}/{path}")
        if found and found.kind == "folder":
            yield from _files(folder, path, system)
        elif found and found.kind == "file":
            yield path, (found.mode, found.owner)


def put_files(given: PutFilesInput, system: System) -> None:
    """Write files, each at once. Raise FailedError with a help where one cannot be written."""
    with system.lock("host", LOCK_WAIT, given.purpose):
        try:
            for path in given.remove:
                system.remove(path)
        except OSError as error:
            raise cannot_write(error) from error
        write_files(system, given.files)


def install(given: InstallInput, system: System) -> None:
    """Install what is missing. Raise FailedError where apt cannot."""
    install_missing(system, given.packages)


def add(given: Repository, system: System) -> None:
    """Add a repository to apt. Raise FailedError where its key is another, or it does not respond."""
    with system.lock("host", LOCK_WAIT, "a repository of apt"):
        add_repository(system, given)


@dataclass(frozen=True)
class AccountsInput:
    """Accounts that own nothing else and cannot log in, and folders."""

    users: tuple[str, ...]
    folders: tuple[str, ...]
    """Root's."""
    build_user: str
    build_folders: tuple[str, ...]
    """What the account that compiles may write to."""
    keys: str
    """The folder of keys: only its service can read a key, and the folder cannot be listed."""
    incoming: str
    """Where files of the controller arrive, as the user that logs in. They are checked before they are admitted."""


def ensure_accounts(given: AccountsInput, system: System) -> None:
    """Create accounts and folders, and set their permissions. Raise FailedError."""
    with locked(system, "making accounts and folders"):
        for user in given.users:
            _ensure_account(user, system)
        for folder in (*given.folders, *given.build_folders):
            system.folder(folder)
        login = system.run(["printenv", "SUDO_USER"]).out.strip() or "root"
        commands = (
            ["chown", "root", *given.folders],
            ["chown", given.build_user, *given.build_folders],
            ["install", "-d", "-m", "0711", "-o", "root", "-g", "root", given.keys],
            ["install", "-d", "-m", "0700", "-o", login, given.incoming],
        )
        for command in commands:
            require_success(system.run(command), "cannot set the owners of folders")


def _ensure_account(user: str, system: System) -> None:
    if not system.run(["id", "-u", user]).ok:
        home = ("--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin")
        command = ["useradd", "--system", "--user-group", *home, user]
        require_success(system.run(command), f"cannot create the account {user}")
    number = system.run(["id", "-u", user]).out.strip()
    # A person's account is left alone: it may be the one that logs in here.
    if number.isdigit() and int(number) < _FIRST_PERSON:
        lock = ("--shell", "/usr/sbin/nologin", "--gid", user, "--groups", "", "--lock")
        require_success(system.run(["usermod", *lock, user]), f"cannot lock the account {user}")


@dataclass(frozen=True)
class OpenInput:
    """Files and folders that all servers read."""

    paths: tuple[str, ...]


def open_paths(given: OpenInput, system: System) -> None:
    """Let every account read files and folders, and pass the folders above. Raise FailedError where it may not."""
    for path in given.paths:
        there = system.entry(path)
        _open(path, "rx" if there and there.kind == "folder" else "r", system)
        nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        if not system.run([*nobody, "test", "-r", path]).ok:
            why = "cannot be read by servers, whatever its permissions"
            raise FailedError(f"{path} {why}: see `namei -l` and `getfacl`")


def _open(path: str, needed: str, system: System) -> None:
    """Give others a right to a path, and the right to pass its folders before. Only what is root's is changed."""
    if path != "/":
        _open(str(PurePosixPath(path).parent), "x", system)
    there = system.entry(path)
    bits = sum({"r": 4, "x": 1}[each] for each in needed)
    if there and there.mode & bits == bits:
        return
    if there and there.owner != "root":
        raise FailedError(
            f"servers may not read {path}, which belongs to {there.owner}: see that everybody may "
            f"(`chmod o+{needed}`), or keep models elsewhere (`store: path:`)"
        )
    require_success(system.run(["chmod", f"o+{needed}", path]), f"cannot change the permissions of {path}")
    system.report(f"servers may read {path} again")


VERBS = {
    "inspect": Verb(InspectInput, inspect),
    "put_files": Verb(PutFilesInput, put_files),
    "install": Verb(InstallInput, install),
    "add_repository": Verb(Repository, add),
    "accounts": Verb(AccountsInput, ensure_accounts),
    "open": Verb(OpenInput, open_paths),
    "disarm_undo": Verb(DisarmInput, disarm),
}
