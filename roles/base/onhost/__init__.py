"""Base's part of the program on hosts: packages, repositories, accounts, folders, and files that roles share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from llamaherd.layout import LOCK_WAIT
from llamaherd.onhost.apt import InstallInput, Repository, add_repository, install_missing
from llamaherd.onhost.disk import cannot_write
from llamaherd.onhost.files import PutFilesInput, write_files
from llamaherd.onhost.services import last_lines, locked
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.undo import DisarmInput, disarm
from llamaherd.onhost.verbs import Verb

_FIRST_PERSON = 1000
"""Numbers of accounts from here on belong to people."""


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
            _require(system, command, "cannot set the owners of folders")


def _ensure_account(user: str, system: System) -> None:
    if not system.run(["id", "-u", user]).ok:
        home = ("--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin")
        _require(system, ["useradd", "--system", "--user-group", *home, user], f"cannot create the account {user}")
    number = system.run(["id", "-u", user]).out.strip()
    # A person's account is left alone: it may be the one that logs in here.
    if number.isdigit() and int(number) < _FIRST_PERSON:
        lock = ("--shell", "/usr/sbin/nologin", "--gid", user, "--groups", "", "--lock")
        _require(system, ["usermod", *lock, user], f"cannot lock the account {user}")


def _require(system: System, command: list[str], what: str) -> None:
    ended = system.run(command)
    if not ended.ok:
        raise FailedError(what, log=last_lines(ended, 3))


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
            why = "may not be read by servers, whatever its permissions say"
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
    _require(system, ["chmod", f"o+{needed}", path], f"cannot change the permissions of {path}")
    system.report(f"servers may read {path} again")


VERBS = {
    "put_files": Verb(PutFilesInput, put_files),
    "install": Verb(InstallInput, install),
    "add_repository": Verb(Repository, add),
    "accounts": Verb(AccountsInput, ensure_accounts),
    "open": Verb(OpenInput, open_paths),
    "disarm_undo": Verb(DisarmInput, disarm),
}
