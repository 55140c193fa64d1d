"""WSL's part of the program on hosts: inspect what Windows has around a distribution, and write its files."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from llamaherd.onhost.hardware import wsl_release
from llamaherd.onhost.system import FailedError, System
from llamaherd.onhost.verbs import NoInput, Verb

_NOT_USERS = ("Public", "Default", "Default User", "All Users", "WDAGUtilityAccount")
_MOST_BYTES = 1 << 20

BACKUP = ".before-llamaherd"
"""Behind the name of a user's file: as it was before it was first changed."""

_SECONDS = 120
"""Windows' disks are reached by a slow protocol."""


@dataclass(frozen=True)
class InspectInput:
    """The profile of the Windows user, where it is declared; `root` is the folder with the host's files: empty."""

    profile: str | None
    root: str = ""


@dataclass(frozen=True)
class TextFound:
    """A file of the user's: when it was written (seconds since 1970), and its bytes in base64."""

    written: float
    content: str


@dataclass(frozen=True)
class ScriptFound:
    """A script in Windows: its sha256, and that of the script which was run last."""

    sha256: str
    applied: str


@dataclass(frozen=True)
class VirtualMachineFound:
    """The virtual machine: when it started (seconds since 1970), its memory in bytes, its processors."""

    started: float
    memory: int
    processors: int


@dataclass(frozen=True)
class Found:
    """The WSL around a host; what is absent has no entry."""

    profiles: Mapping[str, bool] = field(default_factory=dict)
    """The folders of Windows' users that WSL can open; of several, whether the disk of a distribution lies in each."""
    files: Mapping[str, TextFound] = field(default_factory=dict)
    scripts: Mapping[str, ScriptFound] = field(default_factory=dict)
    machine: VirtualMachineFound | None = None


def inspect(given: InspectInput, system: System) -> Found:
    """Inspect what Windows has around this distribution. Return nothing where the host is not WSL."""
    if not wsl_release(system):
        return Found()
    return find_windows(given, system)


def find_windows(given: InspectInput, system: System) -> Found:
    """Return what Windows has around this distribution."""
    root = given.root
    profiles = [given.profile] if given.profile else [*_profiles(root, system)]
    there = [each for each in profiles if _kind(f"{root}{each}", system) == "folder"]
    paths = [*(f"{each}/.wslconfig" for each in there), "/etc/wsl.conf"]
    files = {path: found for path in paths if (found := _text(root, path, system))}
    scripts = {path: found for each in there for path, found in _scripts(root, each, system)}
    return Found(
        # There are hundreds of folders to look into, by a slow protocol: only where it matters.
        profiles={each: len(profiles) > 1 and _has_disk(f"{root}{each}", system) for each in there},
        files=files,
        scripts=scripts,
        machine=_machine(root, system),
    )


def _kind(path: str, system: System) -> str:
    found = system.entry(system.resolved(path))
    return found.kind if found else ""


def _profiles(root: str, system: System) -> Iterator[str]:
    """Yield the folders of Windows' users.

    WSL reaches Windows' files with the rights of the user that started it: it can open the folder of that user, and all
    folders only if the user is an administrator.
    """
    for line in (system.read(f"{root}/proc/mounts") or "").splitlines():
        words = line.split(" ")
        if len(words) < 2 or not re.match("[A-Za-z]:", words[0]):
            continue
        users = f"{words[1].rstrip('/')}/Users"
        for name in system.names(f"{root}{users}"):
            is_user = name not in _NOT_USERS and not name.startswith("defaultuser")
            if is_user and _kind(f"{root}{users}/{name}/AppData/Local", system) == "folder":
                yield f"{users}/{name}"


def _has_disk(profile: str, system: System) -> bool:
    """Return whether the disk of a distribution lies in a profile: of WSL's own, or from the Store."""
    local = f"{profile}/AppData/Local"
    places = [f"{local}/wsl/{each}" for each in system.names(f"{local}/wsl")]
    places += [f"{local}/Packages/{each}/LocalState" for each in system.names(f"{local}/Packages")]
    return any(system.entry(f"{each}/ext4.vhdx") for each in places)


def _text(root: str, path: str, system: System) -> TextFound | None:
    real = system.resolved(f"{root}{path}")
    found = system.entry(real)
    if found is None or found.kind != "file":
        return None
    return TextFound(found.written, base64.b64encode(system.read_bytes(real, _MOST_BYTES) or b"").decode())


def _scripts(root: str, profile: str, system: System) -> Iterator[tuple[str, ScriptFound]]:
    for name in system.names(f"{root}{profile}/llamaherd"):
        path = f"{profile}/llamaherd/{name}"
        if not name.endswith(".ps1") or _kind(f"{root}{path}", system) != "file":
            continue
        applied = system.read(f"{root}{PurePosixPath(path).with_suffix('.applied')}") or ""
        digits = re.sub("[^0-9A-Fa-f]", "", applied)[:64].lower()
        yield path, ScriptFound(system.digest([f"{root}{path}"]), digits or "-")


def _machine(root: str, system: System) -> VirtualMachineFound:
    started = re.search(r"^btime ([0-9]{1,12})", system.read(f"{root}/proc/stat", 16 << 20) or "", re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*([0-9]{1,15})", system.read(f"{root}/proc/meminfo") or "", re.MULTILINE)
    processors = re.findall("^processor", system.read(f"{root}/proc/cpuinfo", 16 << 20) or "", re.MULTILINE)
    return VirtualMachineFound(
        started=float(started[1]) if started else 0.0,
        memory=int(memory[1]) * 1024 if memory else 0,
        processors=len(processors),
    )


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


def require_systemd(_: NoInput, __: System) -> None:
    """Raise FailedError: without systemd nothing of the rest can run, and only Windows starts it."""
    raise FailedError(
        "systemd does not run yet: /etc/wsl.conf switches it on, from the next start of this distribution",
        "`wsl --list --running` in Windows shows what it is called; `wsl --terminate NAME` stops it; start it, and run "
        "again",
    )


VERBS = {
    "inspect": Verb(InspectInput, inspect),
    "write": Verb(FilesInput, write),
    "require_systemd": Verb(NoInput, require_systemd),
}
