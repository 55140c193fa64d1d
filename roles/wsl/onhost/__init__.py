"""WSL's part of the program on hosts: write files of Windows, and wsl.conf.

Owners and modes of files on Windows' disks are Windows' own: no call here fails because they cannot be set.
"""

from __future__ import annotations

from dataclasses import dataclass

from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import Verb

BACKUP = ".before-llamaherd"
"""Behind the name of a user's file: as it was before it was first changed."""
_SECONDS = 120
"""Windows' disks are reached by a slow protocol."""


@dataclass(frozen=True)
class WindowsFile:
    """A file to write. Of one that is `kept`, the user has a share: it has a backup, and late changes stay."""

    path: str
    text: str
    kept: bool
    before: str
    """The sha256 of what was there during the inspection; empty for no file."""


@dataclass(frozen=True)
class FilesInput:
    """Files to write, and scripts that are of no use any more."""

    files: tuple[WindowsFile, ...]
    stale: tuple[str, ...]


@dataclass(frozen=True)
class RestartInput:
    """A distribution that does not run systemd yet."""


def write(given: FilesInput, system: System) -> None:
    """Write files, each at once.

    Raise FailedError where one has changed since the inspection, or cannot be written.
    """
    for each in given.files:
        try:
            _write(each, system)
        except OSError as error:
            raise _cannot_write(each.path, error.strerror or str(error)) from error
    for path in given.stale:
        for stale in (path, f"{path.removesuffix('.ps1')}.applied"):
            try:
                system.remove(stale)
            except OSError as error:
                raise FailedError(f"cannot remove {stale}: {error.strerror}") from error


def _write(file: WindowsFile, system: System) -> None:
    _shell(system, file.path, 'mkdir -p "$1"', file.path.rpartition("/")[0])
    # A link leads to the user's own place for the file.
    path = system.run(["readlink", "-f", file.path], seconds=_SECONDS).out.removesuffix("\n")
    if not path:
        raise _cannot_write(file.path, "its folder cannot be read")
    there = system.entry(path) is not None
    if file.kept:
        if (system.digest([path]) if there else "") != file.before:
            message = f"{file.path} has changed while this ran, and was left alone"
            raise FailedError(message, "run again")
        backup = file.path + BACKUP
        if there and not system.entry(backup):
            _shell(system, backup, 'cp "$1" "$2"', path, f"{backup}.new")
            system.rename(f"{backup}.new", backup)
    new = f"{path}.llamaherd-new"
    _shell(system, file.path, 'cat >"$1"', new, text=file.text)
    if there:
        system.run(["chmod", f"--reference={path}", new])
    system.rename(new, path)


def _shell(system: System, path: str, command: str, *arguments: str, text: str = "") -> None:
    """Run a command of a shell that makes files with the usual modes. Raise FailedError about a path."""
    words = ["sh", "-c", f"umask 022 && {command}", "sh", *arguments]
    ended = system.run(words, seconds=_SECONDS, text=text)
    if not ended.ok:
        raise _cannot_write(path, ended.err.strip().rpartition(": ")[2] or "it takes too long")


def _cannot_write(path: str, why: str) -> FailedError:
    folder = path.rpartition("/")[0]
    return FailedError(f"cannot write {path}: {why}", f"see what is at {folder} with `ls -la`, then run again")


def require_systemd(_: RestartInput, __: System) -> None:
    """Raise FailedError: without systemd nothing of the rest can run, and only Windows starts it."""
    raise FailedError(
        "systemd does not run yet: /etc/wsl.conf switches it on, from the next start of this distribution",
        "`wsl --list --running` in Windows shows what it is called; `wsl --terminate NAME` stops it; start it, and run "
        "again",
    )


VERBS = {"write": Verb(FilesInput, write), "require_systemd": Verb(RestartInput, require_systemd)}
